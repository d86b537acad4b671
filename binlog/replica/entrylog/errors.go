package entrylog

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// DamageError tells of bytes that were on disk for certain and cannot be read as
// they were written, or of files that contradict each other. Sound counts frames.
//
// There is no salvage. A voter has acknowledged what its log holds; one that
// starts with less may help to elect a leader that lacks committed entries. It is
// to be removed from the cluster and added again with an empty directory, which makes
// it another member, whatever its name.
type DamageError = record.DamageError

// Errors of Open.
var (
	// ErrNoLog tells that a directory holds no entry log although Options.New is not
	// set. It exists because the log also holds the node's vote: a node that lost its
	// disk and makes a new log under its old id could vote twice in one term.
	ErrNoLog = errors.New("there is no entry log")

	// ErrVersion tells of a segment that a later program has written. It is apart from
	// damage because the node needs a newer program and no empty directory.
	ErrVersion = errors.New("a version of the entry log that this program does not know")

	// ErrLocked tells that another process has the directory.
	ErrLocked = vfs.ErrLocked
)

// Errors of Append, Trim, Install and Mark.
var (
	// ErrNoSpace tells that the disk is full. Nothing was appended and nothing
	// changed: the owner pauses and makes the same call again. It exists because a
	// full disk is the only failure after which a node may go on.
	ErrNoSpace = journal.ErrNoSpace

	// ErrFailed tells that a write or a sync has failed, in this call or an earlier
	// one, or that an entry cannot be read back. It is for good: after a failed sync the
	// system may believe data to be on disk that is not, so that no later sync proves
	// anything, and a node cannot go on without an entry. The process ends.
	ErrFailed = journal.ErrFailed

	// ErrInvalid tells that a call breaks a rule of raft or the owner's promises, so
	// that the log was left as it was. It exists because a record that breaks a rule
	// would be damage at the next Open; the owner takes it for a broken invariant.
	ErrInvalid = errors.New("not a valid continuation of the entry log")

	// ErrClosed tells that the log was closed.
	ErrClosed = journal.ErrClosed
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
