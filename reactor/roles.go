package reactor

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/relay"
)

// A server leads, with an engine, or forwards its clients, with a gateway in each loop, or waits, with neither,
// and is held. It changes from one to the other while its clients stay: Detach and Forward make a leader a
// gateway, Attach makes that a leader.

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
			l.gateway.SetNumber(n)
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

// stopDialling keeps the loops from beginning a trunk, whatever is being dialled. Server.mu is not held.
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
func (s *Server) terms() relay.Terms {
	return relay.Terms{MaxJobSize: s.cfg.MaxJobSize, Extensions: s.cfg.Extensions}
}

// endTrunks ends all trunks of the loop.
func (l *loop) endTrunks(now time.Duration, why error) {
	for _, t := range l.links.All() {
		t.Part(now, why)
	}
}

// beginForwarding makes a loop without an engine forward its clients. Those that are not on record are reset.
func (l *loop) beginForwarding() {
	defer l.recovered()
	if l.gateway != nil {
		return
	}
	now := l.server.now()
	g := newGateway(l, now)
	// It led when it was held: what it had executed was committed later.
	g.AfterLeading(now, l.number, l.sessions, l.server.terms(), time.Duration(l.server.heldSince.Load()))
	l.effects.number.Store(l.number)
	l.gateway = g
	for _, c := range slices.Clone(l.conns) {
		if d := l.detached[c]; d != nil && c.phase < draining && !c.goOnForwarded(d, now) {
			c.cutOff(now)
		}
	}
	l.detached = nil
	l.release()
}

// goOnForwarded forwards a client whose session is on record. It reports false if it cannot be.
func (c *conn) goOnForwarded(d *engine.Detached, now time.Duration) bool {
	l := c.loop
	head, ok := c.unexecuted(d)
	if d.ID() == 0 || !ok {
		return false
	}
	c.decoder.Release()
	if len(head) > 0 {
		c.needBacklog().In.Prepend(&l.streams.Counts, head)
	}
	c.enter(forwarded)
	x := relay.Session{
		ID: d.ID(), Grant: l.granted[c], Interests: d.Interests(), Age: max(0, now-l.duration(d.WaitsSince())),
		Answered: d.Offset(), Unanswered: len(head), // where it ends, this server's terms have decided
	}
	if id := d.Handed(); id != 0 { // the log tells of that as of what the wait has done
		end := x.Answered + uint64(len(head))
		x.Effects = []journal.Effect{{Session: x.ID, Offset: end, ID: id, Kind: journal.EffectHold}}
	}
	l.gateway.clients[c] = l.gateway.Resume(now, (*forwardedConn)(c), &x)
	c.forgetLimits()
	if c.Pending() != nil {
		c.conclude(now)
	}
	return true
}

// forgetLimits takes the limits off the connection that are the leader's to set.
func (c *conn) forgetLimits() {
	if x := c.backlogOrNil(); x != nil && x.retired == tooOld {
		x.retired = notRetired
	}
	c.forgetDeadline()
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

// served is a client that was forwarded, and is to be served with the loop's engine.
type served struct {
	conn    *conn
	session relay.Session
}

// endForwarding ends what the loop has of a gateway, and returns those of its clients that go on. It is held then.
func (l *loop) endForwarding(now time.Duration) (list []served) {
	g := l.gateway
	if g == nil {
		return nil
	}
	l.held = true
	l.endTrunks(now, errLeads)
	g.takeApplied()
	released := g.Release(l.server.terms())
	for w := g.NextLoss(); w.Do != relay.Nothing; w = g.NextLoss() {
		g.fulfil(now, &w)
	}
	for _, f := range released {
		if f.Conn() != nil {
			list = append(list, served{(*conn)(f.Conn().(*forwardedConn)), g.Session(f, now)})
		}
	}
	for c := range g.clients {
		c.forgetForwarded()
	}
	l.number, l.sessions = g.Number()
	l.gateway = nil
	l.counts.contact.Store(0)
	return list
}

// goOn serves the client with the loop's engine.
func (x *served) goOn(now time.Duration) {
	c := x.conn
	l := c.loop
	defer l.recovered()
	c.forgetLimits()
	if x.session.ID == 0 {
		if !c.openNow(x.session.Grant, now) {
			c.refuse(codec.ReplyOutOfMemory, now)
			return
		}
	} else if !c.restore(&x.session, now) {
		c.cutOff(now)
		return
	}
	if c.deadline == nil {
		c.limitLife(now)
	}
	if c.Ended() {
		c.postpone()
	}
	if c.Pending() != nil {
		c.conclude(now)
	}
}

// restore resumes the client's session, of which a leader has heard, in the loop's engine. This member has applied
// all that was executed for it. It reports false if it cannot.
func (c *conn) restore(x *relay.Session, now time.Duration) bool {
	l := c.loop
	d, err := engine.Absent(x.ID, x.Grant, x.Interests, engine.Time(x.Age))
	if err != nil {
		return false
	}
	d.EndsAt(x.Answered + uint64(c.InputLen()))
	l.executing = c
	err = l.engine.GoOn(&c.session, d, 0, l.time(now))
	l.executing = nil
	if err != nil {
		return false
	}
	l.counts.resumed.Add(1)
	c.enter(serving)
	if d := relay.NewReplay(x.Answered, x.Effects, x.Partial); d != nil {
		l.replay(c, d)
	}
	return true
}
