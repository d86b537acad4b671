package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
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
		out.reply(codec.ReplyJobTooBig)
	case codec.OpReserve:
		return s.reserve(now, MaxTime, out)
	case codec.OpReserveWithTimeout:
		return s.reserve(now, now+seconds(cmd.Timeout), out)
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
		s.peek(now, cmd.ID, out)
	case codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		s.peekFirst(now, cmd.Op, out)
	case codec.OpUse:
		s.use(now, cmd.Tube, out)
	case codec.OpWatch:
		s.watch(now, cmd.Tube, uint16(cmd.Weight), out)
	case codec.OpIgnore:
		s.ignore(now, cmd.Tube, out)
	case codec.OpListTubes:
		return s.listTubes(now, out)
	case codec.OpListTubeUsed:
		out.Buf = codec.AppendUsing(out.Buf, s.used.name)
	case codec.OpListTubesWatched:
		return s.listTubesWatched(now, out)
	case codec.OpStats:
		s.stats(now, out)
	case codec.OpStatsJob:
		s.statsJob(now, cmd.ID, out)
	case codec.OpStatsTube:
		s.statsTube(now, cmd.Tube, out)
	case codec.OpQuit:
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
		out.reply(codec.ReplyUnknownCommand)
	case codec.OpHTTP:
		out.reply(codec.ReplyUnknownCommand)
		return Quit
	default:
		out.reply(codec.ReplyBadFormat)
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

// changed ends a command that was to change one job and holds the lock of its shard:
// it appends the reply, or why the change was not made, or has the command executed
// again when the journal has room.
func (s *Session) changed(sh *shard, err error, cmd *codec.Command, out *Output, reply string) Outcome {
	sh.unlock(&s.loop.locks)
	return s.answerChange(err, cmd, out, reply)
}

// answerChange is changed without a lock.
func (s *Session) answerChange(err error, cmd *codec.Command, out *Output, reply string) Outcome {
	switch {
	case err == nil:
		out.reply(reply)
	case errors.Is(err, journal.ErrRoom):
		again := retry(*cmd)
		again.Tube, again.Body = nil, nil
		return s.awaitRoom(&again)
	default:
		out.refuse(err)
	}
	return Done
}

// lockTube locks the shard of the tube of that name and returns the tube. If there is
// none, it appends NOT_FOUND, holds no lock, and t is nil.
func (s *Session) lockTube(now Time, name []byte, out *Output) (sh *shard, t *tube) {
	sh = s.loop.engine.shardFor(name)
	sh.lock(&s.loop.locks, now)
	if t = sh.byName[string(name)]; t == nil {
		s.notFound(sh, out, codec.ReplyNotFound)
		sh.unlock(&s.loop.locks)
	}
	return sh, t
}

// lockJob locks the shard of a job and returns the job. If there is none, it appends
// NOT_FOUND, holds no lock, and sh is nil.
func (s *Session) lockJob(now Time, id uint64, out *Output) (sh *shard, r ref, j *job) {
	if sh, r, j = s.loop.engine.lockJob(&s.loop.locks, id, now); sh == nil {
		s.notFound(nil, out, codec.ReplyNotFound)
	}
	return sh, r, j
}

// lockReserved is lockJob for a job that the session has reserved. Others are not found.
func (s *Session) lockReserved(now Time, id uint64, out *Output) (sh *shard, r ref, j *job) {
	if sh, r, j = s.lockJob(now, id, out); sh != nil && !sh.reservedBy(s.reserved, j) {
		s.refuseJob(sh, out)
		return nil, 0, nil
	}
	return sh, r, j
}

// refuseJob releases the lock of the shard of a job to which the command may not be done, and
// appends NOT_FOUND.
func (s *Session) refuseJob(sh *shard, out *Output) Outcome {
	sh.unlock(&s.loop.locks)
	s.notFound(sh, out, codec.ReplyNotFound)
	return Done
}

// lockJobWith locks the shard of a job, and all that are in set, and returns the job and what
// it has locked. If there is no such job, it appends NOT_FOUND, holds no lock, and sh is nil.
func (s *Session) lockJobWith(set shardSet, now Time, id uint64, out *Output) (sh *shard, r ref, j *job, locked shardSet) {
	e := s.loop.engine
	for {
		p := e.ids.Get(id)
		if p == 0 {
			s.notFound(nil, out, codec.ReplyNotFound)
			return nil, 0, nil, 0
		}
		sh = e.shards[p.Shard()]
		locked = set | sh.self
		s.lockAll(locked, now)
		if r, j = sh.find(id); j != nil {
			return sh, r, j, locked
		}
		s.unlockAll(locked) // it has gone, or moved
	}
}

// notFound appends a reply that says that a job or tube is not there, or not as it
// would have to be. A nil shard stands for all.
func (s *Session) notFound(sh *shard, out *Output, reply string) {
	if e := s.loop.engine; e.cfg.Journal != nil {
		if sh != nil {
			out.dependOn(sh.dependsOnEnds())
		} else {
			for _, sh := range e.shards {
				out.dependOn(sh.dependsOnEnds())
			}
		}
	}
	out.reply(reply)
}
