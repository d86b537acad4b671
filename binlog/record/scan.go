package record

import (
	"bytes"
	"errors"
	"io"
	"iter"

	"trellis/binlog/vfs"
)

// Scanner reads a segment's records one after the other. Reset comes before all
// else. It serves one goroutine.
type Scanner struct {
	f     io.ReaderAt
	index uint32 // of the segment
	salt  Salt   // the segment's
	size  int64  // of the file
	off   int64  // in the file: of the record that Next will read

	buf []byte // a window of the file
	at  int64  // where the window starts
	err error  // of File
}

// scanWindow is how many bytes are read at a time: few calls, and little enough to
// stay in a processor's cache until it is used.
const scanWindow = 256 << 10

// Reset turns to the segment in f, which has that header and size, and keeps the
// buffer of the scan before unless it is large.
func (s *Scanner) Reset(f io.ReaderAt, h *Header, size int64) {
	buf := s.buf[:0]
	if cap(buf) > 4*scanWindow {
		buf = nil
	}
	*s = Scanner{f: f, index: h.Index, salt: h.Salt(), size: size, off: HeaderSize, buf: buf}
}

// Offset is where in the file the next record starts.
func (s *Scanner) Offset() int64 { return s.off }

// Next returns a sound record, valid until the next call, and goes on behind it.
// With an error, ErrUnwritten or a *BadError, it stays where it is.
func (s *Scanner) Next() ([]byte, error) {
	left := s.size - s.off
	if left < SmallSize {
		return nil, ErrUnwritten
	}
	b, err := s.peek(min(left, fullFixed))
	if err != nil {
		return nil, err
	}
	if le.Uint64(b) == 0 {
		return nil, ErrUnwritten
	}
	n, p, wrong := plausible(b, left, s.salt)
	if wrong != "" {
		return nil, &BadError{What: wrong}
	}
	if b, err = s.peek(n); err != nil {
		return nil, err
	}
	b = b[:n:n]
	if wrong := check(b, p); wrong != "" {
		return nil, &BadError{What: wrong}
	}
	if wrong := impossible(b, s.index); wrong != "" {
		return nil, &BadError{What: wrong, Impossible: true}
	}
	s.off += n
	return b, nil
}

// First is the sound record that b begins with, in the segment of that index and salt.
func First(b []byte, index uint32, salt Salt) ([]byte, error) {
	if len(b) < SmallSize || le.Uint64(b) == 0 {
		return nil, ErrUnwritten
	}
	n, p, wrong := plausible(b, int64(len(b)), salt)
	if wrong == "" {
		b = b[:n:n]
		wrong = check(b, p)
	}
	if wrong == "" {
		wrong = impossible(b, index)
	}
	if wrong != "" {
		return nil, &BadError{What: wrong}
	}
	return b, nil
}

// peek returns at least n bytes from s.off on.
func (s *Scanner) peek(n int64) ([]byte, error) {
	i := s.off - s.at
	if i >= 0 && i+n <= int64(len(s.buf)) {
		return s.buf[i:], nil
	}
	return s.fill(n)
}

// fill is peek for bytes that are not in the window.
func (s *Scanner) fill(n int64) ([]byte, error) {
	i := s.off - s.at
	if i < 0 || i > int64(len(s.buf)) {
		i = int64(len(s.buf))
	}
	kept := s.buf[i:]
	if want := max(n, min(scanWindow, s.size-s.off)); int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	m := copy(s.buf[:cap(s.buf)], kept)
	s.at = s.off
	end := min(int64(cap(s.buf)), s.size-s.at)
	got, err := s.f.ReadAt(s.buf[m:end], s.at+int64(m))
	s.buf = s.buf[:m+got]
	if int64(len(s.buf)) >= n {
		return s.buf, nil // an error further on is returned when that is wanted
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, &BadError{What: "it cannot be read", Err: err}
}

// resync goes on to the next sound record behind a bad one. It reports false
// when there is none.
func (s *Scanner) resync() bool {
	for s.off += 8; s.off <= s.size-SmallSize; s.off += 8 {
		at := s.off
		_, err := s.Next()
		if err == nil {
			s.off = at
			return true
		}
		if bad, ok := errors.AsType[*BadError](err); ok && bad.Err != nil {
			s.off = at&^4095 + 4096 - 8 // a block that cannot be read
		}
	}
	return false
}

// Gap is a part of a segment that holds no sound record.
type Gap struct {
	Offset int64
	Size   int64 // bytes, up to the next sound record or the end of the file
	Err    error // what Next has said of it
}

// Records goes through the rest of the segment: it tells each sound record, valid
// until the next one, and each gap. The zeros at the end are no gap.
func (s *Scanner) Records() iter.Seq2[[]byte, *Gap] {
	return func(yield func([]byte, *Gap) bool) {
		for {
			at := s.off
			b, err := s.Next()
			if err == nil {
				if !yield(b, nil) {
					return
				}
				continue
			}
			if errors.Is(err, ErrUnwritten) && s.zeros() {
				return
			}
			s.off = at
			more := s.resync()
			if !more {
				s.off = s.size
			}
			if !yield(nil, &Gap{at, s.off - at, err}) || !more {
				return
			}
		}
	}
}

// File is Records of a segment's file, which it opens and closes. Err comes after it.
func (s *Scanner) File(fs vfs.FS, name string, h *Header, size int64) iter.Seq2[[]byte, *Gap] {
	return func(yield func([]byte, *Gap) bool) {
		file, err := fs.OpenRead(name)
		if s.err = err; err != nil {
			return
		}
		defer func() { s.err = file.Close() }()
		s.Reset(file, h, size)
		s.Records()(yield)
	}
}

// Err is why the file of the last File could not be opened or closed.
func (s *Scanner) Err() error { return s.err }

// Zeros reports whether a file of that size holds nothing but zeros from off on.
func Zeros(f io.ReaderAt, off, size int64) bool {
	s := Scanner{f: f, off: off, size: size}
	return s.zeros()
}

var zeroBlock [4096]byte

// zeros reports whether nothing but zeros follows, up to the end of the file.
func (s *Scanner) zeros() bool {
	for s.off < s.size {
		b, err := s.peek(min(s.size-s.off, scanWindow))
		if err != nil {
			return false
		}
		for len(b) > 0 {
			n := min(len(b), len(zeroBlock))
			if !bytes.Equal(b[:n], zeroBlock[:n]) {
				return false
			}
			s.off += int64(n)
			b = b[n:]
		}
	}
	return true
}
