package binlog

import (
	"errors"
	"fmt"

	"trellis/binlog/vfs"
)

// Errors that a caller decides by. All others end what was being done.
var (
	// ErrInvalid tells of a record that the format cannot hold: a wrong state, a
	// tube's name that is empty or longer than 200 bytes, a body of 2 GiB or more.
	ErrInvalid = errors.New("invalid record")

	// ErrLocked tells that another process has the directory. The error that
	// wraps it names that process.
	ErrLocked = errors.New("the directory is in use")

	// ErrMixed tells that a directory holds both segments of this log and files
	// of beanstalkd, and so does not tell which of them is the newer.
	ErrMixed = errors.New("the directory holds two logs")
)

// spaceError marks an error of the system that means that the disk is full.
func spaceError(err error) error {
	if vfs.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// DamageError tells of bytes that were on disk for certain and cannot be read
// as they were written. Open returns it, having changed nothing.
type DamageError struct {
	File   string // the segment's file
	Offset int64  // of the first byte that is wrong
	What   string // what is wrong there
	Sound  int64  // records that can be read behind it
	Err    error  // of the system, if it is one
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("%s: offset %d: %s", e.File, e.Offset, e.What)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Sound > 0 {
		s += fmt.Sprintf("; %d sound records follow", e.Sound)
	}
	return s
}

// Unwrap returns the system's error.
func (e *DamageError) Unwrap() error { return e.Err }
