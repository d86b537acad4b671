package record

import (
	"errors"
	"fmt"
)

// ErrInvalid tells of a record that the format cannot hold: see Valid.
var ErrInvalid = errors.New("invalid record")

// ErrUnwritten tells of an offset in a segment that was never written: zeros, or
// the end of the file.
var ErrUnwritten = errors.New("nothing is written here")

// BadError tells of an offset in a segment that holds no sound record.
type BadError struct {
	What       string
	Err        error // of the system, if the bytes could not be read
	Impossible bool  // the checksum is right, so that no crash has made it
}

func (e *BadError) Error() string { return e.What }

// Unwrap returns the system's error.
func (e *BadError) Unwrap() error { return e.Err }

// DamageError tells of bytes of a log that were on disk for certain and cannot be
// read as they were written.
type DamageError struct {
	File   string // path
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
