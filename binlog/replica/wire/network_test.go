package wire

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// testNetwork stands between a dialling node and a real listener: its links cut, block one
// way, delay, repeat and lose. Each node has its own Dialer. All methods may be called from any goroutine.
type testNetwork struct {
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	names   map[string]string // of nodes, by address
	links   map[netLink]linkState
	lost    map[netLink]int // messages
	conns   map[*netConn]bool
	changed chan struct{} // closed when a link changes
}

// link is one direction.
type netLink struct{ from, to string }

type linkState struct {
	cut, blocked  bool
	delay, jitter time.Duration
	repeat, lose  float64
}

// netConn is a connection: what the dialler has, and what the listener has.
type netConn struct {
	from, to string
	near     net.Conn // our end of the pipe that the dialler has
	far      net.Conn
}

// newTestNetwork returns a network whose links do nothing yet. The seed decides what is
// repeated, lost and how long it is delayed.
func newTestNetwork(seed uint64) *testNetwork {
	n := &testNetwork{
		rng: rand.New(rand.NewPCG(seed, 0)), names: map[string]string{}, links: map[netLink]linkState{},
		lost: map[netLink]int{}, conns: map[*netConn]bool{}, changed: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Close ends all connections.
func (n *testNetwork) Close() {
	n.cancel()
	n.mu.Lock()
	for p := range n.conns {
		p.close()
	}
	n.mu.Unlock()
	n.all.Wait()
}

func (p *netConn) close() {
	_ = p.near.Close()
	_ = p.far.Close()
}

// Name says which node listens at an address.
func (n *testNetwork) Name(addr, node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[addr] = node
}

func (n *testNetwork) set(from, to string, change func(*linkState)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.links[netLink{from, to}]
	change(&s)
	n.links[netLink{from, to}] = s
	close(n.changed)
	n.changed = make(chan struct{})
}

// Cut resets the connections between two nodes, and refuses new ones.
func (n *testNetwork) Cut(a, b string) {
	n.set(a, b, func(s *linkState) { s.cut = true })
	n.set(b, a, func(s *linkState) { s.cut = true })
	n.Reset(a, b)
}

// Reset ends the connections between two nodes; they may connect again.
func (n *testNetwork) Reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.conns {
		if (p.from == a && p.to == b) || (p.from == b && p.to == a) {
			p.close()
		}
	}
}

// Block has nothing arrive any more that goes from one node to the other: senders find
// their buffers full, and connections that are made do not come about.
func (n *testNetwork) Block(from, to string) {
	n.set(from, to, func(s *linkState) { s.blocked = true })
}

// Delay has what goes from one node to the other take that long, and a random part of
// jitter longer; it stays in order.
func (n *testNetwork) Delay(from, to string, delay, jitter time.Duration) {
	n.set(from, to, func(s *linkState) { s.delay, s.jitter = delay, jitter })
}

// Repeat sends a message's frame twice with that probability. It works on connections
// without TLS, as Lose does.
func (n *testNetwork) Repeat(from, to string, probability float64) {
	n.set(from, to, func(s *linkState) { s.repeat = probability })
}

// Lose drops a message's frame with that probability.
func (n *testNetwork) Lose(from, to string, probability float64) {
	n.set(from, to, func(s *linkState) { s.lose = probability })
}

// Lost is how many messages were dropped because of Lose.
func (n *testNetwork) Lost(from, to string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[netLink{from, to}]
}

// Heal makes all links whole.
func (n *testNetwork) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
	close(n.changed)
	n.changed = make(chan struct{})
}

// at returns a link's state, and a channel that is closed when it may have changed.
func (n *testNetwork) at(from, to string) (linkState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[netLink{from, to}], n.changed
}

// passable waits until a link is not blocked.
func (n *testNetwork) passable(ctx context.Context, from, to string) error {
	for {
		s, changed := n.at(from, to)
		if !s.blocked {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.ctx.Done():
			return net.ErrClosed
		}
	}
}

