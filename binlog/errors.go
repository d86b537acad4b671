package binlog

import (
	"errors"
	"fmt"

	"trellis/binlog/convert"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// What the log takes and gives. An owner of jobs needs package journal only.
type (
	Pos     = journal.Pos
	Record  = journal.Record
	Setting = journal.Setting
	Ticket  = journal.Ticket
)

// What Open and Replay tell of.
type (
	Progress    = inspect.Progress
	Cut         = inspect.Cut
	DamageError = record.DamageError
)

// Errors of appends.
var (
	ErrNoSpace = journal.ErrNoSpace
	ErrRoom    = journal.ErrRoom
	ErrBusy    = journal.ErrBusy
	ErrFailed  = journal.ErrFailed
	ErrClosed  = journal.ErrClosed

	// ErrInvalid tells of a record that the format cannot hold: a wrong state, a
	// tube's name that is empty or longer than 200 bytes, keys that are not valid, a
	// record of 2 GiB or more.
	ErrInvalid = record.ErrInvalid
)

// Errors of Open.
var (
	// ErrLocked tells that another process has the directory. The error that
	// wraps it names that process.
	ErrLocked = vfs.ErrLocked

	// ErrMixed tells that a directory holds both segments of this log and files
	// of beanstalkd's, and so does not tell which of them is the newer.
	ErrMixed = convert.ErrMixed

	// ErrCluster tells that a directory belongs to a cluster's member. A log of its own
	// there would hide from the others what it does.
	ErrCluster = errors.New("the directory belongs to a member of a cluster")
)

// Names of the files that mark a member's directory and a snapshot: packages
// replica/member and replica/snapshot write them.
const (
	memberMark   = "cluster"
	snapshotMark = "meta"
)

// refuseCluster returns an error if the directory is a member's, or a snapshot.
func refuseCluster(fs vfs.FS, dir string) error {
	list, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("log directory %s: %w", dir, err)
	}
	for _, e := range list {
		switch e.Name {
		case memberMark:
			return fmt.Errorf("log directory %s: %w: start with --node and --cluster, or choose another directory",
				dir, ErrCluster)
		case snapshotMark:
			return fmt.Errorf("log directory %s: %w: it is a snapshot; "+
				"copy its segments to an empty directory, and start with that", dir, ErrCluster)
		}
	}
	return nil
}

// spaceError marks an error of the system that means that the disk is full.
func spaceError(err error) error {
	if vfs.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
