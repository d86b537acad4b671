package faults_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor"
)

// sockets are those with which reactors serve connections of a network. They are reactor.Sockets: a process has one
// table of descriptors, and one history at a time.
type sockets struct{ *network }

var table sockets

func init() {
	reactor.Simulate(&table)
	engine.KeepMemory()
}

// socket is a descriptor. The network's mu guards its fields.
type socket struct {
	fd       int
	conn     *conn     // nil for a listener's
	listener *listener // nil for a connection's
	poller   *poller   // nil while none watches it
	number   int32     // under which that reports it

	input, end, output bool // what is reported
	queued             bool // in poller.ready
}

// open makes a descriptor of a connection, or of a listener. With mu held.
func (n *network) open(c *conn, l *listener) *socket {
	s := &socket{fd: reactor.FirstSocket + len(n.sockets), conn: c, listener: l}
	n.sockets = append(n.sockets, s)
	if c != nil {
		c.sockets = append(c.sockets, s)
	}
	return s
}

// readable reports whether somebody who reads, or accepts, would find something.
func (s *socket) readable() bool {
	if s.conn == nil {
		return len(s.listener.arrivals) > 0
	}
	return len(s.conn.input) > 0 || s.ended()
}

func (s *socket) ended() bool { return s.conn != nil && (s.conn.end != nil || s.conn.closed) }

// writable reports whether somebody who writes would not wait.
func (s *socket) writable() bool { return s.conn.room() > 0 || s.conn.closed || s.conn.broken() }

// look has the poller look at the socket.
func (s *socket) look() {
	if p := s.poller; p != nil {
		if !s.queued {
			s.queued = true
			p.ready = append(p.ready, s)
		}
		wake(p.token)
	}
}

// room is how many bytes a Write takes. With the network's mu held.
func (c *conn) room() int { return window - c.bytes - len(c.unsent) }

// of is what has a descriptor. With mu held.
func (t *sockets) of(fd int) *socket { return t.sockets[fd-reactor.FirstSocket] }

// Accept implements reactor.Sockets.
func (t *sockets) Accept(fd int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(fd).listener
	select {
	case c, ok := <-l.arrivals:
		if ok {
			c.server, c.role, c.began = l.server, l.server.changes.Load(), time.Now()
			return t.open(c, nil).fd, nil
		}
	default:
	}
	return -1, unix.EAGAIN
}

// Read implements reactor.Sockets.
func (t *sockets) Read(fd int, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(fd).conn
	switch {
	case c.closed:
		return 0, unix.EBADF
	case len(c.input) > 0:
		n := copy(p, c.input)
		c.input = c.input[n:]
		return n, nil
	case c.end == nil:
		return 0, unix.EAGAIN
	case c.end == io.EOF:
		return 0, nil
	}
	return 0, unix.ECONNRESET
}

// Unread implements reactor.Sockets.
func (t *sockets) Unread(fd int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(fd).readable()
}

// Write implements reactor.Sockets. What is written is sent when a loop sleeps.
func (t *sockets) Write(fd int, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(fd).conn
	if c.closed || c.broken() {
		return 0, unix.EPIPE
	}
	n := min(len(p), c.room())
	if n <= 0 {
		return 0, unix.EAGAIN
	}
	if len(c.unsent) == 0 {
		t.unsent = append(t.unsent, c)
	}
	c.unsent = append(c.unsent, p[:n]...)
	return n, nil
}

// flush sends what was written to sockets.
func (n *network) flush() {
	for _, c := range n.unsent {
		c.flush()
	}
	clear(n.unsent)
	n.unsent = n.unsent[:0]
}

func (c *conn) flush() {
	const most = 64 << 10 // in a segment
	for b := range slices.Chunk(c.unsent, most) {
		c.send(segment{data: b})
	}
	c.unsent = nil
}

// EndOutput implements reactor.Sockets.
func (t *sockets) EndOutput(fd int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.of(fd).conn; !c.closed && !c.broken() {
		c.judge()
		c.flush()
		c.send(segment{end: io.EOF})
	}
	return nil
}

// ResetOnClose implements reactor.Sockets.
func (t *sockets) ResetOnClose(fd int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(fd).conn.resets = true
}

// Duplicate implements reactor.Sockets.
func (t *sockets) Duplicate(fd int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open(t.of(fd).conn, nil).fd, nil
}

// Close implements reactor.Sockets.
func (t *sockets) Close(fd int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(fd)
}

