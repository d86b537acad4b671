package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// network connects hosts, as TCP does: what is sent over a connection comes in its order, late or not at all.
type network struct {
	world *world

	mu        sync.Mutex // guards what follows, and all connections
	down      map[string]bool
	listeners map[string]*listener // by address
	links     map[link]*condition
	made      map[link]int // connections so far
	conns     []*conn      // that are not closed at both ends, by their beginnings
	sockets   []*socket    // by descriptor
	unsent    []*conn      // with something to send
}

// link is one direction between two hosts.
type link struct{ from, to string }

// condition is that of a link.
type condition struct {
	cut   bool
	delay time.Duration // at most, beside a fraction of a millisecond
	rate  int           // bytes a second that a connection brings; 0 is any number
}

func newNetwork(w *world) *network {
	table.network = &network{
		world: w, down: map[string]bool{}, listeners: map[string]*listener{},
		links: map[link]*condition{}, made: map[link]int{},
	}
	return table.network
}

// at returns the condition of a link. With mu held.
func (n *network) at(l link) *condition {
	x := n.links[l]
	if x == nil {
		x = &condition{}
		n.links[l] = x
	}
	return x
}

// set changes a link. What waited for the end of a cut goes on.
func (n *network) set(l link, change func(*condition)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.at(l)
	change(x)
	if x.cut {
		return
	}
	for _, c := range n.conns {
		if c.link == l {
			for ; c.held > 0; c.held-- {
				n.world.after(n.latency(l, c.rng), c.arrive)
			}
		}
	}
}

// latency is how long something takes on a link. With mu held.
func (n *network) latency(l link, rng *rand.Rand) time.Duration {
	d := 100*time.Microsecond + upTo(rng, 300*time.Microsecond)
	if x := n.at(l); x.delay > 0 {
		d += upTo(rng, x.delay)
	}
	return d
}

// off ends all connections of a host, and its listeners. If it is down, nobody is told, until it listens again.
func (n *network) off(host string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = down
	for addr, l := range n.listeners {
		if l.host == host {
			delete(n.listeners, addr)
			close(l.arrivals)
		}
	}
	for _, c := range slices.Clone(n.conns) {
		if c.link.from == host && !c.closed {
			c.abort(!down)
		}
	}
}

