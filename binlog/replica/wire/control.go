package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// ClientConfig is how Call reaches a node. The zero ClientConfig is TCP without TLS, for
// nodes on loopback.
type ClientConfig struct {
	TLS  *Credentials
	Dial func(ctx context.Context, addr string) (net.Conn, error) // nil means TCP

	speaks versions // zero means spoken
	timing timing   // zero means usual
}

func (c *ClientConfig) dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

func (t *Transport) client() *ClientConfig {
	return &ClientConfig{TLS: t.cfg.TLS, Dial: t.cfg.Dial, speaks: t.speaks}
}

// RemoteError is an error that the asked node's handler has returned.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return e.Text }

// Call sends a control request to the node at an address, and waits for the response as
// long as the context allows. Request and response have at most MaxControl bytes. An error
// that the node's handler has returned is a *RemoteError.
func Call(ctx context.Context, cfg ClientConfig, addr string, req []byte) ([]byte, error) {
	return Fetch(ctx, cfg, addr, req, nil)
}

// Fetch is Call for a request that is answered with a stream before its response: w gets
// what comes, of any length. Without a response the stream is not whole. A stream that
// nobody expects, as w is nil, is an error.
func Fetch(ctx context.Context, cfg ClientConfig, addr string, req []byte, w io.Writer) ([]byte, error) {
	if len(req) > MaxControl {
		return nil, fmt.Errorf("a control request of %d bytes, at most %d are possible", len(req), MaxControl)
	}
	tm := cmp.Or(cfg.timing, usual)
	c, err := open(ctx, &cfg, tm.greet, addr, hello{purpose: purposeControl})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	defer until(ctx, c)()
	tc := &timedConn{c, tm.stall, tm.stall} // pulses come while the node works
	resp, err := call(tc, req, w)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return resp, err
}

func call(c net.Conn, req []byte, stream io.Writer) ([]byte, error) {
	if err := newFrameWriter(c, smallBuf).frame(kindRequest, req); err != nil {
		return nil, err
	}
	size, allowed := smallBuf, []kind{kindResponse, kindError, kindPulse}
	if stream != nil {
		size, allowed = bufSize, append(allowed, kindChunk)
	}
	r := newFrameReader(c, size, allowed...)
	for {
		switch k, payload, err := r.next(); {
		case err != nil:
			return nil, fmt.Errorf("the connection ended: %w", err)
		case k == kindError:
			return nil, &RemoteError{printable(payload)}
		case k == kindResponse:
			return append([]byte(nil), payload...), nil
		case k == kindChunk:
			if _, err := stream.Write(payload); err != nil {
				return nil, err
			}
		}
	}
}

// serveControl answers one request.
func (t *Transport) serveControl(c net.Conn, from Caller) error {
	tm := &t.timing
	tc := &timedConn{c, tm.stall, tm.stall}
	w := newFrameWriter(tc, smallBuf)
	r := newFrameReader(tc, smallBuf, kindRequest)
	_, req, err := r.next()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	// There is no limit to how long a request takes but that somebody waits for it.
	_ = c.SetReadDeadline(time.Time{})
	idle, begin := context.WithCancel(ctx)
	pulses := t.pulse(idle, tc)
	stream := &controlStream{begin: func() { begin(); <-pulses }, w: chunkWriter{w: w, kind: kindChunk}}
	gone := make(chan struct{})
	go func() { // notices that the asking side has gone
		defer close(gone)
		_, _ = c.Read(make([]byte, 1))
		cancel()
	}()
	resp, err := t.cfg.Handler.Control(ctx, from, req, stream)
	if err == nil && len(resp) > MaxControl {
		err = fmt.Errorf("a response of %d bytes, at most %d are possible", len(resp), MaxControl)
	}
	cancel()
	<-pulses
	var denied error // for the log
	if errors.Is(err, from.Admin) || errors.Is(err, from.Member) {
		denied = err
	}
	if err != nil {
		err = w.frame(kindError, []byte(cut(err.Error())))
	} else {
		err = w.frame(kindResponse, resp)
	}
	_ = c.Close()
	<-gone
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("nobody takes the response to a control request")
	}
	return denied // that who has asked has gone needs no word
}

// controlStream takes what is sent before the response to a control request.
type controlStream struct {
	begin func() // ends the pulses; may be called again
	w     chunkWriter
}

func (s *controlStream) Write(b []byte) (int, error) {
	s.begin()
	return s.w.Write(b)
}

// cut shortens a text to what a frame may have.
func cut(text string) string { return text[:min(len(text), maxText)] }

// checkWay reports whether a message goes from the member at the other end to this node.
func checkWay(m *raftpb.Message, self, from member.ID) error {
	if member.ID(m.GetFrom()) != from || member.ID(m.GetTo()) != self {
		return malformed("a message from %016x to %016x, on a connection from %s to %s", m.GetFrom(), m.GetTo(), from, self)
	}
	return nil
}
