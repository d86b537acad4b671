package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/shard"
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
	err := s.loop.tx.MoveJob(now, m.id, &s.client, m.to, out)
	if load := awaited(err); load != nil {
		return s.park(now, m, load)
	}
	if errors.Is(err, journal.ErrRoom) {
		return s.awaitRoom(m)
	}
	out.Answer(err, codec.ReplyMoved)
	return Done
}

// moveTube moves the first jobs of a tube in one state to another tube.
func (s *Session) moveTube(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.refuseToken(cmd.To, out) {
		return Done
	}
	var b shard.Bulk
	err := s.loop.tx.MoveJobs(now, &s.client, &b, cmd.Tube, cmd.State, cmd.Bound, cmd.To, out)
	return s.bulk(now, &b, "MOVED", err, out)
}
