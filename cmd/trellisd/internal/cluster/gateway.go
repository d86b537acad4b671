package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/engine"
	"trellis/reactor"
)

const (
	// dialPause is between two attempts of a loop to begin a trunk.
	dialPause = 20 * time.Millisecond
	// trunkless is how long a loop may lack one before the log says so. A change of leader takes less.
	trunkless = 3 * time.Second
	// trunkVersion is the version of what trunks carry.
	trunkVersion = 1
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
// of leaderships before end when there is another one, and not while nobody leads: what their leaders have committed still counts.
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
	st := m.node.Load().Status()
	if m.reignNow() == nil || st.Version < replica.VersionOfTrunks {
		return
	}
	m.cfg.Queue.forward(func(loops int) dialer {
		g := &gateway{member: m, nonce: max(1, rand.Uint64()), dials: make([]uint64, loops), log: m.cfg.Log, lacking: make([]time.Time, loops)}
		return g.dial
	})
}

// dialer dials the leader for a loop: see [reactor.Server.Forward].
type dialer func(ctx context.Context, loop int) (reactor.TrunkConn, error)

// gateway is what a server that forwards clients says of itself to leaders. Each server has numbers of its own for
// its loops, so that no session's id comes again.
type gateway struct {
	member *Member
	nonce  uint64
	log    *slog.Logger

	mu      sync.Mutex // also held while a leader is asked for numbers
	numbers []uint32
	givenBy *reign      // whose leader has said last that they are
	dials   []uint64    // of each loop
	lacking []time.Time // since when each loop lacks a trunk; zero if it has one, or has told so
}

// dial returns when a loop has a trunk, or ctx is done.
func (g *gateway) dial(ctx context.Context, loop int) (reactor.TrunkConn, error) {
	g.mu.Lock()
	g.lacking[loop] = time.Now()
	g.mu.Unlock()
	for {
		c, err := g.try(ctx, loop)
		if err == nil {
			return c, nil
		}
		g.tell(loop, err)
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-time.After(dialPause):
		}
	}
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
	h, err := g.hello(ctx, now, loop)
	if err != nil {
		return reactor.TrunkConn{}, err
	}
	k, err := m.transport.DialTrunk(ctx, now.leader, h)
	if err != nil {
		if refused := (*wire.RemoteError)(nil); errors.As(err, &refused) {
			g.askAgain()
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
	return reactor.TrunkConn{Conn: k.Socket, TLS: k.TLS, Exchange: k.Swap, Peer: k.Peer.Name, Number: number, Until: until, Ended: ended}
}

// hello is what a loop says of itself at its next dial.
func (g *gateway) hello(ctx context.Context, now *reign, loop int) (h wire.TrunkHello, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.givenBy != now {
		if g.numbers, err = g.member.askNumbers(ctx, now.leader, g.nonce, len(g.dials)); err != nil {
			return h, err
		}
		g.givenBy = now
	}
	g.dials[loop]++
	return wire.TrunkHello{Version: trunkVersion, Number: g.numbers[loop], Nonce: g.nonce, Count: g.dials[loop]}, nil
}

// askAgain has a leader asked for the numbers before the next dial: they may be gone.
func (g *gateway) askAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.givenBy = nil
}

var errNotServing = errors.New("this node does not lead, or does not serve yet")

// takeTrunk tells what takes a trunk of another member's gateway.
func (q *Queue) takeTrunk(from member.Member, h wire.TrunkHello) (take func(*wire.Trunk), err error) {
	q.mu.Lock()
	s, e := q.service, q.engine
	q.mu.Unlock()
	if s == nil {
		return nil, errNotServing
	}
	if id, nonce := e.NumberOf(h.Number); id != uint64(from.ID) || nonce != h.Nonce {
		return nil, errors.New("the loop's number was not given to this process of the member")
	}
	return func(k *wire.Trunk) {
		if err := s.server.AcceptTrunk(trunkConn(k, h.Number, k.Context, k.End)); err != nil {
			k.End(err)
		}
	}, nil
}

// forward has clients be forwarded, if the queue stands by and they are not already.
func (q *Queue) forward(newDialer func(loops int) dialer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping || q.gateway != nil || q.waiting != nil || q.service != nil || q.follower == nil {
		return
	}
	began := time.Now()
	c, err := q.newClients(nil, func() engine.Time { return engine.Time(time.Since(began)) }, nil)
	if err != nil {
		q.fail(err)
		return
	}
	q.gateway = c
	c.server.Forward(newDialer(q.loops()))
	c.working.Go(c.listen)
}

// Forwarding is the queue while it forwards its clients to the leader.
type Forwarding struct {
	Reactor  *reactor.Server
	Addrs    []net.Addr // that clients connect to; nil while there are none
	Attached bool       // all event loops are connected with the leader
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
	return &Forwarding{Reactor: c.server, Addrs: c.addrs, Attached: loops == q.loops()}
}

// loops is how many event loops a server has.
func (q *Queue) loops() int { return cmp.Or(q.cfg.Reactor.Loops, reactor.DefaultLoops()) }
