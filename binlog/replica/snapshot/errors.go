package snapshot

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// DamageError tells of bytes of a snapshot, or of the pointer, that cannot be read as
// they were written. A standby that was being fed is void. Sound is not used.
type DamageError = record.DamageError

// Errors that a caller decides by.
var (
	// ErrNone tells that a directory has no pointer. It is apart from damage because a
	// node that was never fed with anything has none.
	ErrNone = errors.New("there is no snapshot")

	// ErrOlder tells of a snapshot that is older than the current one. The pointer never
	// goes back: what the entry log has removed since is in the current one only.
	ErrOlder = errors.New("the snapshot is older than the current one")

	// ErrVersion tells of a snapshot, a pointer or a stream that a later program has
	// written. It is apart from damage because the cure is a newer program.
	ErrVersion = errors.New("a version of the snapshot format that this program does not know")

	// ErrMalformed tells of a stream that is not one of Send's, or not the one that was
	// asked for. It is apart from the errors of this node's own disk because the peer or
	// the way to it is at fault.
	ErrMalformed = errors.New("malformed snapshot stream")

	// ErrNoSpace tells that the disk is full. What was begun was given up.
	ErrNoSpace = journal.ErrNoSpace

	// ErrTooLarge tells that the jobs do not fit into MaxSegments segments.
	ErrTooLarge = errors.New("the snapshot has too many segments")

	// ErrEnded tells of a call of a Writer that was finished or aborted.
	ErrEnded = errors.New("the snapshot's writer has ended")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// spaceError marks an error of the system that means that the disk is full.
func spaceError(err error) error {
	if vfs.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
