package reactor

import (
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

const (
	// resumeCost is to have a session go on.
	resumeCost = 40

	// maxResumes is how many bytes there may be of sessions that are to go on, and of effects, on a trunk.
	maxResumes = 64 << 20

	// maxAnswered is so far from what a session's input can be that nobody counts that far.
	maxAnswered = journal.MaxOffset / 2
)

// resumption is a session that is to go on on the loop; or, without a channel, what follows on the last that its gateway
// has named.
type resumption struct {
	end     *leaderEnd
	channel *channel
	session *engine.Detached
	size    int
}

// resume has a session of the gateway go on, or takes a part of what is known of it.
func (e *leaderEnd) resume(it *trunk.Item) error {
	r, err := trunk.ParseResume(it.Data)
	n := it.Channel
	begun, begins := e.resumes[n]
	g := e.grants[it.Number].Grant
	switch {
	case err != nil:
		return err
	case e.attached || e.left:
		return e.misuse(n, "a resume behind the last")
	case g == nil && it.Number != 0:
		return e.misuse(n, noGrant(it.Number))
	case journal.NumberOf(r.Session) != e.number || begins && begun.Session != r.Session:
		return e.misuse(n, "a resume of another session")
	case r.Partial > 0 && !r.Unanswered || r.Answered > maxAnswered:
		return e.misuse(n, "a resume behind what can have been answered")
	case e.isOpen(n):
		return e.misuse(n, "it is open")
	}
	size := len(it.Data)
	if begins {
		r.Watched, r.Weights = append(begun.Watched, r.Watched...), append(begun.Weights, r.Weights...)
		size += begun.size
	}
	if e.resumed += len(it.Data); e.resumed > maxResumes {
		return e.misuse(n, "more sessions at a time than may go on")
	}
	if it.Flags&trunk.More != 0 {
		e.resumes[n] = resumePart{r, size}
		return nil
	}
	delete(e.resumes, n)
	was, err := engine.Absent(r.Session, g, engine.Interests{
		Used: r.Used, Watched: r.Watched, Weights: r.Weights, Mode: r.Mode, Info: r.Info,
	}, engine.Time(r.Age))
	if err != nil {
		return e.misuse(n, err.Error())
	}
	e.last = max(e.last, r.Session)
	h := e.channel(n, g, &r.Open)
	h.received, h.ends, h.before, h.told = r.Answered, r.Answered, r.Answered, r.Answered
	h.resumes = true
	if r.Unanswered {
		h.loop.decide(&h.conn, &decided{at: r.Answered, partial: int(r.Partial), awaits: true})
	}
	h.loop.resumptions.Push(resumption{end: e, channel: h, session: was, size: size})
	return nil
}

// resumePart is what has come of a resume of which more is to come.
type resumePart struct {
	trunk.Resume
	size int
}

// attach is told that all of the gateway's sessions were named that go on.
func (e *leaderEnd) attach() error {
	if e.attached || len(e.resumes) > 0 {
		return e.misuse(0, "it is attached, or not yet")
	}
	e.attached = true
	e.loop.resumptions.Push(resumption{end: e})
	return nil
}

// canResume tells whether a session may go on now.
func (l *loop) canResume() bool { return !l.resumptions.Empty() && !l.held }

// resumeNext has the first session go on that is to. Behind the last of a gateway those end that it has not
// named: their clients have gone.
func (l *loop) resumeNext(now time.Duration) {
	r := l.resumptions.Pop()
	l.engine.Spend(resumeCost)
	r.end.resumed -= r.size
	switch {
	case r.end.Over(): // it will name its sessions on another trunk
	case r.channel == nil:
		l.server.engine.Load().CloseAbsent(r.end.number)
	case r.channel.phase < broken:
		r.channel.goOn(now, r.session)
	}
}

// goOn has the channel's session go on, with what has come for it meanwhile.
func (h *channel) goOn(now time.Duration, was *engine.Detached) {
	l := h.loop
	defer l.recovered()
	h.resumes = false
	l.executing = &h.conn
	err := l.engine.GoOn(&h.session, was, 0, l.time(now))
	l.executing = nil
	if err != nil {
		h.loseTrack(err.Error(), &l.counts.unknown)
		h.conclude(now)
		return
	}
	l.counts.resumed.Add(1)
	h.enter(serving)
	h.limitLife(now)
	h.session.Received(h.InputLen())
	if h.Ended() && !h.leaving {
		h.endInput(now)
	} else {
		h.advance(now)
	}
	h.conclude(now)
}

// effects takes what the log tells of a resumed session.
func (h *channel) effects(it *trunk.Item) error {
	e, l := h.leader(), h.loop
	d := l.decided[&h.conn]
	if d == nil || !d.awaits {
		return e.misuse(h.number, "effects that nobody waits for")
	}
	before := len(d.effects)
	var err error
	if d.effects, err = trunk.AppendEffects(d.effects, h.id, it.Data); err != nil {
		return err
	}
	for i := max(before, 1); i < len(d.effects); i++ {
		if d.effects[i].Offset < d.effects[i-1].Offset {
			return e.misuse(h.number, "effects out of their order")
		}
	}
	if e.resumed += len(it.Data); e.resumed > maxResumes {
		return e.misuse(h.number, "more effects than may be kept")
	}
	if it.Flags&trunk.Last == 0 {
		return nil
	}
	e.resumed -= len(d.effects) * trunk.EffectSize
	d.effects = slices.Compact(d.effects) // an entry that is read again tells of its effects again
	if d.awaits = false; d.over() {
		delete(l.decided, &h.conn)
	}
	return nil
}

// forgetDecided is for a connection that has ended.
func (c *conn) forgetDecided() {
	d := c.loop.decided[c]
	if d == nil {
		return
	}
	if d.awaits {
		c.channel().leader().resumed -= len(d.effects) * trunk.EffectSize
	}
	delete(c.loop.decided, c)
}
