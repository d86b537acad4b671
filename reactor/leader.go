package reactor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

const (
	// itemCost is to deal with an item, beside the commands in it: it has cost no system call.
	itemCost = 4
	// openCost is to open a session and to close it.
	openCost = 16

	// maxGrants is how many bytes of grants a gateway may have on a trunk.
	maxGrants = 64 << 20
	// maxPings is how many pings of a gateway may wait to be answered. More are not answered.
	maxPings = 32
)

var (
	errHalfClosed = fmt.Errorf("the gateway's client sends no more: %w", io.EOF)
	errClientGone = errors.New("the gateway's client has gone")
	errNoEngine   = errors.New("reactor: a server without an engine takes no trunks")
)

// leaderEnd is the leader's end of a trunk: it serves the clients of one loop of a gateway. It belongs
// to its loop's goroutine.
type leaderEnd struct {
	stream.Trunk // of its channels

	loop    *loop
	out     relay.Trunk
	name    string // of the gateway
	number  uint32 // of the gateway's loop
	version uint16 // of what is said

	grants   map[uint32]grant
	parts    map[uint32]grantPart // of those of which more is to come
	size     int                  // of all grants and parts
	channels []*channel           // by number; those that have ended stay until the gateway says close
	last     uint64               // the id of the session that was opened last
	pings    int                  // that wait to be answered
	retired  bool                 // the last item was said
	said     trunk.Item           // the last item

	resumes  map[uint32]resumePart // those of which more is to come, by channel
	resumed  int                   // bytes of resumes and effects that are kept
	attached bool                  // all sessions were named that go on

	sessions int    // that have not ended, those of channels included that have
	left     bool   // the gateway ends
	leaves   func() // is told when it has left and sessions is 0; nil does nothing
}

// grant is what some of the gateway's clients may do.
type grant struct {
	*engine.Grant
	size int // as data of items
}

