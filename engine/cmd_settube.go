package engine

import (
	"cmp"
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/settings"
	"trellis/engine/internal/shard"
)

// setTube is a set-tube or a set-dlq.
type setTube struct {
	tube, dead string
	pairs      codec.Pairs
	reply      string
}

// setTube changes keys of a tube's setting. While others could not read it, it is refused.
func (s *Session) setTube(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.refuseToken(cmd.Tube, out) || s.refuseToken(cmd.To, out) {
		return Done
	}
	log := s.loop.engine.Log()
	if !log.RecordsAll() || cmd.Pairs.Values[codec.KeyLinger] != 0 && !log.RecordsLinger() {
		out.Reply(codec.ReplyOutOfMemory)
		return Done
	}
	x := &setTube{tube: string(cmd.Tube), dead: string(cmd.To), pairs: *cmd.Pairs, reply: codec.ReplyTubeSet}
	return x.turn(s, now, out)
}

// setDeadLetters says where the dead letters of a tube go, or that it has none any more.
func (s *Session) setDeadLetters(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.refuseToken(cmd.Tube, out) || s.refuseToken(cmd.To, out) {
		return Done
	}
	x := &setTube{tube: string(cmd.Tube), reply: codec.ReplyDLQSet}
	x.pairs.Given[codec.KeyAttempts], x.pairs.Given[codec.KeyDead] = true, true
	if x.pairs.Values[codec.KeyAttempts] = cmd.Bound; cmd.Bound > 0 {
		x.dead = string(cmd.To)
	}
	return x.turn(s, now, out)
}

func (x *setTube) turn(s *Session, now Time, out *Output) Outcome {
	rest, err := s.loop.tx.ChangeSetting(now, x.tube, x.change, out)
	if errors.Is(err, journal.ErrRoom) {
		return s.awaitRoom(x)
	}
	if rest != nil {
		return (&outlasting{rest, x.reply}).turn(s, now, out)
	}
	out.Answer(err, x.reply)
	return Done
}

// outlasting is a set-tube by which jobs linger from now on: it puts on record what is reserved.
type outlasting struct {
	shard.Work
	reply string
}

func (o *outlasting) turn(s *Session, now Time, out *Output) Outcome {
	if _, more, _ := o.Turn(&s.loop.tx, now, out); more {
		return s.yield(o)
	}
	out.Reply(o.reply)
	return Done
}

// endOutlasting goes on with what a closed session has still to put on record, as far as the round's budget goes.
func (s *Session) endOutlasting(now Time) (done bool) {
	if s.wait == nil {
		return true
	}
	t := s.wait.task
	if a, ok := t.(*auditing); ok {
		t = a.task
	}
	o, ok := t.(*outlasting)
	if !ok {
		return true
	}
	var nobody Output
	_, more, _ := o.Turn(&s.loop.tx, now, &nobody)
	if !more {
		s.wait.task = nil
	}
	return !more
}

// change gives a policy the values of the keys that were given.
func (x *setTube) change(p *journal.Policy) {
	for i, given := range x.pairs.Given {
		key, v := &journal.PolicyKeys[i], x.pairs.Values[i]
		switch k := codec.TubeKey(i); {
		case !given:
		case k == codec.KeyDead:
			p.Dead = x.dead
		case k == codec.KeyRate:
			if p.Rate, p.Per = v, x.pairs.Per; v == 0 {
				p.Per = 1
			}
		case key.Truth != nil:
			*key.Truth(p) = v != 0
		default:
			*key.Number(p) = v
		}
	}
}

// listSettings lists the settings of all tubes, or that of one, as far as their tubes are the
// client's, all as of the moment when it begins.
func (s *Session) listSettings(now Time, cmd *codec.Command, out *Output) Outcome {
	return s.list(now, cmd.Tube, (*yaml).setting, out)
}

// listDeadLetters lists where dead letters go, as listSettings does.
func (s *Session) listDeadLetters(now Time, out *Output) Outcome {
	return s.list(now, nil, (*yaml).deadLetters, out)
}

func (s *Session) list(now Time, tube []byte, show func(*yaml, *journal.Setting), out *Output) Outcome {
	list, pos := s.loop.tx.Settings(now, tube)
	li := &listing{items: &settingItems{s, list, show}, counted: &settingItems{s, list, show}, pos: pos}
	return li.turn(s, now, out)
}

// settingItems are the settings in a list.
type settingItems struct {
	session *Session
	list    settings.Cursor
	show    func(*yaml, *journal.Setting)
}

func (si *settingItems) next(b []byte) (_ []byte, ok bool) {
	x := si.list.Next()
	if x == nil {
		return b, false
	}
	// A setting is the client's business if both of its tubes are, as for set-tube. So none is
	// named here that list-tubes would not name.
	if p := si.session.permits(); p != nil && (!p(x.Tube) || x.Dead != "" && !p(x.Dead)) {
		return b, true
	}
	y := yaml(b)
	si.show(&y, x)
	return y, true
}

func (y *yaml) setting(x *journal.Setting) {
	y.quoted("- tube", x.Tube)
	for k := range codec.NumTubeKeys {
		switch name := "  " + k.String(); {
		case k == codec.KeyDead:
			y.quoted(name, x.Dead)
		case k == codec.KeyBurst && x.Rate > 0:
			y.number(name, uint64(x.BurstInForce()))
		default:
			y.key(name)
			*y = append(journal.PolicyKeys[k].AppendValue(*y, &x.Policy), '\n')
		}
	}
}

func (y *yaml) deadLetters(x *journal.Setting) {
	if x.Attempts == 0 {
		return
	}
	y.quoted("- tube", x.Tube)
	y.number("  max-attempts", uint64(x.Attempts))
	y.quoted("  dead-tube", cmp.Or(x.Dead, x.Tube))
}
