package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// movingJob is a move-job.
type movingJob struct {
	id uint64
	to string
}

// moveJob moves a job to another tube. A job that the session has reserved is ready there.
func (s *Session) moveJob(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.refuseToken(cmd.Tube, out) {
		return Done
	}
	return movingJob{cmd.ID, string(cmd.Tube)}.turn(s, now, out)
}

func (m movingJob) turn(s *Session, now Time, out *Output) Outcome {
	to := s.loop.engine.shardFor([]byte(m.to))
	from, r, j, locked := s.lockJobWith(to.self, now, m.id, out)
	if from == nil {
		return Done
	}
	if j.state == reserved && !from.reservedBy(s.reserved, j) || j.state == tombstone {
		s.notFound(from, out, codec.ReplyNotFound)
		s.unlockAll(locked)
		return Done
	}
	s.loop.Spend(j.moveCost())
	err := from.move(r, j, to, m.to, out)
	s.unlockAll(locked)
	switch {
	case err == nil:
		out.reply(codec.ReplyMoved)
	case errors.Is(err, journal.ErrRoom):
		return s.awaitRoom(m)
	default:
		out.refuse(err)
	}
	return Done
}

// A slice of a move-tube ends with the first job that exceeds these together.
const (
	moveSlice      = 2 * scanSlice // its cost
	moveSliceBytes = 64 << 10      // of bodies that are copied
)

// moveTube moves the first jobs of a tube in one state to another tube.
func (s *Session) moveTube(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.refuseToken(cmd.To, out) {
		return Done
	}
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	var b bulk
	b.begin(t, move, stateOf(cmd.State), cmd.Bound)
	b.to, b.target = s.loop.engine.shardFor(cmd.To), string(cmd.To)
	b.locks |= b.to.self
	if b.tube == b.target {
		b.most = 0
	}
	sh.unlock(&s.loop.locks)
	return b.turn(s, now, out)
}