// Dialer is what a node dials others with.
func (n *testNetwork) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		n.mu.Lock()
		to := n.names[addr]
		n.mu.Unlock()
		for _, l := range []netLink{{from, to}, {to, from}} {
			if err := n.passable(ctx, l.from, l.to); err != nil {
				return nil, err
			}
			if s, _ := n.at(l.from, l.to); s.cut {
				return nil, errors.New("the network is cut")
			}
		}
		var d net.Dialer
		far, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		given, near := net.Pipe()
		p := &netConn{from: from, to: to, near: near, far: far}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ctx.Err() != nil || n.links[netLink{from, to}].cut {
			p.close()
			return nil, errors.New("the network is cut")
		}
		n.conns[p] = true
		var both sync.WaitGroup
		both.Add(2)
		n.all.Go(func() { n.pump(p.far, p.near, from, to, &framer{}); both.Done() })
		n.all.Go(func() { n.pump(p.near, p.far, to, from, nil); both.Done() })
		n.all.Go(func() {
			both.Wait()
			n.mu.Lock()
			delete(n.conns, p)
			n.mu.Unlock()
		})
		return given, nil
	}
}

// parcel is bytes on their way.
type parcel struct {
	due  time.Time
	data []byte
}

// inFlight is how many parcels a link holds, as buffers of both systems do.
const inFlight = 16

// pump brings what comes from src to dst.
func (n *testNetwork) pump(dst, src net.Conn, from, to string, f *framer) {
	way := make(chan parcel, inFlight)
	broken := make(chan struct{})
	n.all.Go(func() {
		defer close(way)
		n.read(src, from, to, f, way, broken)
	})
	defer func() {
		_ = dst.Close()
		_ = src.Close()
	}()
	defer close(broken)
	for p := range way {
		select {
		case <-time.After(time.Until(p.due)):
		case <-n.ctx.Done():
			return
		}
		if n.passable(n.ctx, from, to) != nil {
			return
		}
		if _, err := dst.Write(p.data); err != nil {
			return
		}
	}
	// An end is not seen through a link that is blocked.
	_ = n.passable(n.ctx, from, to)
}

func (n *testNetwork) read(src net.Conn, from, to string, f *framer, way chan<- parcel, broken <-chan struct{}) {
	var last time.Time
	buf := make([]byte, 32<<10)
	for {
		k, err := src.Read(buf)
		for _, data := range f.split(buf[:k]) {
			s, _ := n.at(from, to)
			copies := 1
			n.mu.Lock()
			if s.lose > 0 && f.message(data) && n.rng.Float64() < s.lose {
				copies = 0
				n.lost[netLink{from, to}]++
			} else if s.repeat > 0 && f.message(data) && n.rng.Float64() < s.repeat {
				copies = 2
			}
			due := time.Now().Add(s.delay)
			if s.jitter > 0 {
				due = due.Add(time.Duration(n.rng.Int64N(int64(s.jitter))))
			}
			n.mu.Unlock()
			if due.Before(last) {
				due = last
			}
			last = due
			for range copies {
				select {
				case way <- parcel{due, data}:
				case <-broken:
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// framer cuts what a dialler sends into the hello and frames, as package wire documents
// them. What it does not know, TLS above all, stays as it comes.
type framer struct {
	started bool
	foreign bool
	rest    []byte
}

func (f *framer) split(b []byte) (parts [][]byte) {
	if len(b) == 0 {
		return nil
	}
	if f == nil || f.foreign {
		return [][]byte{append([]byte(nil), b...)}
	}
	f.rest = append(f.rest, b...)
	for {
		var size int
		if !f.started {
			if n := min(len(f.rest), len(magic)); string(f.rest[:n]) != magic[:n] {
				f.foreign = true
				return append(parts, f.rest)
			}
			if len(f.rest) < helloHead {
				return parts
			}
			size = helloHead + int(f.rest[11]) + int(le.Uint16(f.rest[12:])) + frameTail
		} else {
			if len(f.rest) < frameHead+frameTail {
				return parts
			}
			size = frameHead + frameTail + int(le.Uint32(f.rest))
		}
		if len(f.rest) < size {
			return parts
		}
		parts = append(parts, append([]byte(nil), f.rest[:size]...))
		f.rest = f.rest[size:]
		f.started = true
	}
}

// message reports whether a part that split has returned is a frame with a raft message.
func (f *framer) message(part []byte) bool {
	return f != nil && !f.foreign && len(part) >= frameHead+frameTail && string(part[:len(magic)]) != magic && kind(part[4]) == kindMessage
}