// pick has something happen to one of the connections' ends that are wanted, if there are any.
func (n *network) pick(rng *rand.Rand, wanted func(*conn) bool, happen func(*conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*conn
	for _, c := range n.conns {
		if !c.closed && wanted(c) {
			all = append(all, c)
		}
	}
	if len(all) > 0 {
		happen(all[rng.IntN(len(all))])
	}
}

// sever ends one of the connections that are wanted, in the middle of what it brings.
func (n *network) sever(rng *rand.Rand, wanted func(link) bool) {
	n.pick(rng, func(c *conn) bool { return wanted(c.link) }, func(c *conn) {
		if len(c.away) > 0 {
			b := c.away[0].data
			c.peer.take(segment{data: b[:rng.IntN(len(b)+1)]})
		}
		c.fail(syscall.ECONNRESET)
		c.peer.fail(syscall.ECONNRESET)
	})
}

// address is that of a socket that has no options.
func address(name string) net.Addr { return &net.UnixAddr{Net: "unix", Name: name} }

// listener takes connections to an address.
type listener struct {
	net      *network
	host     string
	addr     string
	arrivals chan *conn // closed with the listener
	socket   *socket    // of a reactor that accepts; nil without one
	server   *process   // that of the reactor
}

// backlog is how many connections wait to be accepted.
const backlog = 1024

// listen opens an address, which nobody else has.
func (n *network) listen(host, addr string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = false
	l := &listener{net: n, host: host, addr: addr, arrivals: make(chan *conn, backlog)}
	n.listeners[addr] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	if c, ok := <-l.arrivals; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

func (l *listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if o := l.net.listeners[l.addr]; o != nil {
		delete(l.net.listeners, l.addr)
		close(o.arrivals)
	}
	return nil
}

func wake[T any](c chan T) {
	select {
	case c <- *new(T):
	default:
	}
}

// connectTimeout is how long a host tries to connect to one that does not answer.
const connectTimeout = 900 * time.Millisecond

// dial connects a host to an address, which is that of a host called to.
func (n *network) dial(ctx context.Context, from, to, addr string) (net.Conn, error) {
	there, back := link{from, to}, link{to, from}
	n.mu.Lock()
	n.made[there]++
	number := n.made[there]
	rng := n.world.dice(from, "to", to, number)
	rtt := n.latency(there, rng) + n.latency(back, rng)
	n.mu.Unlock()
	if err := n.pause(ctx, rtt); err != nil {
		return nil, err
	}
	n.mu.Lock()
	unreachable := n.down[from] || n.down[to] || n.at(there).cut || n.at(back).cut
	n.mu.Unlock()
	if unreachable {
		if err := n.pause(ctx, connectTimeout); err != nil {
			return nil, err
		}
		return nil, syscall.ETIMEDOUT
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[addr]
	if l == nil || len(l.arrivals) == backlog {
		return nil, syscall.ECONNREFUSED
	}
	caller := fmt.Sprintf("%s.%d", from, number)
	c := &conn{net: n, name: caller + ">" + to, link: there, rng: rng}
	c.peer = &conn{net: n, name: to + ">" + caller, link: back, rng: n.world.dice(to, "to", caller), peer: c}
	for _, c := range []*conn{c, c.peer} {
		c.readable.token, c.writable.token = make(chan struct{}, 1), make(chan struct{}, 1)
		n.conns = append(n.conns, c)
	}
	l.arrivals <- c.peer
	if l.socket != nil {
		l.socket.look()
	}
	return c, nil
}

func (n *network) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(n.world.instant(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// window is how many bytes may be on their way before a Write waits.
const window = 256 << 10

// conn is one end of a connection. The network's mu guards its fields.
type conn struct {
	net  *network
	name string
	link link // along which it sends
	peer *conn
	rng  *rand.Rand

	away  []segment // that the peer has not got, oldest first
	bytes int       // in them
	held  int       // how many should have come, but the link is cut
	free  time.Time // when a slow link has brought all of them

	input  []byte // that nobody has read
	end    error  // that follows it; nil while more may come
	closed bool   // here

	readable, writable side

	sockets []*socket // by which a reactor has it
	trunk   bool      // a reactor has it that has not accepted it
	own     int       // the descriptor of a trunk until Close; 0 for none
	unsent  []byte    // that was written to them
	resets  bool      // the peer is to be told of a reset
	server  *process  // whose client it is; nil for none
	role    int64     // server.changes, when it began
	began   time.Time
	judged  bool // the reactor has ended it
}

// side is what Read, or Write, waits for.
type side struct {
	token    chan struct{} // has one when it should look again
	deadline time.Time     // zero is none
	timer    *time.Timer   // of one that has waited until a deadline; the waiting goroutine's
}

// segment is what comes at once: bytes, or the end.
type segment struct {
	data []byte
	end  error
}

// mostAtOnce is how many bytes a slow link brings at once.
const mostAtOnce = 4 << 10

// send has a segment arrive later, or parts of it, one after the other, if the link is slow.
func (c *conn) send(s segment) {
	x := c.net.at(c.link)
	for x.rate > 0 && len(s.data) > mostAtOnce {
		n := 1 + c.rng.IntN(mostAtOnce)
		c.bring(x, segment{data: s.data[:n]})
		s.data = s.data[n:]
	}
	c.bring(x, s)
}

func (c *conn) bring(x *condition, s segment) {
	d := c.net.latency(c.link, c.rng)
	if x.rate > 0 {
		now := time.Now()
		if c.free.Before(now) {
			c.free = now
		}
		c.free = c.free.Add(time.Duration(len(s.data)) * time.Second / time.Duration(x.rate))
		d += c.free.Sub(now)
	}
	c.away = append(c.away, s)
	c.bytes += len(s.data)
	c.net.world.after(d, c.arrive)
}

// arrive brings the oldest segment to the other end.
func (c *conn) arrive() {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(c.away) == 0 {
		return // it was lost
	}
	if n.at(c.link).cut {
		c.held++
		return
	}
	s := c.away[0]
	c.away = c.away[1:]
	c.bytes -= len(s.data)
	wake(c.writable.token)
	c.look()
	switch {
	case !c.peer.closed:
		n.world.note(c.name, "", s.data)
		c.peer.take(s)
	case !n.down[c.link.to] && s.end == nil:
		c.fail(syscall.ECONNRESET)
	}
}

// take gets a segment.
func (c *conn) take(s segment) {
	if c.end != nil {
		return
	}
	if len(c.input) == 0 {
		c.input = s.data
	} else {
		c.input = append(c.input, s.data...)
	}
	c.end = s.end
	c.wake()
}

func (c *conn) wake() {
	wake(c.readable.token)
	c.look()
}

// look has the pollers look at it.
func (c *conn) look() {
	for _, s := range c.sockets {
		s.look()
	}
}

// fail ends the connection at this end, behind what has come.
func (c *conn) fail(err error) {
	c.away, c.bytes, c.held, c.unsent = nil, 0, 0, nil
	if c.end == nil {
		c.end = err
	}
	wake(c.writable.token)
	c.wake()
}

// abort closes this end, and tells the other one by a reset, or not.
func (c *conn) abort(tell bool) {
	c.away, c.bytes, c.held, c.unsent = nil, 0, 0, nil
	c.leave(syscall.ECONNRESET, tell)
}

// CloseWrite tells the other end that no more comes.
func (c *conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if !c.closed && !c.broken() {
		c.send(segment{end: io.EOF})
	}
	return nil
}

// broken tells whether nothing that is sent will come.
func (c *conn) broken() bool { return c.end != nil && !errors.Is(c.end, io.EOF) }

func (c *conn) Read(b []byte) (int, error) {
	return c.when(&c.readable, func() (n int, err error, done bool) {
		if len(c.input) > 0 {
			n = copy(b, c.input)
			c.input = c.input[n:]
			return n, nil, true
		}
		return 0, c.end, c.end != nil
	})
}

func (c *conn) Write(b []byte) (int, error) {
	return c.when(&c.writable, func() (n int, err error, done bool) {
		if c.broken() {
			return 0, syscall.EPIPE, true
		}
		if c.bytes >= window {
			return 0, nil, false
		}
		c.send(segment{data: slices.Clone(b)})
		return len(b), nil, true
	})
}

// when tries something until it is done, the connection is closed, or a deadline has passed.
func (c *conn) when(s *side, try func() (n int, err error, done bool)) (int, error) {
	for {
		c.net.mu.Lock()
		n, err, done := 0, net.ErrClosed, true
		if !c.closed {
			n, err, done = try()
		}
		by := s.deadline
		c.net.mu.Unlock()
		if done {
			return n, err
		}
		if err := s.await(c.net.world, by); err != nil {
			return 0, err
		}
	}
}

// await waits for a token, until a deadline unless that is zero.
func (s *side) await(w *world, by time.Time) error {
	if by.IsZero() {
		<-s.token
		return nil
	}
	d := w.instant(time.Until(by))
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	defer s.timer.Stop()
	select {
	case <-s.token:
		return nil
	case <-s.timer.C:
		return os.ErrDeadlineExceeded
	}
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed || c.trunk && c.own == 0 {
		return net.ErrClosed
	}
	if c.trunk {
		table.close(c.own)
		c.own = 0
	} else {
		c.leave(io.EOF, !c.broken())
	}
	return nil
}

// leave closes this end, and tells the other one, or not.
func (c *conn) leave(end error, tell bool) {
	c.closed, c.input = true, nil
	if tell {
		c.send(segment{end: end})
	}
	if c.peer.closed {
		c.net.conns = slices.DeleteFunc(c.net.conns, func(o *conn) bool { return o == c || o == c.peer })
	}
	c.wake()
	wake(c.writable.token)
}

func (c *conn) LocalAddr() net.Addr  { return address(c.link.from) }
func (c *conn) RemoteAddr() net.Addr { return address(c.link.to) }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.limit(&c.readable, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.limit(&c.writable, t) }

func (c *conn) limit(s *side, by time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if s.deadline = by; !by.IsZero() && !by.After(time.Now()) {
		wake(s.token)
	}
	return nil
}
