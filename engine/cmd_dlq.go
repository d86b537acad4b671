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

// A listingSettings is a list-dlq. All settings are as of the moment when it began.
type listingSettings struct {
	left  []*journal.Setting // still to be counted, then still to be sent
	all   []*journal.Setting // nil when all are counted
	bytes int                // of the items of the list, as far as counted
	pos   journal.Pos
	begun bool // the reply
}

// listDeadLetters lists the settings whose tubes are the client's.
func (s *Session) listDeadLetters(now Time, out *Output) Outcome {
	all, pos := s.loop.engine.settings.snapshot()
	return (&listingSettings{left: all, all: all, pos: pos}).turn(s, now, out)
}

// turn counts, because the length of the list goes first, and then appends a part of it.
func (li *listingSettings) turn(s *Session, _ Time, out *Output) Outcome {
	for n := 0; !li.begun && len(li.left) > 0; n++ {
		if !s.loop.Spend(1) && n > 0 {
			return s.yield(li)
		}
		if li.shows(s, li.left[0]) {
			li.bytes += settingLength(li.left[0])
		}
		li.left = li.left[1:]
	}
	if !li.begun {
		li.begun, li.left = true, li.all
		out.dependOn(li.pos)
		out.Buf = codec.AppendOKLine(out.Buf, len(listHead)+li.bytes)
		out.Buf = append(out.Buf, listHead...)
	}
	full := len(out.Buf) + listPart
	for n := 0; len(li.left) > 0; n++ {
		if !s.loop.Spend(1) && n > 0 || len(out.Buf) >= full {
			return s.yield(li)
		}
		if li.shows(s, li.left[0]) {
			out.Buf = appendSetting(out.Buf, li.left[0])
		}
		li.left = li.left[1:]
	}
	out.Buf = append(out.Buf, "\r\n"...)
	return Done
}

// shows tells whether a setting is the client's business: both of its tubes are, as for
// set-dlq, and so none is named here that list-tubes would not name.
func (li *listingSettings) shows(s *Session, x *journal.Setting) bool {
	return s.flags&restricted == 0 || s.wait.grant.permits(x.Tube) && s.wait.grant.permits(x.DeadTube)
}

func appendSetting(b []byte, x *journal.Setting) []byte {
	y := yaml(b)
	y.quoted("- tube", x.Tube)
	y.number("  max-attempts", uint64(x.MaxAttempts))
	y.quoted("  dead-tube", x.DeadTube)
	return y
}

// settingLength is the length of what appendSetting appends.
func settingLength(x *journal.Setting) int {
	return len("- tube: \"\"\n  max-attempts: \n  dead-tube: \"\"\n") + len(x.Tube) + digits(uint64(x.MaxAttempts)) + len(x.DeadTube)
}
