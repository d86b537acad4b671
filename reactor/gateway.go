package reactor

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/trunk"
)

// gateway is what a loop of a server without an engine has beside others: the clients that it forwards,
// and its end of the trunk to the leader. It belongs to the loop's goroutine.
type gateway struct {
	loop     *loop
	forwards map[*conn]*forward
	known    knownGrants

	sessions map[uint64]*forward // those of which a leader has heard, by their ids

	trunk    *trunkLine      // nil while there is none
	welcomed bool            // the leader has said what it is, and takes clients
	version  uint16          // of what is said on the trunk, or was on the last
	before   *terms          // of that leader; nil before the first
	number   uint32          // of the loop, with which the ids of sessions begin
	opened   uint64          // sessions that there were, whatever the number was
	channels []*forward      // by number, nil for one that is free; the first is nobody's
	free     []uint32        // numbers of channels
	line     queue[*forward] // those who have something to say that has to wait for the trunk
	lost     []loss          // those who cannot go on
	unnamed  int             // how many are first in line that the leader is to hear of before it has heard of all
	named    bool            // it has heard of all
	fence    uint64          // the index of the log up to which all is that was executed for sessions on earlier trunks
	fenced   time.Duration   // when the leader said so
	barred   queue[*forward] // those who wait until this member has applied that
	contact  contact
	parted   time.Duration // when the last trunk ended, or forwarding began
	givesUp  bool          // the trunk ends because clients are given up
	names    tubeNames
	states   []clientState // that await the replies of their clients
	unkept   []*keptInput  // unused
	data     []byte        // room for that of an item
	told     chan<- bool   // of the end of the trunk, with welcomed
}

// loss is a client that cannot go on, and where that is counted if it has not left by itself.
type loss struct {
	conn  *conn
	count *atomic.Uint64
}

// smallInput is more than most clients send ahead.
const smallInput = 8 << 10

func newGateway(l *loop) *gateway {
	return &gateway{loop: l, forwards: make(map[*conn]*forward), sessions: make(map[uint64]*forward), channels: make([]*forward, 1), contact: contact{next: never}}
}

// on has the loop forward over a trunk, when its leader is ready. ended is told of its end, with
// whether it was.
func (g *gateway) on(t *trunkLine, number uint32, ended chan<- bool) *gateway {
	g.trunk, g.number, g.told = t, number, ended
	g.loop.effects.number.Store(number)
	return g
}

// takes tells whether an item with so many bytes of data can be sent now. What is small does not wait for those
// who send much.
func (g *gateway) takes(n int) bool {
	if n > smallInput {
		n = maxTrunkOutput - fewOutput
	}
	return g.welcomed && g.trunk.room() >= n
}

// hasTurn tells whether who is first in line may say something.
func (g *gateway) hasTurn() bool {
	return !g.line.empty() && g.takes(trunk.MaxData)
}

// next takes the client out of the line whose turn it is, nil if there is none.
func (g *gateway) next() *forward {
	for g.hasTurn() {
		f := g.line.pop()
		f.queued = false
		g.unnamed = max(0, g.unnamed-1)
		if f.hasMore() {
			return f
		}
	}
	return nil
}

// open has the leader hear of a new client.
func (g *gateway) open(f *forward) {
	grant, ok := g.assign(f)
	if !ok {
		return
	}
	if len(g.sessions) == 0 {
		g.inContact(g.loop.server.bootTime()) // nobody has anything to lose yet
	}
	c := f.conn
	g.opened++
	f.session = uint64(g.number)<<(64-journal.NumberBits) | g.opened
	g.sessions[f.session] = f
	o := openOf(c.endpoint(), f.session)
	g.data = o.Append(g.data[:0])
	f.say(trunk.KindOpen, int(grant), g.data)
	if d := c.deadline; d != nil && !d.ending && !c.retired() {
		g.loop.deadlines.remove(d)
		c.deadline = nil
	}
}

// assign gives a client a channel, and returns the number of its grant. It reports false if there is none.
func (g *gateway) assign(f *forward) (grant uint32, ok bool) {
	grant, ok = g.numberOf(f.grant)
	switch n := len(g.free); {
	case !ok: // it is larger than a leader takes
	case n > 0:
		f.channel = g.free[n-1]
		g.free = g.free[:n-1]
		g.channels[f.channel] = f
	case len(g.channels) <= trunk.MaxChannel:
		f.channel = uint32(len(g.channels))
		g.channels = append(g.channels, f)
	default: // there are more clients than can be
		ok = false
	}
	if !ok {
		g.end(f, &g.loop.counts.trunkLost)
	}
	return grant, ok
}

// openOf is how a client at an endpoint is described to the leader.
func openOf(e accept.Endpoint, session uint64) trunk.Open {
	o := trunk.OpenOf(session, e.Addr)
	switch {
	case e.Own:
		o.Network = trunk.NetworkOwn
	case e.Unix:
		o.Network = trunk.NetworkUnix
	}
	return o
}

var errRetired = errors.New("the leader executes no more commands")

