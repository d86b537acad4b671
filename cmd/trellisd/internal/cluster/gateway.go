package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/engine"
	"trellis/reactor"
)

const (
	// dialPause is between two attempts of a loop to begin a trunk, unless another leader is known before.
	dialPause = 20 * time.Millisecond
	// trunkless is how long a loop may lack one before the log says so. A change of leader takes less.
	trunkless = 3 * time.Second
	// trunkVersion is the version of what trunks carry.
	trunkVersion = 3
	// resumesSince is the first version in which sessions go on at another leader.
	resumesSince = 2
)

// reign is the time in which a member leads in one term, for one that does not.
type reign struct {
	leader member.ID
	term   uint64
	ended  context.Context
	end    context.CancelCauseFunc
}

var (
	errNoLeader    = errors.New("no leader is known")
	errOtherLeader = errors.New("another member leads by now")
)

// reignNow is whose leadership this member knows of; nil if it leads, or knows of nobody who does. Trunks
// of leaderships before end when there is another one, and not while nobody leads: what their leaders
// have committed still counts.
func (m *Member) reignNow() *reign {
	st := m.node.Load().Status()
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.reign
	if st.Leader == 0 {
		return nil
	}
	if now != nil && (now.leader != st.Leader || now.term != st.Term) {
		now.end(errOtherLeader)
		now, m.reign = nil, nil
	}
	if now == nil && !st.Leads {
		now = &reign{leader: st.Leader, term: st.Term}
		now.ended, now.end = context.WithCancelCause(context.Background())
		m.reign = now
	}
	return now
}

// forward has the member forward clients while another one leads, once all members know how.
func (m *Member) forward() {
	if m.reignNow() != nil && m.node.Load().Status().Version >= replica.VersionOfTrunks {
		m.cfg.Queue.forward()
	}
	if c := m.cfg.Queue.forwarded(); c != nil && m.cfg.Queue.resumes() {
		c.port()
	}
}

// gateway is what a server says of itself to leaders while it forwards clients. Each server has numbers of its own
// for its loops, so that no session's id comes again.
type gateway struct {
	member *Member
	nonce  uint64
	log    *slog.Logger

	asking sync.Mutex // held while a leader is asked for numbers

	mu      sync.Mutex
	numbers []uint32    // of each loop; 0 for one that has none
	refused *reign      // whose leader has refused one since
	dials   []uint64    // of each loop
	lacking []time.Time // since when each loop lacks a trunk; zero if it has one, or has told so
}

func (m *Member) newGateway(loops int) *gateway {
	return &gateway{
		member: m, nonce: uint64(member.NewID()), log: m.cfg.Log,
		numbers: make([]uint32, loops), dials: make([]uint64, loops), lacking: make([]time.Time, loops),
	}
}

// dial returns when a loop has a trunk, or ctx is done: see [reactor.Server.Forward].
func (g *gateway) dial(ctx context.Context, loop int) (reactor.TrunkConn, error) {
	g.mu.Lock()
	g.lacking[loop] = time.Now()
	g.mu.Unlock()
	for ctx.Err() == nil {
		other := g.member.node.Load().OtherLeader()
		c, err := g.try(ctx, loop)
		if err == nil {
			return c, nil
		}
		g.tell(loop, err)
		select {
		case <-ctx.Done():
		case <-other:
		case <-time.After(about(dialPause)):
		}
	}
	return reactor.TrunkConn{}, context.Cause(ctx)
}

// tell logs why a loop has lacked a trunk for long, once.
func (g *gateway) tell(loop int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if since := g.lacking[loop]; !since.IsZero() && time.Since(since) > trunkless {
		g.lacking[loop] = time.Time{}
		g.log.Warn("clients are not forwarded to the leader", "loop", loop, "error", err)
	}
}

// try begins a trunk for a loop.
func (g *gateway) try(ctx context.Context, loop int) (reactor.TrunkConn, error) {
	m := g.member
	now := m.reignNow()
	if now == nil {
		return reactor.TrunkConn{}, errNoLeader
	}
	dialling, done := context.WithCancelCause(ctx)
	defer done(nil)
	defer context.AfterFunc(now.ended, func() { done(context.Cause(now.ended)) })()
	h, err := g.hello(dialling, now, loop)
	if err != nil {
		return reactor.TrunkConn{}, err
	}
	k, err := m.transport.DialTrunk(dialling, now.leader, h)
	if err != nil {
		if refused := (*wire.RemoteError)(nil); errors.As(err, &refused) {
			g.askAgain(now)
		}
		return reactor.TrunkConn{}, err
	}
	until, cancel := context.WithCancelCause(k.Context)
	stop := context.AfterFunc(now.ended, func() { cancel(context.Cause(now.ended)) })
	return trunkConn(k, h.Number, until, func(err error) {
		stop()
		cancel(nil)
		k.End(err)
	}), nil
}

