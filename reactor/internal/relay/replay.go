package relay

import (
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/trunk"
)

// When a trunk has ended, clients wait for the next one, with what they have sent and have no answer to. Then their
// sessions go on there. What they have no answer to is sent again when this member has applied all that was executed
// of it, with what its log tells of that, so that nothing is executed twice.

// rewind makes a client whose trunk has ended ready for the next one. It reports false if it cannot go on there:
// nobody knows what its next reply is.
func (g *Gateway) rewind(f *Client) bool {
	if k := f.input; k != nil {
		if f.replay == nil {
			f.replay = new(replay)
		}
		f.replay.unanswered += k.n
		if f.isRepeatable() {
			f.conn.ReturnInput(k.pieces())
		}
		g.dropInput(f, 0)
	}
	g.host.GiveMemory(int(f.window - trunk.FirstCredit))
	f.quota, f.window, f.credit = trunk.FirstCredit, trunk.FirstCredit, trunk.FirstCredit
	f.sent = f.answered
	return f.isRepeatable()
}

// canReplay reports whether what the log tells of the client's commands is of what it has sent, which can be sent
// again.
func (f *Client) canReplay() bool {
	if f.replay == nil {
		return f.isRepeatable()
	}
	last := len(f.replay.effects) - 1
	return f.isRepeatable() && (last < 0 || f.replay.effects[last].Offset <= f.given())
}

// endReplay forgets the replay when nothing is left of it.
func (f *Client) endReplay() {
	if r := f.replay; r.unanswered == 0 && len(r.effects) == 0 && !r.complete {
		f.replay = nil
	}
}

// resume continues the client's session at the leader.
func (g *Gateway) resume(f *Client, now time.Duration) {
	grant, ok := g.assign(f)
	if !ok {
		return
	}
	var effects []journal.Effect
	if f.replay != nil {
		effects = f.replay.effects
	}
	fenced := f.unanswered() > 0 || len(effects) > 0
	x := f.interests()
	r := trunk.Resume{
		Open: f.conn.Open(f.session), Answered: f.answered, Partial: f.partial, Unanswered: fenced, Age: f.age(now),
		Mode: x.Mode, Info: x.Info, Abort: x.Abort && g.leader.version >= trunk.AbortsSince,
		Used: x.Used, Watched: x.Watched, Weights: x.Weights,
	}
	k := &g.link
	for len(r.Watched) > 0 {
		k.data = r.Append(k.data[:0])
		it := trunk.Item{Kind: trunk.KindResume, Channel: f.channel, Number: grant, Data: k.data}
		if len(r.Watched) > 0 {
			it.Flags = trunk.More
		}
		k.send(it)
	}
	switch {
	case !fenced:
		f.move(serving)
	case f.replay.complete:
		f.move(serving)
		g.sayEffects(f)
	default:
		f.move(replaying)
		k.fenced.push(f)
		g.log.applied = 0 // what is known of the log is not shared out with this client yet
		g.host.AwaitApplied(g.leader.fence)
	}
}

// canReplay reports whether a client may go on that waits for the fence.
func (g *Gateway) canReplay() bool {
	k := &g.link
	return k.stage == attached && !k.fenced.empty() && g.log.applied >= g.leader.fence && g.takes(trunk.MaxData)
}

// replayNext tells the leader what was executed for a client of what is sent again behind that.
func (g *Gateway) replayNext() {
	f := g.link.fenced.pop()
	switch {
	case f.state != replaying:
	case !f.canReplay():
		g.lose(f, Unrepeatable)
	default:
		f.move(serving)
		g.sayEffects(f)
		g.AskTurn(f)
	}
}

// sayEffects tells the leader what was executed of what the client has no answer to.
func (g *Gateway) sayEffects(f *Client) {
	k := &g.link
	it := trunk.Item{Kind: trunk.KindEffects, Channel: f.channel, Data: k.data[:0]}
	for i := range f.replay.effects {
		if len(it.Data)+trunk.EffectSize > trunk.MaxData {
			k.send(it)
			it.Data = it.Data[:0]
		}
		it.Data = trunk.AppendEffect(it.Data, &f.replay.effects[i])
	}
	k.data, it.Flags = it.Data, trunk.Last
	k.send(it)
}

// dropEffects drops those of commands that are answered.
func (f *Client) dropEffects() {
	r := f.replay
	r.effects = slices.DeleteFunc(r.effects, func(e journal.Effect) bool { return e.Offset <= f.answered })
	if len(r.effects) == 0 {
		r.effects = nil
	}
	f.endReplay()
}
