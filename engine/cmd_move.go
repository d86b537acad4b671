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
	return movingJob{cmd.ID, string(cmd.Tube)}.turn(s, now, out)
}

func (m movingJob) turn(s *Session, now Time, out *Output) Outcome {
	e := s.loop.engine
	to := e.shardFor([]byte(m.to))
	for {
		p := e.ids.Get(m.id)
		if p == 0 {
			s.notFound(nil, out, codec.ReplyNotFound)
			return Done
		}
		from := e.shards[p.Shard()]
		set := shardSet(1<<from.number | 1<<to.number)
		s.lockAll(set, now)
		r, j := from.find(m.id)
		if j == nil { // it has gone, or moved
			s.unlockAll(set)
			continue
		}
		if j.state == reserved && !from.reservedBy(s.reserved, j) || j.state == tombstone {
			s.notFound(from, out, codec.ReplyNotFound)
			s.unlockAll(set)
			return Done
		}
		s.loop.Spend(j.moveCost())
		err := from.move(r, j, to, m.to, out)
		s.unlockAll(set)
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
}

// A slice of a move-tube ends with the first job that exceeds these together.
const (
	moveSlice      = 2 * scanSlice // its cost
	moveSliceBytes = 64 << 10      // of bodies that are copied
)

// moveTube moves the first jobs of a tube in one state to another tube.
func (s *Session) moveTube(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	b := bulkOf(t, move, stateOf(cmd.State), cmd.Bound)
	b.to, b.target = s.loop.engine.shardFor(cmd.To), string(cmd.To)
	b.locks |= b.to.self
	if b.tube == b.target {
		b.most = 0
	}
	sh.unlock(&s.loop.locks)
	return b.turn(s, now, out)
}
