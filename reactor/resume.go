package reactor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/trunk"
)

// When a trunk has ended, the clients of a gateway wait for the next one, with what they have sent and what they have no
// answer to. Then their sessions go on there. What they have no answer to is sent again when this member has applied
// all that was executed of it, with what its log tells of that, so that nothing is executed twice.

// terms are what a leader lets clients do, as far as it decides where commands end.
type terms struct {
	maxJobSize uint32
	extensions bool
}

// begin begins to forward on a trunk whose leader has said what it is. Who has waited longest is first.
func (g *gateway) begin(it *trunk.Item) error {
	w, err := trunk.ParseWelcome(it.Data)
	s := g.loop.server
	switch {
	case err != nil:
		return err
	case w.Version == 0 || w.Version > cmp.Or(s.hooks.trunks, trunk.Version):
		return fmt.Errorf("the leader speaks version %d on trunks", w.Version)
	case g.welcomed:
		return errors.New("a second welcome")
	case !s.leads(w.Term):
		return fmt.Errorf("the leader's term %d is over", w.Term)
	}
	now := s.now()
	g.welcomed, g.version, g.fence, g.fenced = true, w.Version, w.Fence, now
	g.loop.forwards(true, now)
	s.forwarding.fence.Store(w.Fence)
	g.loop.counts.attaches.Add(1)
	g.loop.counts.apart.Add(int64(now - g.parted))
	same := terms{maxJobSize: w.MaxJobSize, extensions: w.Extensions}
	alike := g.before == nil || *g.before == same
	g.before = &same
	for _, f := range g.forwards {
		switch {
		case f.session == 0 || f.conn.phase != forwarded:
		case g.version < resumesSince && f.untouched():
			g.anew(f, now)
		case g.version < resumesSince || journal.NumberOf(f.session) != g.number || !alike && f.unanswered > 0:
			g.end(f, &g.loop.counts.trunkLost)
		}
	}
	waiting := slices.Collect(maps.Values(g.forwards))
	slices.SortFunc(waiting, func(a, b *forward) int { return cmp.Compare(a.waitsSince(), b.waitsSince()) })
	for _, f := range waiting {
		f.enqueue()
	}
	g.unnamed = g.line.len()
	g.named = g.version < resumesSince
	g.contact.begin(now)
	return nil
}

// leads tells whether no later term is known than that of a leader.
func (s *Server) leads(term uint64) bool {
	for {
		latest := s.term.Load()
		if term < latest {
			return false
		}
		if s.term.CompareAndSwap(latest, term) {
			return true
		}
	}
}

// waitsSince is when the client began to wait for what comes next from a leader. Who waits for nothing is last.
func (f *forward) waitsSince() time.Duration {
	switch {
	case f.session == 0:
		return f.since
	case f.conn != nil && f.conn.pendingInput() > 0:
		return f.asked
	}
	return never
}

// anew has a leader hear of a client that has sent nothing as of one that has just come.
func (g *gateway) anew(f *forward, now time.Duration) {
	delete(g.sessions, f.session)
	f.session = 0
	f.await(now)
}

// pause has a client whose trunk has ended wait for the next one. It reports false if it cannot go on there: nobody knows
// what its next reply is.
func (f *forward) pause() bool {
	c := f.conn
	f.barred, f.ahead, f.half = false, false, false
	if k := f.kept; k != nil {
		f.unanswered += k.n
		if f.repeatable() {
			c.backlog().in.prepend(&c.loop.counts, k.pieces()...)
		}
		f.dropKept(0)
	}
	c.loop.server.widened.Add(int64(trunk.FirstCredit - f.window))
	f.room, f.window, f.credit = trunk.FirstCredit, trunk.FirstCredit, trunk.FirstCredit
	f.sent = f.answered
	return f.repeatable()
}

// owedNothing tells whether all that the client has sent is answered.
func (f *forward) owedNothing() bool {
	c := f.conn
	return f.given() == f.answered && (c.x == nil || c.x.in.empty() && !c.x.in.rest)
}

// untouched tells whether the client's session is as a new one: it has sent nothing, here or to the server itself before that
// forwarded it.
func (f *forward) untouched() bool { return f.given() == 0 && f.wants == nil }

// repeatable tells whether what the client has sent and has no answer to can be sent to another leader.
func (f *forward) repeatable() bool { return f.answered >= f.lost && !f.mixed }

// canGoOn tells whether what the log tells of the client's commands is of what it has sent, which can be sent again.
func (f *forward) canGoOn() bool {
	last := len(f.effects) - 1
	return f.repeatable() && (last < 0 || f.effects[last].Offset <= f.given())
}

// resume has the client's session go on at the leader.
func (f *forward) resume(now time.Duration) {
	c := f.conn
	g := c.loop.gateway
	grant, ok := g.assign(f)
	if !ok {
		return
	}
	f.barred = f.unanswered > 0 || len(f.effects) > 0
	x := f.interests()
	r := trunk.Resume{
		Open: openOf(c.endpoint(), f.session), Answered: f.answered, Partial: f.partial, Unanswered: f.barred,
		Age: f.age(now), Mode: x.Mode, Info: x.Info, Used: x.Used, Watched: x.Watched, Weights: x.Weights,
	}
	for len(r.Watched) > 0 {
		g.data = r.Append(g.data[:0])
		it := trunk.Item{Kind: trunk.KindResume, Channel: f.channel, Number: grant, Data: g.data}
		if len(r.Watched) > 0 {
			it.Flags = trunk.More
		}
		g.trunk.send(&it)
	}
	switch {
	case f.barred && f.sure:
		f.tellEffects()
	case f.barred:
		g.barred.push(f)
		g.loop.effects.fence.Store(g.fence)
	}
}

// nameAll tells the leader that it has heard of all sessions that go on, once it has.
func (g *gateway) nameAll() {
	if g.welcomed && !g.named && g.unnamed == 0 {
		g.named = true
		g.trunk.send(&trunk.Item{Kind: trunk.KindAttached})
	}
}

// canGoOn tells whether a client may go on that waits for the fence.
func (g *gateway) canGoOn() bool {
	return g.named && !g.barred.empty() && g.loop.server.applied.Load() >= g.fence && g.takes(trunk.MaxData)
}

// pastFence tells the leader what was executed for the client of what is sent again behind that.
func (g *gateway) pastFence() {
	if g.loop.effects.fence.Swap(noFence) != noFence {
		g.shareEffects()
	}
	f := g.barred.pop()
	c := f.conn
	if c == nil || f.channel == 0 || c.phase != forwarded {
		return
	}
	if !f.canGoOn() {
		g.end(f, &g.loop.counts.unrepeated)
		return
	}
	f.tellEffects()
	f.enqueue()
}

// tellEffects tells the leader what was executed of what the client has no answer to.
func (f *forward) tellEffects() {
	g := f.conn.loop.gateway
	it := trunk.Item{Kind: trunk.KindEffects, Channel: f.channel, Data: g.data[:0]}
	for i := range f.effects {
		if len(it.Data)+trunk.EffectSize > trunk.MaxData {
			g.trunk.send(&it)
			it.Data = it.Data[:0]
		}
		it.Data = trunk.AppendEffect(it.Data, &f.effects[i])
	}
	g.data, it.Flags = it.Data, trunk.Last
	g.trunk.send(&it)
	f.barred = false
}
