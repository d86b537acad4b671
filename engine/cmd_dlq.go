package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// settingDeadLetters is a set-dlq.
type settingDeadLetters struct{ journal.Setting }

// setDeadLetters says where the dead letters of a tube go, or that it has none any more.
func (s *Session) setDeadLetters(now Time, cmd *codec.Command, out *Output) Outcome {
	x := &settingDeadLetters{journal.Setting{Tube: string(cmd.Tube), MaxAttempts: cmd.Bound}}
	if cmd.Bound > 0 {
		x.DeadTube = string(cmd.To)
	}
	return x.turn(s, now, out)
}

func (x *settingDeadLetters) turn(s *Session, now Time, out *Output) Outcome {
	sh := s.loop.engine.shardFor([]byte(x.Tube))
	sh.lock(&s.loop.locks, now)
	err := sh.set(&x.Setting, out)
	sh.unlock(&s.loop.locks)
	switch {
	case err == nil:
		out.reply(codec.ReplyDLQSet)
	case errors.Is(err, journal.ErrRoom):
		return s.awaitRoom(x)
	default:
		out.refuse(err)
	}
	return Done
}

// listDeadLetters lists the settings whose tubes are the client's, all as of the moment when
// it begins.
func (s *Session) listDeadLetters(now Time, out *Output) Outcome {
	all, pos := s.loop.engine.settings.snapshot()
	li := &listing{items: &settingItems{s, all}, counted: &settingItems{s, all}, pos: pos}
	return li.turn(s, now, out)
}

// settingItems are the settings in a list.
type settingItems struct {
	session *Session
	left    []*journal.Setting
}

func (si *settingItems) next(b []byte) (_ []byte, ok bool) {
	if len(si.left) == 0 {
		return b, false
	}
	x := si.left[0]
	si.left = si.left[1:]
	// A setting is the client's business if both of its tubes are, as for set-dlq. So none is
	// named here that list-tubes would not name.
	if s := si.session; s.flags&restricted != 0 && (!s.wait.grant.permits(x.Tube) || !s.wait.grant.permits(x.DeadTube)) {
		return b, true
	}
	y := yaml(b)
	y.quoted("- tube", x.Tube)
	y.number("  max-attempts", uint64(x.MaxAttempts))
	y.quoted("  dead-tube", x.DeadTube)
	return y, true
}
