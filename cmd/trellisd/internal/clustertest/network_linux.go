package clustertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Network stands between the nodes of a cluster on one machine: each node has an address
// here, which the others know, and what comes in there is passed on to the address where
// the node listens. The kernel's tables tell whose connection it is, so that one node can be
// cut off from another without root, without knowing the nodes' protocol, and with their
// connections encrypted. All methods may be called from any goroutine.
type Network struct {
	mu    sync.Mutex
	cond  sync.Cond            // on mu: a rule has changed, or a link was closed
	nodes map[string]*endpoint // guarded by mu; by name
	rules map[direction]rule   // guarded by mu
	links map[*link]bool       // guarded by mu; the open ones
	runs  int                  // guarded by mu; calls of Runs
	ended bool                 // guarded by mu

	work sync.WaitGroup
}

// endpoint is a node as the others know it. The Network's mu guards target and pid.
type endpoint struct {
	listener net.Listener
	target   string // where the node listens; "" if it does not run
	pid      int    // of the node's process
}

// direction is the way of bytes from one node to another, whoever of them has dialled.
type direction struct{ from, to string }

type rule struct {
	cut     bool          // connections are reset, and new ones too
	blocked bool          // nothing arrives; it waits in the sender's buffers
	delay   time.Duration // of each piece that is passed on
	lost    float64       // share of the pieces that are late, as if they had been sent again
}

// link is a connection of one node to another, and its way on.
type link struct {
	from, to string
	in, out  net.Conn
	closed   bool // guarded by the Network's mu
}

// NewNetwork makes a network without nodes.
func NewNetwork() *Network {
	n := &Network{nodes: map[string]*endpoint{}, rules: map[direction]rule{}, links: map[*link]bool{}}
	n.cond.L = &n.mu
	return n
}

// Add makes a node known and returns its address for the others. It does not run yet.
func (n *Network) Add(name string) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.nodes[name] = &endpoint{listener: l}
	n.mu.Unlock()
	n.work.Go(func() { n.accept(name, l) })
	return l.Addr().String(), nil
}

// Runs tells the Network where a node listens for its peers, and in which process. It is to
// be called after each start. Connections of unknown origin are reset, for the process may
// have dialled before: it will again.
func (n *Network) Runs(name, target string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.nodes[name]
	e.target, e.pid = target, pid
	n.runs++
	for l := range n.links {
		if l.from == "" {
			n.close(l)
		}
	}
}

// Cut ends all connections between two nodes with a reset, and new ones too.
func (n *Network) Cut(a, b string) {
	n.set(direction{a, b}, func(r *rule) { r.cut = true })
	n.set(direction{b, a}, func(r *rule) { r.cut = true })
}

// Block keeps what a node sends from another one, which goes on to be heard itself.
// Connections stay, and so does what was sent: it arrives after Heal.
func (n *Network) Block(from, to string) {
	n.set(direction{from, to}, func(r *rule) { r.blocked = true })
}

// Delay holds back each piece that a node sends to another one for so long.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.set(direction{from, to}, func(r *rule) { r.delay = d })
}

// Lose has a share of the pieces that go one way arrive resendTime later, and what follows
// them too, as if TCP had to send them again.
func (n *Network) Lose(from, to string, share float64) {
	n.set(direction{from, to}, func(r *rule) { r.lost = share })
}

// resendTime is the least that Linux waits for an acknowledgement.
const resendTime = 200 * time.Millisecond

// Isolate cuts a node off from all others.
func (n *Network) Isolate(name string) {
	for other := range n.pids() {
		if other != name {
			n.Cut(name, other)
		}
	}
}

// Reset resets all connections that there are. New ones get through.
func (n *Network) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		n.close(l)
	}
}

// Heal ends all cuts, blocks, delays and losses.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.rules)
	n.cond.Broadcast()
}

