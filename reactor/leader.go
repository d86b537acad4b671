package reactor

import (
	"cmp"
	"errors"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// itemCost is to deal with an item, beside the commands in it: it has cost no system call.
const itemCost = 4

var errNoEngine = errors.New("reactor: a server without an engine takes no trunks")

// leaderEnd is the leader's end of a trunk on a loop: it serves the clients of one loop of a gateway. It belongs to its
// loop's goroutine.
type leaderEnd struct {
	*relay.Leader
	stream.Trunk // of its channels

	loop   *loop
	out    relay.Trunk
	name   string // of the gateway
	leaves func() // is called when the gateway has left, and all its sessions have ended; nil does nothing
}

// AcceptTrunk serves the clients of a gateway's loop, which has come over c and has been given c.Number. It
// does not wait: what goes wrong afterwards ends the trunk, and with it the sessions of these clients. After
// an error, c.Conn is closed, and c.Ended was told. Any goroutine may call it.
func (s *Server) AcceptTrunk(c TrunkConn) error {
	if s.engine.Load() == nil {
		_ = c.Conn.Close()
		c.ended(errNoEngine)
		return errNoEngine
	}
	l := s.loops[int(s.trunks.Add(1))%len(s.loops)]
	return s.layTrunk(l, c, trunk.Gateway, func(t *link.Link) link.End {
		if s.engine.Load() == nil {
			return nil
		}
		e := newLeaderEnd(l, t, c.Peer, c.Number)
		e.welcome(&c)
		return e
	})
}

// newLeaderEnd is the leader's end of the trunk of a gateway's loop, which has that number.
func newLeaderEnd(l *loop, out relay.Trunk, gateway string, number uint32) *leaderEnd {
	e := &leaderEnd{loop: l, out: out, name: gateway}
	e.Trunk.Init(e, relay.MaxOutput-relay.FewOutput)
	e.Leader = relay.NewLeader(e, out, number)
	return e
}

// welcome says to the gateway, which has come over c, what it has come to.
func (e *leaderEnd) welcome(c *TrunkConn) {
	s := e.loop.server
	e.leaves = c.Leaves
	e.Speak(min(max(c.Version, 1), cmp.Or(s.hooks.trunks, trunk.Version)))
	e.Welcome(trunk.Welcome{
		Extensions: s.cfg.Extensions, MaxJobSize: s.cfg.MaxJobSize, Term: c.Term, Fence: c.Fence,
	})
}

// NewChannel implements relay.LeaderHost.
func (e *leaderEnd) NewChannel() *relay.Channel {
	l := e.loop
	h := new(channel)
	l.members.Add(1)
	l.server.channels.Add(1)
	h.loop, h.listener = l, accept.NoListener
	h.Stream.Init(-1, stream.OnTrunk)
	h.Channel.Init(&e.Trunk, trunk.FirstCredit)
	h.join()
	return &h.relay
}

// TakeMemory implements relay.LeaderHost.
func (e *leaderEnd) TakeMemory(n int) bool { return e.loop.server.takeMemory(n) }

// GiveMemory implements relay.LeaderHost.
func (e *leaderEnd) GiveMemory(n int) { e.loop.server.gatewayMemory.Add(-int64(n)) }

// Room implements stream.Line.
func (e *leaderEnd) Room() int { return e.out.Room() }

// Replies implements stream.Line.
func (e *leaderEnd) Replies(s *stream.Stream, data []byte, last bool) {
	h := connOfStream(s).channel()
	e.Reply(&h.relay, data, last, h.phase == waiting)
}

// End implements stream.Line.
func (e *leaderEnd) End(s *stream.Stream, reset bool) { connOfStream(s).channel().close(reset) }

// TakeItem implements link.End.
func (e *leaderEnd) TakeItem(now time.Duration, it *trunk.Item) error {
	l := e.loop
	l.engine.Spend(itemCost)
	if l.stopping || l.server.aborting.Load() {
		return ErrClosed
	}
	r, err := e.Item(it)
	if err != nil {
		return err
	}
	switch r.Ask {
	case relay.NoRequest:
	case relay.EndAbsent:
		l.resumptions.Push(resumption{end: e})
	case relay.Pong:
		e.ping(r.Number)
	case relay.EndAll:
		e.endAll(false)
		e.tellLeft()
	default:
		return channelOf(r.Channel).do(now, &r)
	}
	return nil
}

// ping answers a ping as soon as it is proven that this server led when the ping had come: it waits for the journal,
// as replies do.
func (e *leaderEnd) ping(number uint32) {
	l := e.loop
	if l.server.engine.Load() == nil {
		e.Pong(number, false)
		return
	}
	var pos journal.Pos
	if b, ok := l.journal.(engine.Barrier); ok {
		pos = b.Barrier()
	}
	if !l.mustWait(pos) {
		e.Pong(number, true)
		return
	}
	l.awaitsCommit()
	l.commits.pongs.Push(pong{e.Leader, number, pos})
}

// HasRoom implements link.End: a channel that has waited for room goes on, and the next behind it.
func (e *leaderEnd) HasRoom(time.Duration) { e.Next(e.loop.streams) }

// Disconnect implements link.End. Sessions that may go on over another trunk do not end.
func (e *leaderEnd) Disconnect(time.Duration, error) {
	e.Trunk.End()
	e.Disconnected()
	e.endAll(e.ResumesSessions())
}

// endAll ends all channels, as if their clients had gone, or could not be heard for now. Nothing is executed for them
// any more, and their sessions are closed, or part, in turn with what else there is to do.
func (e *leaderEnd) endAll(part bool) {
	e.StopAll(part)
	e.Trunk.CloseAll()
	for _, h := range e.Channels() {
		if h == nil {
			continue
		}
		if c := channelOf(h); c.phase < broken {
			c.fail()
			e.loop.revoked = append(e.loop.revoked, &c.conn)
		}
	}
}

// sessionEnded is called when all is given back that the session of a channel had.
func (e *leaderEnd) sessionEnded() {
	e.SessionEnded()
	e.tellLeft()
}

// tellLeft reports that the gateway has left, and all its sessions have ended.
func (e *leaderEnd) tellLeft() {
	if e.HasLeft() && e.leaves != nil {
		e.leaves()
		e.leaves = nil
	}
}
