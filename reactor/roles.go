package reactor

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
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

// endTrunks ends all trunks of the loop.
func (l *loop) endTrunks(now time.Duration, why error) {
	for _, t := range slices.Clone(l.trunks.list) {
		t.fail(now, why)
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
	g.number, g.opened = l.number, l.sessions
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
		c.backlog().in.prepend(head, &l.counts)
	}
	f := &forward{conn: c, grant: l.granted[c], session: d.ID(), sent: d.Offset(), answered: d.Offset()}
	f.setInterests(d.Interests())
	c.enter(forwarded)
	l.gateway.forwards[c], l.gateway.sessions[f.session] = f, f
	f.asked = min(now, l.duration(d.WaitsSince()))
	f.await(now)
	if c.x != nil {
		c.conclude(now)
	}
	return true
}

// unexecuted is what the client has sent of a command that is not finished, and was taken out of its input. It
// reports false if it is not known any more.
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
	for c := takeLast(&g.lost); c != nil; c = takeLast(&g.lost) {
		c.trunkLost(now)
	}
	for c, f := range g.forwards {
		if f.forget(); c.phase == forwarded {
			f.conn = c
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *forward) int { return cmp.Compare(a.asked, b.asked) })
	l.number, l.sessions = g.number, g.opened
	l.gateway = nil
	return list
}

// goOnServed has a client that was forwarded go on with the loop's engine.
func (f *forward) goOnServed(now time.Duration) {
	c := f.conn
	l := c.loop
	defer l.recovered()
	if d := c.deadline; d != nil && !d.ending && !c.retired() {
		l.deadlines.remove(d)
		c.deadline = nil
	}
	if f.session == 0 {
		if !c.openNow(f.grant, now) {
			c.refuse(codec.ReplyOutOfMemory, now)
			return
		}
	} else if err := f.restore(c, now); err != nil {
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

// restore has the client's session, which a leader knew, go on in the loop's engine.
func (f *forward) restore(c *conn, now time.Duration) error {
	l := c.loop
	age := engine.Time(0)
	if c.pendingInput() > 0 {
		age = engine.Time(now - f.asked)
	}
	d, err := engine.Absent(f.session, f.grant, f.interests(), age)
	if err != nil {
		return err
	}
	l.executing = c
	err = l.engine.GoOn(&c.session, d, 0, l.time(now))
	l.executing = nil
	if err == nil {
		c.enter(serving)
	}
	return err
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
