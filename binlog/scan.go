package binlog

import (
	"bytes"
	"errors"
	"io"
	"iter"
)

// scanner reads a segment's records one after the other.
type scanner struct {
	f     io.ReaderAt
	index uint32 // of the segment
	start uint32 // its checksumStart
	size  int64  // of the file
	off   int64  // in the file: of the record that next will read

	buf []byte // a window of the file
	at  int64  // where the window starts
}

// scanWindow is how much is read at a time: few calls, and little enough to stay
// in a processor's cache until it is used.
const scanWindow = 256 << 10

func newScanner(f io.ReaderAt, h *header, size int64) *scanner {
	return &scanner{f: f, index: h.index, start: checksumStart(h.seed, h.index), size: size, off: headerSize}
}

// reset turns to another segment and keeps the memory.
func (s *scanner) reset(f io.ReaderAt, h *header, size int64) {
	buf := s.buf[:0]
	if cap(buf) > 4*scanWindow {
		buf = nil
	}
	*s = *newScanner(f, h, size)
	s.buf = buf
}

// errUnwritten tells of a place that was never written: zeros, or the end of the
// file.
var errUnwritten = errors.New("nothing is written here")

// errBad tells of a place that holds something else than a sound record.
type errBad struct {
	what    string
	err     error // of the system, if it could not be read
	written bool  // the checksum is right: no crash has made it
}

func (e *errBad) Error() string { return e.what }

// next returns a sound record, valid until the next call, and goes on behind it.
// With an error it stays where it is.
func (s *scanner) next() ([]byte, error) {
	left := s.size - s.off
	if left < smallSize {
		return nil, errUnwritten
	}
	b, err := s.peek(min(left, fullFixed))
	if err != nil {
		return nil, err
	}
	if le.Uint64(b) == 0 {
		return nil, errUnwritten
	}
	n, sum, what := plausible(b, left, s.start)
	if what != "" {
		return nil, &errBad{what: what}
	}
	if b, err = s.peek(n); err != nil {
		return nil, err
	}
	b = b[:n:n]
	if what := check(b, sum); what != "" {
		return nil, &errBad{what: what}
	}
	if what := impossible(b, s.index); what != "" {
		return nil, &errBad{what: what, written: true}
	}
	s.off += n
	return b, nil
}

// peek returns at least n bytes from s.off on.
func (s *scanner) peek(n int64) ([]byte, error) {
	i := s.off - s.at
	if i >= 0 && i+n <= int64(len(s.buf)) {
		return s.buf[i:], nil
	}
	return s.fill(n)
}

func (s *scanner) fill(n int64) ([]byte, error) {
	i := s.off - s.at
	if i < 0 || i > int64(len(s.buf)) {
		i = int64(len(s.buf))
	}
	kept := s.buf[i:]
	if want := max(n, scanWindow); int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	m := copy(s.buf[:cap(s.buf)], kept)
	s.at = s.off
	end := min(int64(cap(s.buf)), s.size-s.at)
	got, err := s.f.ReadAt(s.buf[m:end], s.at+int64(m))
	s.buf = s.buf[:m+got]
	if int64(len(s.buf)) >= n {
		return s.buf, nil // an error beyond what is wanted will be met again
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, &errBad{what: "it cannot be read", err: err}
}

// resync goes on to the next sound record behind a bad place. It reports false
// when there is none.
func (s *scanner) resync() bool {
	for s.off += 8; s.off <= s.size-smallSize; s.off += 8 {
		at := s.off
		_, err := s.next()
		if err == nil {
			s.off = at
			return true
		}
		var bad *errBad
		if errors.As(err, &bad) && bad.err != nil {
			s.off = at&^4095 + 4096 - 8 // a block that cannot be read
		}
	}
	return false
}

// gap is a place that holds no sound record.
type gap struct {
	at, n int64 // where in the file, and how long
	err   error // what next has said of it
}

// records goes through the rest of the segment: it tells each sound record, valid
// until the next one, and each gap. The zeros at the end are none.
func (s *scanner) records() iter.Seq2[[]byte, *gap] {
	return func(yield func([]byte, *gap) bool) {
		for {
			at := s.off
			b, err := s.next()
			if err == nil {
				if !yield(b, nil) {
					return
				}
				continue
			}
			if errors.Is(err, errUnwritten) && s.zeros() {
				return
			}
			s.off = at
			more := s.resync()
			if !more {
				s.off = s.size
			}
			if !yield(nil, &gap{at, s.off - at, err}) || !more {
				return
			}
		}
	}
}

var zeroBlock [4096]byte

// zeros tells whether nothing but zeros follows, up to the end of the file.
func (s *scanner) zeros() bool {
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