// grantPart is what has come of a grant.
type grantPart struct {
	tubes []string
	size  int
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
	return s.layTrunk(l, c, trunk.Gateway, func(t *trunkLine) trunkEnd {
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
	e := &leaderEnd{
		loop: l, out: out, name: gateway, number: number, version: 1,
		grants: make(map[uint32]grant), parts: make(map[uint32]grantPart), resumes: make(map[uint32]resumePart),
	}
	e.Trunk.Init(e, relay.MaxOutput-relay.FewOutput)
	return e
}

// welcome tells the gateway, which has come over c, what it has come to.
func (e *leaderEnd) welcome(c *TrunkConn) {
	s := e.loop.server
	e.version, e.leaves = min(max(c.Version, 1), cmp.Or(s.hooks.trunks, trunk.Version)), c.Leaves
	w := trunk.Welcome{
		Version: e.version, Extensions: s.cfg.Extensions, MaxJobSize: s.cfg.MaxJobSize, Term: c.Term, Fence: c.Fence,
	}
	e.say(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
}

// misuse is the error of a gateway that says what no gateway says.
func (e *leaderEnd) misuse(channel uint32, what string) error {
	return fmt.Errorf("channel %d: %s", channel, what)
}

// say sends an item, unless the last one was sent.
func (e *leaderEnd) say(it trunk.Item) {
	if e.retired {
		return
	}
	e.said = it // on the stack it would have to be allocated
	e.out.Send(&e.said)
	e.said.Data = nil
}

// Room implements stream.Line.
func (e *leaderEnd) Room() int { return e.out.Room() }

// Replies implements stream.Line.
func (e *leaderEnd) Replies(s *stream.Stream, data []byte, last bool) {
	connOfStream(s).channel().replies(data, last)
}

// End implements stream.Line.
func (e *leaderEnd) End(s *stream.Stream, reset bool) { connOfStream(s).channel().close(reset) }

// take implements trunkEnd.
func (e *leaderEnd) take(now time.Duration, it *trunk.Item) error {
	e.loop.engine.Spend(itemCost)
	if e.loop.stopping || e.loop.server.aborting.Load() {
		return ErrClosed
	}
	switch it.Kind {
	case trunk.KindGrant:
		return e.grant(it)
	case trunk.KindOpen:
		return e.open(now, it)
	case trunk.KindResume:
		return e.resume(it)
	case trunk.KindAttached:
		return e.attach()
	case trunk.KindPing:
		e.ping(it.Number)
		return nil
	case trunk.KindLeave:
		e.left = true
		e.endAll(false)
		e.tellLeft()
		return nil
	}
	var h *channel
	if it.Channel < uint32(len(e.channels)) {
		h = e.channels[it.Channel]
	}
	switch {
	case h == nil:
		return e.misuse(it.Channel, it.Kind.String()+" for a channel that is not open")
	case it.Kind == trunk.KindClose:
		e.channels[it.Channel] = nil
		h.closing(now, errClientGone)
		return nil
	case h.phase >= broken:
		return nil // it was on its way when the session ended
	}
	switch it.Kind {
	case trunk.KindInput:
		return h.input(now, it.Data)
	case trunk.KindEffects:
		return h.effects(it)
	case trunk.KindCredit:
		return h.takeCredit(it.Number)
	case trunk.KindHalfClose:
		return h.halfClose(now, it.Flags)
	}
	return e.misuse(it.Channel, it.Kind.String()+" is not for a leader")
}

// grant takes what clients may do, or a part of it.
func (e *leaderEnd) grant(it *trunk.Item) error {
	part, err := trunk.ParseGrant(it.Data)
	if err != nil {
		return err
	}
	g := e.parts[it.Number]
	g.tubes = append(g.tubes, part.Tubes...)
	g.size += len(it.Data)
	if e.size += len(it.Data); e.size > maxGrants {
		return e.misuse(0, "more grants than may be kept")
	}
	if it.Flags&trunk.More != 0 {
		e.parts[it.Number] = g
		return nil
	}
	delete(e.parts, it.Number)
	e.size -= e.grants[it.Number].size
	e.grants[it.Number] = grant{Grant: engine.NewGrant(part.Name, engine.Rights(part.Rights), g.tubes).In(part.Account), size: g.size}
	return nil
}

// open begins to serve a client.
func (e *leaderEnd) open(now time.Duration, it *trunk.Item) error {
	l := e.loop
	l.engine.Spend(openCost)
	o, err := trunk.ParseOpen(it.Data)
	n := it.Channel
	g := e.grants[it.Number].Grant
	switch {
	case err != nil:
		return err
	case e.left:
		return e.misuse(n, "an open behind leave")
	case g == nil && it.Number != 0:
		return e.misuse(n, noGrant(it.Number))
	case journal.NumberOf(o.Session) != e.number || o.Session <= e.last:
		return e.misuse(n, fmt.Sprintf("session %d is opened behind %d, by loop %d", o.Session, e.last, e.number))
	case e.isOpen(n):
		return e.misuse(n, "it is open")
	}
	e.last = o.Session
	h := e.channel(n, g, &o)
	if l.held {
		h.postpone()
		return nil
	}
	return h.begin(now)
}

func noGrant(number uint32) string { return fmt.Sprintf("no grant has the number %d", number) }

// isOpen tells whether the gateway has opened a channel, and not closed it.
func (e *leaderEnd) isOpen(n uint32) bool {
	return n < uint32(len(e.channels)) && e.channels[n] != nil
}

// channel makes a channel for a client.
func (e *leaderEnd) channel(n uint32, g *engine.Grant, o *trunk.Open) *channel {
	l := e.loop
	if n >= uint32(len(e.channels)) {
		e.channels = slices.Grow(e.channels, int(n)+1-len(e.channels))[:n+1]
	}
	h := &channel{
		grant: g, client: clientOf(o), id: o.Session, number: n,
		window: trunk.FirstCredit, room: trunk.FirstCredit,
	}
	e.channels[n] = h
	e.sessions++
	l.members.Add(1)
	l.server.channels.Add(1)
	h.loop, h.listener = l, channelListener
	h.Stream.Init(-1, stream.OnTrunk)
	h.Channel.Init(&e.Trunk, trunk.FirstCredit)
	h.join()
	return h
}

// writable implements trunkEnd: a channel that has waited for room goes on, and the next behind it.
func (e *leaderEnd) writable(time.Duration) { e.Next(e.loop.streams) }

// disconnected implements trunkEnd. Sessions that may go on over another trunk do not end.
func (e *leaderEnd) disconnected(time.Duration, error) {
	e.Trunk.End()
	e.endAll(e.version >= trunk.ResumesSince)
}

// endAll ends all channels, as if their clients had gone, or could not be heard for now. Nothing is executed
// for them any more, and their sessions are closed, or part, in turn with what else there is to do.
func (e *leaderEnd) endAll(part bool) {
	for _, h := range e.channels {
		if h != nil && h.phase < broken {
			h.parts = part
			h.fail()
			e.loop.revoked = append(e.loop.revoked, &h.conn)
		}
	}
	e.CloseAll()
}

// sessionEnded is told when all is given back that the session of a channel had.
func (e *leaderEnd) sessionEnded() {
	e.sessions--
	e.tellLeft()
}

// tellLeft tells that the gateway has left, and all its sessions.
func (e *leaderEnd) tellLeft() {
	if e.left && e.sessions == 0 && e.leaves != nil {
		e.leaves()
		e.leaves = nil
	}
}
