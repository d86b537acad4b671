package beanstalkd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads the records of one file.
type Reader struct {
	version int
	r       *bufio.Reader
	off     int64 // of the next byte that r will give
	size    int64
	name    [MaxTube]byte
	job     [jobSize7]byte
}

// Entry is a record.
type Entry struct {
	Job
	Tube   []byte // of a full record; valid until the next call. Nil in a record of changed state
	Body   int64  // where in the file a full record's body starts
	Offset int64  // where the record starts
}

// TornError tells that a file ends within a record: beanstalkd was killed, or
// the machine lost power, while it was written. It is not an error of the file.
type TornError struct {
	Offset int64
	What   string
}

func (e *TornError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.What) }

// FormatError tells of bytes that are no record.
type FormatError struct {
	Offset int64
	What   string
	Err    error // of the system, if the bytes could not be read
}

func (e *FormatError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("offset %d: %s: %v", e.Offset, e.What, e.Err)
	}
	return fmt.Sprintf("offset %d: %s", e.Offset, e.What)
}

// Unwrap returns the system's error.
func (e *FormatError) Unwrap() error { return e.Err }

// NewReader reads a file's version. A file without one, which beanstalkd was
// about to begin, has no records.
func NewReader(r io.ReaderAt, size int64) (*Reader, error) {
	rd := &Reader{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), size: size}
	var b [4]byte
	n, err := io.ReadFull(rd.r, b[:])
	rd.off = int64(n)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		if le.Uint32(b[:]) != 0 {
			return nil, &FormatError{What: "the file is too short"}
		}
		return rd, nil
	case err != nil:
		return nil, &FormatError{What: "it cannot be read", Err: err}
	}
	switch rd.version = int(le.Uint32(b[:])); rd.version {
	case Version7, Version5:
		return rd, nil
	case 0:
		if zero, err := rd.rest(); err != nil {
			return nil, err
		} else if zero {
			return rd, nil
		}
	}
	return nil, &FormatError{What: fmt.Sprintf("version %d of the format is not known", rd.version)}
}

// Next reads a record. At the end it returns io.EOF, or a *TornError; then, as
// after any other error, the reader is of no more use.
func (r *Reader) Next(e *Entry) error {
	*e = Entry{Offset: r.off}
	nameSize := 4
	if r.version == Version5 {
		nameSize = 8
	}
	if n, err := r.read(r.job[:nameSize]); err != nil {
		return r.end(e, r.job[:n], err)
	}
	n := uint64(le.Uint32(r.job[:]))
	if nameSize == 8 {
		n = le.Uint64(r.job[:])
	}
	if n > MaxTube {
		return r.bad(e, "a record whose tube has an impossible name")
	}
	if _, err := r.read(r.name[:n]); err != nil {
		return r.end(e, r.job[:nameSize], err)
	}
	size := jobSize7
	if r.version == Version5 {
		size = jobSize5
	}
	if got, err := r.read(r.job[:size]); err != nil {
		if n != 0 {
			return r.end(e, r.name[:n], err)
		}
		return r.end(e, r.job[:got], err)
	}
	if le.Uint64(r.job[:]) == 0 {
		return r.unwritten(e, n, r.job[8:size])
	}
	if what := decodeJob(r.job[:size], r.version, &e.Job); what != "" {
		return r.bad(e, what)
	}
	if n == 0 {
		return nil
	}
	if e.State == Invalid {
		return r.bad(e, "a full record of a deleted job")
	}
	if !ValidTube(r.name[:n]) {
		return r.bad(e, "a record whose tube has an impossible name")
	}
	e.Tube, e.Body = r.name[:n], r.off
	if int64(e.BodySize) > r.size-r.off {
		return &TornError{e.Offset, fmt.Sprintf("the file ends in the body of job %d", e.ID)}
	}
	skipped, err := r.r.Discard(int(e.BodySize) - 2)
	r.off += int64(skipped)
	var crlf [2]byte
	if err == nil {
		_, err = r.read(crlf[:])
	}
	if err != nil {
		return &FormatError{r.off, "it cannot be read", err}
	}
	if crlf != [2]byte{'\r', '\n'} {
		if zero, err := r.rest(); err != nil {
			return err
		} else if zero {
			return &TornError{e.Offset, fmt.Sprintf("the body of job %d was not written", e.ID)}
		}
		return r.bad(e, "a job whose body has no end")
	}
	return nil
}

func (r *Reader) bad(e *Entry, what string) error { return &FormatError{Offset: e.Offset, What: what} }

func (r *Reader) read(b []byte) (int, error) {
	n, err := io.ReadFull(r.r, b)
	r.off += int64(n)
	return n, err
}

// end tells what the end of the file means, before which got was read.
func (r *Reader) end(e *Entry, got []byte, err error) error {
	switch {
	case !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF:
		return &FormatError{r.off, "it cannot be read", err}
	case allZero(got):
		return io.EOF
	}
	return &TornError{e.Offset, "the file ends in a record"}
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// unwritten tells what a record without an id is: the zeros that a file is
// filled with, or a record that was being written.
func (r *Reader) unwritten(e *Entry, name uint64, job []byte) error {
	if !allZero(job) {
		return r.bad(e, "a job without an id")
	}
	if zero, err := r.rest(); err != nil {
		return err
	} else if !zero {
		return r.bad(e, "a gap between records")
	}
	if name != 0 {
		return &TornError{e.Offset, "a record was not written to its end"}
	}
	return io.EOF
}

// rest reports whether nothing but zeros follows.
func (r *Reader) rest() (bool, error) {
	for {
		_, err := r.r.Peek(1)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, &FormatError{r.off, "it cannot be read", err}
		}
		b, _ := r.r.Peek(r.r.Buffered())
		if !allZero(b) {
			return false, nil
		}
		n, _ := r.r.Discard(len(b))
		r.off += int64(n)
	}
}
