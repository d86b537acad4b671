package engine

import (
	"trellis/codec"
)

// Execute executes one command of the session's client and appends the reply to
// out. The session must not be waiting.
func (s *Session) Execute(now Time, cmd *codec.Command, out *Output) Outcome {
	if cmd.Tally < codec.NumCommands {
		s.loop.counts.commands[cmd.Tally].Add(1)
	}
	switch cmd.Op {
	case codec.OpPut:
		s.put(now, cmd, out)
	case codec.OpPutBegin:
		s.putBegin(now, cmd)
	case codec.OpPutChunk:
		s.putChunk(cmd.Body)
	case codec.OpPutEnd:
		s.putEnd(now, cmd.Terminated, out)
	case codec.OpPutTooBig:
	case codec.OpPutTooBigEnd:
		out.reply(codec.ReplyJobTooBig)
	case codec.OpReserve:
		return s.reserve(now, MaxTime, out)
	case codec.OpReserveWithTimeout:
		return s.reserve(now, now+seconds(cmd.Timeout), out)
	case codec.OpReserveJob:
		s.reserveJob(now, cmd.ID, out)
	case codec.OpDelete:
		s.delete(now, cmd.ID, out)
	case codec.OpRelease:
		s.release(now, cmd, out)
	case codec.OpBury:
		s.bury(now, cmd, out)
	case codec.OpTouch:
		s.touch(now, cmd.ID, out)
	case codec.OpKick:
		return s.kick(now, cmd.Bound, out)
	case codec.OpKickJob:
		s.kickJob(now, cmd.ID, out)
	case codec.OpPeek:
		s.peek(now, cmd.ID, out)
	case codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		s.peekFirst(now, cmd.Op, out)
	case codec.OpUse:
		s.use(now, cmd.Tube, out)
	case codec.OpWatch:
		s.watch(now, cmd.Tube, out)
	case codec.OpIgnore:
		s.ignore(now, cmd.Tube, out)
	case codec.OpPauseTube:
		s.pauseTube(now, cmd.Tube, cmd.Delay, out)
	case codec.OpListTubes:
		return s.listTubes(out)
	case codec.OpListTubeUsed:
		out.Buf = codec.AppendUsing(out.Buf, s.used.name)
	case codec.OpListTubesWatched:
		s.listTubesWatched(out)
	case codec.OpStats:
		s.stats(now, out)
	case codec.OpStatsJob:
		s.statsJob(now, cmd.ID, out)
	case codec.OpStatsTube:
		s.statsTube(now, cmd.Tube, out)
	case codec.OpQuit:
		return Quit
	case codec.OpUnknown:
		out.reply(codec.ReplyUnknownCommand)
	default:
		out.reply(codec.ReplyBadFormat)
	}
	return Done
}

func (o *Output) reply(r string) { o.Buf = append(o.Buf, r...) }

func (o *Output) appendReserved(sh *shard, j *job) {
	o.Buf = codec.AppendReserved(o.Buf, j.id, sh.body(j))
}

func appendVerdict(b []byte, v verdict) []byte {
	if v == deadlineSoon {
		return append(b, codec.ReplyDeadlineSoon...)
	}
	return append(b, codec.ReplyTimedOut...)
}