// Close ends all connections and addresses.
func (n *Network) Close() {
	n.mu.Lock()
	n.ended = true
	for _, e := range n.nodes {
		_ = e.listener.Close()
	}
	n.mu.Unlock()
	n.Reset()
	n.work.Wait()
}

// pids are the nodes' processes, by name.
func (n *Network) pids() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	pids := map[string]int{}
	for name, e := range n.nodes {
		pids[name] = e.pid
	}
	return pids
}

func (n *Network) set(d direction, change func(*rule)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.rules[d]
	change(&r)
	n.rules[d] = r
	for l := range n.links {
		if r.cut && (d == direction{l.from, l.to} || d == direction{l.to, l.from}) {
			n.close(l)
		}
	}
	n.cond.Broadcast()
}

// close resets both sides of a link. With mu held.
func (n *Network) close(l *link) {
	if l.closed {
		return
	}
	l.closed = true
	delete(n.links, l)
	reset(l.in)
	reset(l.out)
	n.cond.Broadcast()
}

// reset closes a connection so that the other side gets an error, as from a node that has
// died.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0) // it may be closed already
	_ = c.Close()
}

func (n *Network) accept(to string, l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return // the network was closed
		}
		n.work.Go(func() {
			if err := n.connect(in, to); err != nil {
				reset(in)
			}
		})
	}
}

// connect passes a connection on to the node that it is for.
func (n *Network) connect(in net.Conn, to string) error {
	n.mu.Lock()
	runs := n.runs
	n.mu.Unlock()
	from, err := n.source(in)
	if err != nil {
		return err
	}
	n.mu.Lock()
	target, cut := n.nodes[to].target, n.isCut(from, to)
	n.mu.Unlock()
	if cut || target == "" {
		return errors.New("nobody is there")
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return err
	}
	l := &link{from: from, to: to, in: in, out: out}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || n.isCut(from, to) || from == "" && runs != n.runs {
		reset(out)
		return errors.New("nobody is there any more")
	}
	n.links[l] = true
	n.work.Go(func() { n.pump(l, in, out, direction{from, to}) })
	n.work.Go(func() { n.pump(l, out, in, direction{to, from}) })
	return nil
}

// isCut reports whether two nodes are cut off from each other. With mu held.
func (n *Network) isCut(a, b string) bool {
	return n.rules[direction{a, b}].cut || n.rules[direction{b, a}].cut
}

// pump passes on what one side of a link sends.
func (n *Network) pump(l *link, from, to net.Conn, d direction) {
	buf := make([]byte, 64<<10)
	for {
		size, err := from.Read(buf)
		delay, ok := n.await(l, d)
		if !ok {
			return
		}
		time.Sleep(delay)
		if size > 0 {
			if _, e := to.Write(buf[:size]); e != nil {
				err = e
			}
		}
		if err != nil {
			n.mu.Lock()
			n.close(l)
			n.mu.Unlock()
			return
		}
	}
}

// await waits until bytes may pass, and reports whether the link is still there.
func (n *Network) await(l *link, d direction) (delay time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.rules[d].blocked && !l.closed {
		n.cond.Wait()
	}
	r := n.rules[d]
	if rand.Float64() < r.lost {
		r.delay += resendTime
	}
	return r.delay, !l.closed
}

// source is the name of the node that has dialled; "" if it was none of them, but a test or
// the tool.
func (n *Network) source(in net.Conn) (string, error) {
	inode, err := inodeOf(in.RemoteAddr().(*net.TCPAddr).AddrPort(), in.LocalAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return "", fmt.Errorf("whose connection it is: %w", err)
	}
	for name, pid := range n.pids() {
		if pid != 0 && hasSocket(pid, inode) {
			return name, nil
		}
	}
	return "", nil
}

// hasSocket reports whether a process has a socket open.
func hasSocket(pid int, inode uint32) bool {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	want := fmt.Sprintf("socket:[%d]", inode)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + fd.Name()); err == nil && to == want {
			return true
		}
	}
	return false
}
