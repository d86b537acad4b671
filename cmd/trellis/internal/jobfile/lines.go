package jobfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode"
)

// ErrTooLong is the error of a line that is longer than the reader's limit. The line has been skipped.
var ErrTooLong = errors.New("the line is too long")

// Lines reads lines of bounded length. The last one may lack its end. It is for one goroutine.
type Lines struct {
	in     *bufio.Reader
	limit  int
	line   []byte
	number int
}

// NewLines returns a reader of lines of up to limit bytes, without their ends.
func NewLines(r io.Reader, limit int) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// Next returns the next line without its line feed; it is overwritten by the next call. At the end it returns io.EOF.
// After [ErrTooLong] it goes on with the line that follows, after another error it does not.
func (l *Lines) Next() ([]byte, error) {
	l.line = l.line[:0]
	tooLong, begun := false, false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(part) > 0 && !begun {
			begun = true
			l.number++
		}
		end := err == nil
		if end {
			part = part[:len(part)-1]
		}
		if tooLong = tooLong || len(l.line)+len(part) > l.limit; !tooLong {
			l.line = append(l.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case !begun:
			return nil, io.EOF
		case tooLong:
			return nil, ErrTooLong
		}
		return l.line, nil
	}
}

// Waiting reports whether Next may have to wait for the rest of the next line.
func (l *Lines) Waiting() bool {
	there, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(there, '\n') < 0
}

// WaitingForText is Waiting for a reader that skips blank lines: it reports whether Next may have to wait for the rest
// of the next line that is not blank.
func (l *Lines) WaitingForText() bool {
	there, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(bytes.TrimLeftFunc(there, unicode.IsSpace), '\n') < 0
}

// Number is that of the line that Next returned or skipped last, from 1.
func (l *Lines) Number() int { return l.number }
