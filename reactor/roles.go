package reactor

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// A server leads, with an engine, or forwards its clients, with a gateway in each loop, or waits, with neither,
// and is held. It changes from one to the other while its clients stay: Detach and Forward make a leader a
// gateway, Attach makes that a leader.

// maxRecorded is how many bytes of records Record makes at most.
const maxRecorded = 64 << 20

// Record puts the sessions of a held server's clients on record, with what they have reserved, before all that
// was executed is committed: then they go on after Detach. Those whose records would exceed 64 MiB together, or
// whose loop has no number, stay off the record, as do all if the journal records no holds.
func (s *Server) Record() {
	if !s.held.Load() || !s.beginHold() {
		return
	}
	defer s.holds.Done()
	if s.engine.Load() == nil {
		return
	}
	var room atomic.Int64
	room.Store(s.hooks.recorded)
	s.onLoops(func(l *loop) { l.record(&room) })
}

func (l *loop) record(room *atomic.Int64) {
	defer l.recovered()
	at := l.time(l.server.now())
	for _, c := range l.conns {
		if c.closure == open && (c.phase == serving || c.phase == waiting) {
			c.session.Record(room, at)
		}
	}
}

// Number gives each loop of a server its number, with which the ids of sessions begin that are opened with its
// engine from then on, or with its next one. 0 changes nothing.
func (s *Server) Number(numbers []uint32) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.onLoops(func(l *loop) {
		n := numbers[slices.Index(s.loops, l)]
		switch {
		case n == 0:
		case l.gateway != nil:
			l.gateway.number = n
		case s.engine.Load() == nil:
			l.number = n
		default:
			l.number, l.sessions = n, l.givenIDs()
			l.engine.Number(n, l.sessions)
		}
	})
}

// givenIDs is how many sessions have had ids of the loop's number that the loop has given, which has an engine.
func (l *loop) givenIDs() uint64 { return max(l.sessions, l.engine.Sessions()) }

// stopDialling has no loop begin a trunk any more, whatever is being dialled. Server.mu is not held.
func (s *Server) stopDialling() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials != nil {
		s.dials()
		s.dials = nil
	}
}

var (
	errLeads    = errors.New("this server leads")
	errDetached = errors.New("this server has no engine any more")
)

// terms are what the server lets clients do when it leads.
func (s *Server) terms() terms {
	return terms{maxJobSize: s.cfg.MaxJobSize, extensions: s.cfg.Extensions}
}

// endTrunks ends all trunks of the loop.
func (l *loop) endTrunks(now time.Duration, why error) {
	for _, t := range slices.Clone(l.trunks.list) {
		t.part(now, why)
	}
}

// beginForwarding has a loop without an engine forward its clients. Those that are not on record are reset.
func (l *loop) beginForwarding() {
	defer l.recovered()
	if l.gateway != nil {
		return
	}
	now := l.server.now()
	g := newGateway(l)
	g.number, g.opened, g.version = l.number, l.sessions, resumesSince
	ours := l.server.terms()
	g.before = &ours
	g.inContact(time.Duration(l.server.heldSince.Load())) // it led then: what it had executed was committed later
	g.contact.begin(now)
	g.parted = now
	l.effects.number.Store(l.number)
	l.gateway = g
	for c, d := range l.detached {
		if c.phase < draining && !c.goOnForwarded(d, now) {
			c.cutOff(now)
		}
	}
	l.detached = nil
	l.release()
}

// goOnForwarded has a client whose session is on record be forwarded. It reports false if it cannot be.
func (c *conn) goOnForwarded(d *engine.Detached, now time.Duration) bool {
	l := c.loop
	head, ok := c.unexecuted(d)
	if d.ID() == 0 || !ok {
		return false
	}
	c.decoder.Release()
	if len(head) > 0 {
		c.backlog().in.prepend(&l.counts, head)
	}
	c.enter(forwarded)
	f := l.gateway.goesOn(c, d.ID(), d.Offset())
	f.setInterests(d.Interests())
	f.asked, f.sure = min(now, l.duration(d.WaitsSince())), true
	f.unanswered = len(head)       // where it ends, this server's terms have decided
	if id := d.Handed(); id != 0 { // the log tells of that as of what the wait has done
		f.effects = []journal.Effect{{Session: f.session, Offset: f.given(), ID: id, Kind: journal.EffectHold}}
	}
	c.forgetLimits()
	if c.x != nil {
		c.conclude(now)
	}
	return true
}

