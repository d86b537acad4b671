package script

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A Process is a server that Socket talks to.
type Process struct {
	Network, Addr string                   // for net.Dial
	Dial          func() (net.Conn, error) // instead of that, if it is not nil
	Drain         func(bool) error         // switches drain mode
	Stop          func()                   // ends the server
}

// Socket is a Target that reaches real servers over sockets, in real time.
type Socket struct {
	// Launch starts a fresh server with these options. The server listens or
	// will do so soon.
	Launch func(options ...string) (*Process, error)

	// Authorize returns the options with which a server knows clients, each by the token
	// that Token has for it. It is nil if there are none.
	Authorize func(clients []Client) (options []string, err error)

	// Patience is how long a reply may take. Zero means 10 s.
	Patience time.Duration

	// Quiet is how long the client must not have sent anything before the
	// absence of replies counts. A server that answers later than that what it
	// should not answer at all goes unnoticed; nothing else depends on it.
	// Zero means 30 ms.
	Quiet time.Duration

	// Settling is how long a server may take to handle what was sent before
	// something else happens on another connection, in whole milliseconds. Zero means
	// 15 ms.
	Settling time.Duration
}

// Start launches a server.
func (s *Socket) Start(clients []Client, options ...string) (Server, error) {
	if clients != nil {
		if s.Authorize == nil {
			return nil, fmt.Errorf("clients with some rights: %w", errors.ErrUnsupported)
		}
		more, err := s.Authorize(clients)
		if err != nil {
			return nil, err
		}
		options = append(more, options...)
	}
	p, err := s.Launch(options...)
	if err != nil {
		return nil, err
	}
	return &socketServer{Process: p, limits: Socket{
		Patience: cmp.Or(s.Patience, 10*time.Second),
		Quiet:    cmp.Or(s.Quiet, 30*time.Millisecond),
		Settling: cmp.Or(s.Settling, 15*time.Millisecond),
	}}, nil
}

// Token is what a client of that name authenticates with.
func Token(client string) string { return "token-of-" + client }

type socketServer struct {
	*Process
	limits  Socket
	touched time.Time // when a client last did something
}

// Open connects and exchanges a line for its reply: one that authenticates, or an empty one for
// UNKNOWN_COMMAND. Without that the connection could still be in the listener's queue when other
// connections, opened earlier, are served. The exchange is in no statistics.
func (s *socketServer) Open(client string) (Conn, error) {
	line, reply := "", "UNKNOWN_COMMAND\r\n"
	if client != "" {
		line, reply = "auth "+Token(client), "AUTHENTICATED\r\n"
	}
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	c := &socketConn{server: s, conn: nc, arrived: make(chan struct{}, 1), done: make(chan struct{})}
	go c.read()
	if err := c.Send([]byte(line + "\r\n")); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	var got []byte
	for len(got) < len(reply) {
		b, err := c.Receive()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("waiting for the reply to %q: %w", line, err), c.Close())
		}
		got = append(got, b...)
	}
	if string(got) != reply {
		return nil, errors.Join(fmt.Errorf("reply to %q is %q", line, got), c.Close())
	}
	return c, nil
}

// dial connects, waiting for a server that is bound to its address but does not
// listen yet. A connection made to find that out would be counted.
func (s *socketServer) dial() (net.Conn, error) {
	for deadline := time.Now().Add(s.limits.Patience); ; time.Sleep(time.Millisecond) {
		nc, err := s.connect()
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			return nc, err
		}
	}
}

func (s *socketServer) connect() (net.Conn, error) {
	if s.Process.Dial != nil {
		return s.Process.Dial()
	}
	return net.Dial(s.Network, s.Addr)
}

func (s *socketServer) Wait(d time.Duration) { time.Sleep(d) }

// Settle sleeps in short pieces. On a busy machine each of them takes longer, as the
// server does.
func (s *socketServer) Settle() {
	for range s.limits.Settling / time.Millisecond {
		time.Sleep(time.Millisecond)
	}
}

func (s *socketServer) Drain(on bool) error { return s.Process.Drain(on) }

func (s *socketServer) Stop() { s.Process.Stop() }

// A socketConn reads ahead in a goroutine of its own, which ends when the
// connection is closed by either side.
type socketConn struct {
	server *socketServer
	conn   net.Conn

	arrived chan struct{} // signals that got or ended may have changed
	done    chan struct{} // closed when read returns

	mu    sync.Mutex
	got   []byte // guarded by mu; received and not yet returned
	ended error  // guarded by mu; why nothing more will be received
}

func (c *socketConn) read() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := c.conn.Read(buf)
		// A server that closes with unread input resets the connection.
		if errors.Is(err, syscall.ECONNRESET) {
			err = io.EOF
		}
		c.mu.Lock()
		c.got = append(c.got, buf[:n]...)
		c.ended = err
		c.mu.Unlock()
		select {
		case c.arrived <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take returns what was received so far.
func (c *socketConn) take() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) == 0 {
		return nil, c.ended
	}
	b := c.got
	c.got = nil
	return b, nil
}

func (c *socketConn) Send(p []byte) error {
	_, err := c.conn.Write(p)
	c.server.touched = time.Now()
	return err
}

func (c *socketConn) Receive() ([]byte, error) {
	patience := time.NewTimer(c.server.limits.Patience)
	defer patience.Stop()
	for {
		if b, err := c.take(); len(b) > 0 || err != nil {
			return b, err
		}
		select {
		case <-c.arrived:
		case <-patience.C:
			return nil, ErrSilence
		}
	}
}

func (c *socketConn) Pending() ([]byte, error) {
	time.Sleep(time.Until(c.server.touched.Add(c.server.limits.Quiet)))
	return c.take()
}

func (c *socketConn) HalfClose() error {
	defer func() { c.server.touched = time.Now() }()
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close returns when the connection is really closed, for which a read in progress
// has to end first.
func (c *socketConn) Close() error {
	err := c.conn.Close()
	<-c.done
	c.server.touched = time.Now()
	return err
}