func trunkConn(k *wire.Trunk, number uint32, until context.Context, ended func(error)) reactor.TrunkConn {
	return reactor.TrunkConn{
		Conn: k.Socket, TLS: k.TLS, Exchange: k.Swap, Peer: k.Peer.Name, Number: number, Until: until, Ended: ended,
	}
}

// hello is what a loop says of itself at its next dial.
func (g *gateway) hello(ctx context.Context, now *reign, loop int) (h wire.TrunkHello, err error) {
	g.asking.Lock()
	defer g.asking.Unlock()
	if !g.knowsNumbers(now) {
		given, err := g.member.askNumbers(ctx, now.leader, g.nonce, len(g.dials))
		if err != nil {
			return h, err
		}
		g.take(given)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dials[loop]++
	return wire.TrunkHello{
		Version: g.member.cfg.Queue.trunks, Number: g.numbers[loop], Nonce: g.nonce, Count: g.dials[loop],
	}, nil
}

// knowsNumbers reports whether the loops' numbers are known, and the leader of a reign has not refused one since.
func (g *gateway) knowsNumbers(now *reign) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.Contains(g.numbers, 0) && g.refused != now
}

// take gives the loops the numbers that a leader says are the server's. Each keeps its own unless that is gone:
// ids of its sessions begin with it.
func (g *gateway) take(given []uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	given = slices.Clone(given)
	for i, n := range g.numbers {
		if at := slices.Index(given, n); at >= 0 {
			given = slices.Delete(given, at, at+1)
		} else {
			g.numbers[i] = 0
		}
	}
	for i, n := range g.numbers {
		if n == 0 {
			g.numbers[i], given = given[0], given[1:]
		}
	}
	g.refused = nil
}

// all are the loops' numbers; 0 for one that has none.
func (g *gateway) all() []uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.numbers)
}

// id is the member's.
func (g *gateway) id() uint64 { return uint64(g.member.node.Load().Status().Self) }

// gone are the loops' numbers that are gone, as an engine knows.
func (g *gateway) gone(e *engine.Engine) (list []uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.numbers {
		if e.NumberGone(n) {
			list = append(list, n)
		}
	}
	return list
}

// askAgain has the leader of a reign be asked for the numbers before it is dialled again: they may be gone. It may
// also not lead any more: then the next one is dialled.
func (g *gateway) askAgain(now *reign) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = now
}

// forward starts to forward clients, if this node does not lead and they are not already.
func (q *Queue) forward() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gateway != nil || q.service != nil {
		return
	}
	c := q.waitingClients
	if c == nil {
		if q.stopping || q.follower == nil {
			return
		}
		began := q.cfg.Mono()
		var err error
		if c, err = q.newClients(nil, func() engine.Time { return engine.Time(q.cfg.Mono() - began) }, nil); err != nil {
			q.fail(err)
			return
		}
	} else if !q.resumes() {
		return
	}
	q.gateway, q.waitingClients = c, nil
	c.server.Forward(c.self.dial)
	if !c.opens {
		c.opens = true
		c.working.Go(c.listen)
	}
}

// forwarded are the clients that are forwarded, nil if none are.
func (q *Queue) forwarded() *clients {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gateway
}

// Forwarding is the queue while it forwards its clients to the leader.
type Forwarding struct {
	Reactor  *reactor.Server
	Addrs    []net.Addr // that clients connect to; nil while there are none
	Attached bool       // all event loops are connected with the leader
	Fence    uint64     // the index of the log up to which the leader had committed then
}

// Forwarding tells how clients are forwarded, nil if they are not. Any goroutine may call it.
func (q *Queue) Forwarding() *Forwarding {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.gateway
	if c == nil {
		return nil
	}
	loops, _ := c.server.Forwarding()
	return &Forwarding{Reactor: c.server, Addrs: c.addrs, Attached: loops == c.server.Loops(), Fence: c.server.Fence()}
}

// resumes reports whether clients go on under another leader.
func (q *Queue) resumes() bool { return q.trunks >= resumesSince }
