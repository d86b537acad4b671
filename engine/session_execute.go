package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
)

// execute executes a command, which may be one that is tried again.
func (s *Session) execute(now Time, cmd *codec.Command, out *Output) Outcome {
	switch cmd.Op {
	case codec.OpPut:
		return s.put(now, cmd, out)
	case codec.OpPutBegin:
		s.putBegin(now, cmd)
	case codec.OpPutChunk:
		s.putChunk(now, cmd.Body)
	case codec.OpPutEnd:
		return s.putEnd(now, cmd.Terminated, out)
	case codec.OpPutTooBig:
	case codec.OpPutTooBigEnd:
		out.Reply(codec.ReplyJobTooBig)
	case codec.OpReserve:
		return s.reserve(now, MaxTime, out)
	case codec.OpReserveWithTimeout:
		return s.reserve(now, now+clock.Seconds(cmd.Timeout), out)
	case codec.OpReserveJob:
		return s.reserveJob(now, cmd, out)
	case codec.OpDelete:
		return s.delete(now, cmd, out)
	case codec.OpRelease:
		return s.release(now, cmd, out)
	case codec.OpBury:
		return s.bury(now, cmd, out)
	case codec.OpTouch:
		s.touch(now, cmd.ID, out)
	case codec.OpKick:
		return s.kick(now, cmd.Bound, out)
	case codec.OpKickJob:
		return s.kickJob(now, cmd, out)
	case codec.OpPeek:
		return s.peek(now, cmd, out)
	case codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		return s.peekFirst(now, cmd.Op, out)
	case codec.OpUse:
		s.use(now, cmd.Tube, out)
	case codec.OpWatch:
		s.watch(now, cmd.Tube, uint16(cmd.Weight), out)
	case codec.OpIgnore:
		s.ignore(now, cmd.Tube, out)
	case codec.OpListTubes:
		return s.listTubes(now, out)
	case codec.OpListTubeUsed:
		out.Buf = codec.AppendUsing(out.Buf, s.client.TubeUsed())
	case codec.OpListTubesWatched:
		return s.listTubesWatched(now, out)
	case codec.OpStats:
		s.stats(now, out)
	case codec.OpStatsJob:
		s.statsJob(now, cmd.ID, out)
	case codec.OpStatsTube:
		s.statsTube(now, cmd.Tube, out)
	case codec.OpQuit:
		s.client.Flags |= saidQuit
		return Quit
	case codec.OpCapabilities:
		s.capabilities(out)
	case codec.OpListJobs:
		return s.listJobs(now, cmd, out)
	case codec.OpPeekTube:
		return s.peekTube(now, cmd, out)
	case codec.OpReserveBatch:
		return s.reserveBatch(now, cmd, out)
	case codec.OpReserveMode:
		s.reserveMode(cmd, out)
	case codec.OpTouchAll:
		return s.touchAll(now, out)
	case codec.OpDrainStatus:
		s.drain(cmd.Op, out)
	case codec.OpListDLQ:
		return s.listDeadLetters(now, out)
	case codec.OpListSettings:
		return s.listSettings(now, cmd, out)
	case codec.OpStatsOwnConn:
		s.statsOwnConn(now, out)
	case codec.OpStatsConn:
		return s.statsConn(cmd.ID, out)
	case codec.OpListConns:
		return s.listConns(now, cmd, out)
	case codec.OpStatsTubeX:
		s.statsTubeX(now, cmd.Tube, out)
	case codec.OpStatsTubes:
		return s.listTubeStats(now, cmd, out)
	case codec.OpStatsGroup:
		s.statsGroup(cmd.Tube, out)
	case codec.OpListAccounts:
		return s.listAccounts(now, out)
	case codec.OpPauseTube, codec.OpFlushTube, codec.OpKickTube, codec.OpMoveJob, codec.OpMoveTube, codec.OpDeleteTubeJobs,
		codec.OpSetDLQ, codec.OpSetTube, codec.OpDrain, codec.OpUndrain, codec.OpKickConn, codec.OpReload:
		return s.audited(now, cmd, out)
	case codec.OpUnknown, codec.OpAuth:
		out.Reply(codec.ReplyUnknownCommand)
	case codec.OpHTTP:
		out.Reply(codec.ReplyUnknownCommand)
		return Quit
	default:
		out.Reply(codec.ReplyBadFormat)
	}
	return Done
}

// manage executes a command that Config.Audit is told of.
func (s *Session) manage(now Time, cmd *codec.Command, out *Output) Outcome {
	switch cmd.Op {
	case codec.OpPauseTube:
		s.pauseTube(now, cmd.Tube, cmd.Delay, out)
	case codec.OpFlushTube:
		return s.flushTube(now, cmd, out)
	case codec.OpKickTube:
		return s.kickTube(now, cmd, out)
	case codec.OpMoveJob:
		return s.moveJob(now, cmd, out)
	case codec.OpMoveTube:
		return s.moveTube(now, cmd, out)
	case codec.OpDeleteTubeJobs:
		return s.deleteTubeJobs(now, cmd, out)
	case codec.OpSetDLQ:
		return s.setDeadLetters(now, cmd, out)
	case codec.OpSetTube:
		return s.setTube(now, cmd, out)
	case codec.OpKickConn:
		return s.kickConn(cmd.ID, out)
	case codec.OpReload:
		return s.reload()
	case codec.OpDrain, codec.OpUndrain:
		s.drain(cmd.Op, out)
	}
	return Done
}

// changed ends a command that was to change one job, or to show it: it appends the reply, or why the change was not
// made, or has the command executed again when the journal has room, or the body is in memory.
func (s *Session) changed(now Time, err error, cmd *codec.Command, out *Output, reply string) Outcome {
	if err == nil {
		out.Reply(reply)
		return Done
	}
	load := awaited(err)
	if load == nil && !errors.Is(err, journal.ErrRoom) {
		out.Answer(err, "")
		return Done
	}
	again := retry(*cmd)
	if again.Tube, again.Body = nil, nil; load != nil {
		return s.park(now, &again, load)
	}
	return s.awaitRoom(&again)
}