// goesOn begins to forward a client whose session is on record, of whose input so much is answered.
func (g *gateway) goesOn(c *conn, session, answered uint64) *forward {
	f := &forward{
		conn: c, grant: c.loop.granted[c], session: session, sent: answered, answered: answered,
		room: trunk.FirstCredit, window: trunk.FirstCredit, credit: trunk.FirstCredit,
	}
	g.forwards[c], g.sessions[session] = f, f
	return f
}

// forgetLimits takes the limits off the connection that are the leader's to set.
func (c *conn) forgetLimits() {
	if c.x != nil && c.x.retired == tooOld {
		c.x.retired = notRetired
	}
	if d := c.deadline; d != nil && !d.ending && !c.retired() {
		c.loop.deadlines.remove(d)
		c.deadline = nil
	}
}

// unexecuted is what the client has sent of a command that is not finished, and was taken out of its input. It
// reports false if it is not known any more, as of a line that is too long, or of a body that is thrown away.
func (c *conn) unexecuted(d *engine.Detached) (b []byte, ok bool) {
	if c.phase == waiting {
		b = d.Wait()
		return b, b != nil
	}
	if b, ok = d.Put(); !ok {
		return nil, false
	}
	held, ok := c.decoder.Held()
	return append(b, held...), ok
}

// endForwarding ends what the loop has of a gateway, and returns those of its clients that go on. It is held then.
func (l *loop) endForwarding(now time.Duration) (list []*forward) {
	g := l.gateway
	if g == nil {
		return nil
	}
	l.held = true
	l.endTrunks(now, errLeads)
	g.shareEffects()
	l.effects.fence.Store(noFence)
	ours := l.server.terms()
	for _, f := range g.forwards {
		if f.conn.phase == forwarded && (!f.canGoOn() || f.unanswered > 0 && g.before != nil && *g.before != ours) {
			g.end(f, &l.counts.unrepeated)
		}
	}
	for g.endLost(now) {
	}
	for c, f := range g.forwards {
		if f.forget(); c.phase == forwarded {
			f.conn = c
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *forward) int { return cmp.Compare(a.waitsSince(), b.waitsSince()) })
	l.number, l.sessions = g.number, g.opened
	l.gateway = nil
	l.counts.contact.Store(0)
	return list
}

// goOnServed has a client that was forwarded go on with the loop's engine.
func (f *forward) goOnServed(now time.Duration) {
	c := f.conn
	l := c.loop
	defer l.recovered()
	c.forgetLimits()
	if f.session == 0 {
		if !c.openNow(f.grant, now) {
			c.refuse(codec.ReplyOutOfMemory, now)
			return
		}
	} else if !f.restore(c, now) {
		c.cutOff(now)
		return
	}
	if c.deadline == nil {
		c.limitLife(now)
	}
	if c.intake >= finished {
		c.postpone()
	}
	if c.x != nil {
		c.conclude(now)
	}
}

// restore has the client's session, of which a leader has heard, go on in the loop's engine. This member has applied all
// that was executed for it. It reports false if it cannot.
func (f *forward) restore(c *conn, now time.Duration) bool {
	l := c.loop
	d, err := engine.Absent(f.session, f.grant, f.interests(), engine.Time(f.age(now)))
	if err != nil {
		return false
	}
	d.EndsAt(f.answered + uint64(c.pendingInput()))
	l.executing = c
	err = l.engine.GoOn(&c.session, d, 0, l.time(now))
	l.executing = nil
	if err != nil {
		return false
	}
	l.counts.resumed.Add(1)
	c.enter(serving)
	c.decide(f.answered, f.effects, f.partial)
	return true
}

// openNow opens the session of a client that no engine has heard of. It reports false if the client's account has
// as many connections as it may have.
func (c *conn) openNow(g *engine.Grant, now time.Duration) bool {
	if g != nil {
		return c.openAs(g, now)
	}
	c.enter(serving)
	l := c.loop
	l.executing = c
	l.engine.Open(&c.session, l.time(now))
	l.executing = nil
	return true
}