func (t *sockets) close(fd int) {
	s := t.of(fd)
	c := s.conn
	s.poller = nil
	c.sockets = slices.DeleteFunc(c.sockets, func(o *socket) bool { return o == s })
	if len(c.sockets) > 0 || c.closed {
		return
	}
	c.judge()
	end := io.EOF
	if c.resets || len(c.input) > 0 {
		end = syscall.ECONNRESET
	}
	if !c.resets {
		c.flush()
	}
	c.leave(end, !c.broken())
}

// judge looks at why the reactor ends a connection: clients of a member that lives and has not led get an answer to
// each command, if all that happens is that leaders change.
func (c *conn) judge() {
	p := c.server
	if p == nil || c.judged {
		return
	}
	c.judged = true
	lives := !p.killed.Load() && c.role == p.changes.Load() && c.role%2 == 0
	if g := p.machine.cluster; g.plan.calm && c.end == nil && lives {
		g.wrong("%s has ended the connection %s of a client", p.machine.name, c.name)
	}
}

// oldest is for how long the client of a process is connected that is connected for longest, and has not gone.
func (n *network) oldest(p *process) (age time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.server == p && !c.judged && !c.closed && c.end == nil {
			age = max(age, time.Since(c.began))
		}
	}
	return age
}

// poller is what a loop polls. The network's mu guards what is not said to be otherwise.
type poller struct {
	net   *network
	token chan struct{} // has one when the loop should look again; does not change
	woken atomic.Bool
	ready []*socket // of which there may be something to report
}

func (n *network) newPoller() reactor.Poller { return &poller{net: n, token: make(chan struct{}, 1)} }

// Watch implements reactor.Poller.
func (p *poller) Watch(fd int, number int32, input, end bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	s := table.of(fd)
	s.number, s.input, s.end, s.output = number, input, end, s.output && (input || end)
	s.poller = p
	s.look()
}

// AwaitOutput implements reactor.Poller.
func (p *poller) AwaitOutput(fd int) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	s := table.of(fd)
	s.poller, s.output = p, true
	s.look()
}

// Poll implements reactor.Poller.
func (p *poller) Poll(reports []reactor.Report) (n int) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	most := min(len(p.ready), len(reports)/2)
	again := slices.Clone(p.ready[most:])
	for _, s := range p.ready[:most] {
		input, end := s.input && s.readable(), (s.input || s.end) && s.ended()
		if s.queued = s.poller == p && (input || end); s.queued {
			reports[n] = reactor.Report{FD: s.fd, Number: s.number, Input: input, End: end}
			again = append(again, s)
			n++
		}
		if s.poller == p && s.output && s.writable() {
			reports[n] = reactor.Report{FD: s.fd, Output: true}
			s.output = false
			n++
		}
	}
	p.ready = again
	return n
}

// Sleep implements reactor.Poller.
func (p *poller) Sleep() {
	for {
		p.net.mu.Lock()
		p.net.flush()
		p.ready = slices.DeleteFunc(p.ready, func(s *socket) bool {
			x := s.input && s.readable() || s.end && s.ended() || s.output && s.writable()
			s.queued = s.poller == p && x
			return !s.queued
		})
		found := len(p.ready) > 0
		p.net.mu.Unlock()
		if p.woken.Swap(false) || found {
			return
		}
		<-p.token
	}
}

// Wake implements reactor.Poller.
func (p *poller) Wake() {
	p.woken.Store(true)
	wake(p.token)
}

// port is where clients connect. It is its own syscall.RawConn.
type port struct {
	*listener
	descriptor
	closed atomic.Bool
}

func (p *port) Control(f func(fd uintptr)) error {
	if p.closed.Load() {
		return net.ErrClosed
	}
	return p.descriptor.Control(f)
}

// SyscallConn implements syscall.Conn.
func (p *port) SyscallConn() (syscall.RawConn, error) { return p, nil }

func (p *port) Close() error {
	p.closed.Store(true)
	return p.listener.Close()
}

// listen opens the port.
func (p *process) listen() (plain, tls []net.Listener, err error) {
	n := p.machine.cluster.net
	l := n.listen(p.machine.name, p.machine.addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	l.server, l.socket = p, n.open(nil, l)
	return []net.Listener{&port{listener: l, descriptor: descriptor(l.socket.fd)}}, nil, nil
}

// descriptor is that of a socket.
type descriptor int

var errRaw = errors.New("a descriptor is neither read nor written here")

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }
func (d descriptor) Read(func(uintptr) bool) error    { return errRaw }
func (d descriptor) Write(func(uintptr) bool) error   { return errRaw }

// SyscallConn gives the connection a descriptor, with which it goes on when Close has been called.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	c.trunk, c.own = true, c.net.open(c, nil).fd
	return descriptor(c.own), nil
}
