package relay

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// Replay is the input of a resumed session that an earlier leader may have executed, and the log records that say
// what it did.
type Replay struct {
	session uint64
	at      uint64           // how much of the session's input the decoder has taken
	effects []journal.Effect // of commands that end behind that, by offset
	partial int              // how many bytes of the replies to what follows the client has got already
	awaits  bool             // more effects are to come, and until then no input
}

// NewReplay returns the replay of a session's input behind so many bytes that are answered. Of the replies to what
// follows the client has got some bytes already. It is nil if all that follows is executed as ever.
func NewReplay(answered uint64, effects []journal.Effect, partial uint32) *Replay {
	d := &Replay{at: answered, effects: effects, partial: int(partial)}
	if d.IsOver() {
		return nil
	}
	return d
}

// IsOver reports whether all that follows is executed as ever.
func (d *Replay) IsOver() bool { return len(d.effects) == 0 && d.partial == 0 && !d.awaits }

// AwaitsEffects reports whether more effects are to come.
func (d *Replay) AwaitsEffects() bool { return d.awaits }

// Partial is how many bytes of the replies that follow the client has got already.
func (d *Replay) Partial() int { return d.partial }

// Skipped says that n bytes of the replies that follow, which the client has got, are not sent.
func (d *Replay) Skipped(n int) { d.partial -= n }

// add takes effects of an item.
func (d *Replay) add(it *trunk.Item) (err error) {
	before := len(d.effects)
	if d.effects, err = trunk.AppendEffects(d.effects, d.session, it.Data); err != nil {
		return err
	}
	for i := max(before, 1); i < len(d.effects); i++ {
		if d.effects[i].Offset < d.effects[i-1].Offset {
			return misuse(it.Channel, "effects out of their order")
		}
	}
	return nil
}

// complete says that all effects have come. An entry that is read again tells of its effects again.
func (d *Replay) complete() {
	d.effects = slices.Compact(d.effects)
	d.awaits = false
}

// Decoded takes the effects of what the decoder has taken, n bytes, which end a command if whole. It reports false if
// one is of a command that would have ended elsewhere.
func (d *Replay) Decoded(n int, whole bool) (effects []journal.Effect, fit bool) {
	d.at += uint64(n)
	n = 0
	for n < len(d.effects) && d.effects[n].Offset <= d.at {
		if !whole || d.effects[n].Offset < d.at {
			return nil, false
		}
		n++
	}
	effects, d.effects = d.effects[:n], d.effects[n:]
	return effects, true
}

// Execute answers a command that has had these effects, or executes it. It reports false for known if that cannot
// have the result that it had: a command without effects before one that has some, or whose replies the client has in
// part, is executed only if that is bound to have the same result. Otherwise nobody knows what the client was told,
// or would have been.
func (d *Replay) Execute(
	s *engine.Session, at engine.Time, cmd *codec.Command, effects []journal.Effect, out *engine.Output,
) (outcome engine.Outcome, known, repeated bool) {
	last := len(d.effects) == 0
	answer := engine.NotDone
	if len(effects) > 0 {
		answer, outcome = s.Answer(at, cmd, effects, out)
		switch answer {
		case engine.SameAnswer:
			known = true
		case engine.OtherAnswer:
			known = d.partial == 0
		case engine.NotDone:
			if known = d.partial == 0 && last; known {
				outcome = s.Execute(at, cmd, out)
			}
		}
	} else if known = s.Harmless(cmd); known {
		outcome = s.Execute(at, cmd, out)
	}
	switch {
	case outcome == engine.Wait && d.partial > 0, outcome == engine.Quit && !last:
		known = false
	case known && answer != engine.NotDone:
		repeated = true
	}
	return outcome, known, repeated
}
