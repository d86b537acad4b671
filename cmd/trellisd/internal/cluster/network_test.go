package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network stands between members that dial and those that listen, with real sockets at both ends. Its
// links can be cut, or be silent in one direction. Members are known by their addresses.
type network struct {
	mu      sync.Mutex
	targets map[string]string        // where a member listens now, by its address
	cuts    map[link]bool            // nothing passes, and connections end
	silent  map[link]bool            // nothing passes that way, and no end is seen
	hangs   map[string]chan struct{} // dials of these members wait for that, whatever their contexts say
	pairs   map[*[2]net.Conn]link    // connections, by who has dialled whom
	changed chan struct{}            // closed when a link changes
	ended   bool
	direct  bool // members dial each other: no link is ever cut
}

// link is one direction.
type link struct{ from, to string }

func newNetwork(direct bool) *network {
	return &network{direct: direct, targets: map[string]string{}, cuts: map[link]bool{}, silent: map[link]bool{}, hangs: map[string]chan struct{}{}, pairs: map[*[2]net.Conn]link{}, changed: make(chan struct{})}
}

func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
	for p, l := range n.pairs {
		if n.ended || n.cuts[l] {
			_, _ = p[0].Close(), p[1].Close()
		}
	}
}

// listens notes where a member listens.
func (n *network) listens(member string, at net.Addr) {
	n.change(func() { n.targets[member] = at.String() })
}

// left notes that a member does not run.
func (n *network) left(member string) { n.change(func() { delete(n.targets, member) }) }

// cut ends all connections between two members, and refuses new ones.
func (n *network) cut(a, b string) {
	n.change(func() { n.cuts[link{a, b}], n.cuts[link{b, a}] = true, true })
}

// silence has nothing arrive any more that goes from one member to the other.
func (n *network) silence(from, to string) { n.change(func() { n.silent[link{from, to}] = true }) }

// hang has all dials of a member wait until they are released.
func (n *network) hang(from string) (release func()) {
	gate := make(chan struct{})
	n.change(func() { n.hangs[from] = gate })
	return sync.OnceFunc(func() {
		n.change(func() { delete(n.hangs, from) })
		close(gate)
	})
}

// heal makes all links whole.
func (n *network) heal() {
	n.change(func() {
		clear(n.cuts)
		clear(n.silent)
	})
}

// close ends all connections.
func (n *network) close() { n.change(func() { n.ended = true }) }

// passable waits until something passes from one member to the other.
func (n *network) passable(ctx context.Context, l link) error {
	for {
		n.mu.Lock()
		ended, silent, changed := n.ended, n.silent[l], n.changed
		n.mu.Unlock()
		if ended {
			return net.ErrClosed
		}
		if !silent {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dialer is what a member dials others with.
func (n *network) dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		gate := n.hangs[from]
		n.mu.Unlock()
		if gate != nil {
			<-gate
		}
		for _, l := range []link{{from, to}, {to, from}} {
			if err := n.passable(ctx, l); err != nil {
				return nil, err
			}
		}
		n.mu.Lock()
		target, ok := n.targets[to]
		n.mu.Unlock()
		if !ok {
			return nil, errors.New("nobody is there")
		}
		var d net.Dialer
		far, err := d.DialContext(ctx, "tcp", target)
		if err != nil || n.direct {
			return far, err
		}
		given, near, err := socketPair(ctx)
		if err != nil {
			_ = far.Close()
			return nil, err
		}
		pair, l := &[2]net.Conn{near, far}, link{from, to}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ended || n.cuts[l] {
			_, _, _ = near.Close(), far.Close(), given.Close()
			return nil, errors.New("the network is cut")
		}
		n.pairs[pair] = l
		var both sync.WaitGroup
		both.Go(func() { n.pump(far, near, l) })
		both.Go(func() { n.pump(near, far, link{to, from}) })
		go func() {
			both.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.pairs, pair)
		}()
		return given, nil
	}
}

// pump brings what comes from src to dst.
func (n *network) pump(dst, src net.Conn, l link) {
	defer func() { _, _ = src.Close(), dst.Close() }()
	buf := make([]byte, 32<<10)
	for {
		k, err := src.Read(buf)
		if n.passable(context.Background(), l) != nil {
			return
		}
		if _, werr := dst.Write(buf[:k]); err != nil || werr != nil {
			return
		}
	}
}

// socketPair is a TCP connection.
func socketPair(ctx context.Context) (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var d net.Dialer
	if a, err = d.DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	for err == nil {
		if b, err = l.Accept(); err == nil && b.RemoteAddr().String() == a.LocalAddr().String() {
			return a, b, nil
		} else if err == nil {
			_ = b.Close() // somebody who looks for another one
		}
	}
	_ = a.Close()
	return nil, nil, err
}
