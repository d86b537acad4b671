package client

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// fed is a connection on which a server has said what it will ever say.
type fed struct {
	net.Conn
	rest []byte

	reads, armed int // calls of Read and SetDeadline
}

func (f *fed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 7)], f.rest)
	f.rest = f.rest[n:]
	f.reads++
	return n, nil
}

func (f *fed) Write(p []byte) (int, error) { return len(p), nil }

func (f *fed) SetDeadline(time.Time) error {
	f.armed++
	return nil
}

// FuzzReplies answers many commands by anything.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("OK 4\r\n---\n\r\nINSERTED 1 READY 5\r\nRESERVED 1 1\r\na\r\nNOT_FOUND\r\n"))
	f.Add([]byte("FOUND 1 1073741824\r\nx"))
	f.Add([]byte("OK 99999999999999999999\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(&fed{rest: b}, "there")
		for range 50 {
			r, err := c.Do(t.Context(), "stats", nil)
			if err != nil {
				if conn := (*ConnError)(nil); !errors.As(err, &conn) || c.err == nil {
					t.Fatalf("%v is no ConnError", err)
				}
				break
			}
			if len(r.Line()) > maxReplyLine || len(r.Body) > len(b) {
				t.Fatalf("%d bytes said, %d of a body", len(b), len(r.Body))
			}
		}
	})
}