// take implements trunkEnd.
func (g *gateway) take(now time.Duration, it *trunk.Item) error {
	switch it.Kind {
	case trunk.KindWelcome:
		return g.begin(it)
	case trunk.KindPong:
		err := g.contact.pong(it.Number)
		g.inContact(g.contact.last)
		return err
	case trunk.KindRetire:
		return errRetired
	}
	if it.Channel >= uint32(len(g.channels)) || g.channels[it.Channel] == nil {
		return fmt.Errorf("%v for channel %d, which is not open", it.Kind, it.Channel)
	}
	f := g.channels[it.Channel]
	switch it.Kind {
	case trunk.KindReplies:
		return f.deliver(now, it)
	case trunk.KindCredit:
		if !f.closed {
			return f.takeCredit(it.Number)
		}
	case trunk.KindState:
		return g.takeState(f, it)
	case trunk.KindDenied:
		return g.denied(f, it)
	case trunk.KindEnd:
		g.loop.engine.Spend(connCost)
		g.channels[it.Channel] = nil
		g.free = append(g.free, it.Channel)
		f.channelEnded(now, it)
	}
	return nil
}

// writable implements trunkEnd. Who is next in line goes on in this round.
func (g *gateway) writable(time.Duration) {}

// ended implements trunkEnd. Clients wait for another trunk, if they can go on there.
func (g *gateway) ended(now time.Duration, err error) {
	l := g.loop
	if n, ok := l.server.trunkEnds.Allow(); ok && !l.stopping {
		l.server.log.Info("clients are not forwarded for now", "reason", err, "unreported", n)
	}
	if g.welcomed {
		l.forwards(false, g.lastContact(now))
		g.parted = now
	}
	g.told <- g.welcomed
	g.trunk, g.welcomed = nil, false
	g.channels, g.free, g.line, g.barred = make([]*forward, 1), nil, queue[*forward]{}, queue[*forward]{}
	g.known = knownGrants{}
	g.dropStates()
	l.effects.fence.Store(noFence)
	g.part(now)
	l.gnet.Wake()
}

// part has clients wait for another trunk. Those that are owed an answer that nobody can give them there are reset. Those
// whose session is over, or has nothing more to do, get what has come for them.
func (g *gateway) part(now time.Duration) {
	for c, f := range g.forwards {
		f.channel, f.queued = 0, false
		switch {
		case c.phase == forwarded && f.session == 0: // waits already
		case c.phase == forwarded:
			g.partWith(f, now)
		case c.closure == closing:
			c.closure = closed
			g.lose(c, &c.loop.counts.trunkLost)
		}
	}
}

func (g *gateway) partWith(f *forward, now time.Duration) {
	c := f.conn
	all := f.owedNothing()
	old := g.version < resumesSince
	goesOn := f.pause()
	count := &c.loop.counts.trunkLost
	switch {
	case g.givesUp:
		count = &c.loop.counts.noContact
	case !goesOn:
		count = &c.loop.counts.unrepeated
	}
	switch {
	case all && (c.intake >= finished || c.loop.draining), all && old && f.answered > 0:
		c.enter(draining)
		g.lose(c, count)
	case !goesOn || c.loop.draining || old && !f.untouched():
		g.end(f, count)
	case old:
		g.anew(f, now)
	}
}

// turn does what is to be done beside reading, a bit of each kind.
func (g *gateway) turn(now time.Duration) (did bool) {
	if f := g.next(); f != nil {
		f.goOn(now)
		did = true
	}
	g.nameAll()
	if g.canGoOn() {
		g.pastFence()
		did = true
	}
	if g.contact.next <= now {
		g.tick(now)
		did = true
	}
	if g.endLost(now) {
		did = true
	}
	return did
}

// hasWork tells whether turn would do something.
func (g *gateway) hasWork(now time.Duration) bool {
	return g != nil && (g.hasTurn() || len(g.lost) > 0 || g.canGoOn() || g.contact.next <= now)
}

// lose has a connection be ended that cannot go on.
func (g *gateway) lose(c *conn, count *atomic.Uint64) { g.lost = append(g.lost, loss{c, count}) }

// end ends a client that cannot go on.
func (g *gateway) end(f *forward, count *atomic.Uint64) {
	f.conn.fail()
	g.lose(f.conn, count)
}

// endLost goes on with one of the connections that cannot, if there is one.
func (g *gateway) endLost(now time.Duration) bool {
	n := len(g.lost)
	if n == 0 {
		return false
	}
	x := g.lost[n-1]
	g.lost = slices.Delete(g.lost, n-1, n)
	x.conn.trunkLost(now, x.count)
	return true
}

// trunkLost goes on with a connection whose trunk has ended.
func (c *conn) trunkLost(now time.Duration, count *atomic.Uint64) {
	defer c.loop.recovered()
	c.loop.engine.Spend(connCost)
	if c.closure == open {
		count.Add(1)
	}
	if c.phase == broken {
		c.resetOnClose()
	}
	c.conclude(now)
}

// leave tells the leader that the loop ends.
func (g *gateway) leave() {
	if g != nil && g.welcomed {
		g.trunk.send(&trunk.Item{Kind: trunk.KindLeave})
	}
}

// finish reads each client once more, and has the leader answer all that has come of it, and then end its
// session. The server is shut down.
func (g *gateway) finish(now time.Duration) {
	if g == nil {
		return
	}
	for c, f := range g.forwards {
		switch {
		case c.phase != forwarded:
		case f.channel == 0:
			g.end(f, &g.loop.counts.trunkLost)
		default:
			f.enqueue()
			c.conclude(now)
		}
	}
}
