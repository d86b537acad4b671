package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/shard"
)

// batching is a reserve-batch that has reserved jobs.
type batching struct {
	shard.Work
	most  int  // jobs that the client asks for
	until Time // when its time-out ends
}

// reserveBatch takes up to as many ready jobs as the command asks for, as that many
// reserves in one moment would, or waits for the first one.
func (s *Session) reserveBatch(now Time, cmd *codec.Command, out *Output) Outcome {
	until := now
	if cmd.Timeout > 0 {
		until += clock.Seconds(cmd.Timeout)
	}
	return s.reserveUpTo(int(cmd.Bound), now, until, out)
}

func (s *Session) reserveUpTo(count int, now, until Time, out *Output) Outcome {
	s.becomeWorker()
	b, waits, err := s.loop.tx.ReserveBatch(
		now, &s.client, s.waitsUntil(now, until), s.chooser(), s.informed(), count, out)
	switch {
	case waits:
		s.wait.batch = uint16(count)
		return Wait
	case errors.Is(err, reply.ErrTimedOut) || errors.Is(err, reply.ErrDeadlineSoon):
		s.answerNone(out, err, count)
		return Done
	case err != nil:
		out.Reply(codec.ReplyOutOfMemory)
		return Done
	}
	outcome := batching{b, count, until}.turn(s, now, out)
	if outcome == Wait {
		s.wait.since = now // see WaitingSince
	}
	return outcome
}

// handedBatch goes on with a reserve-batch that has waited for the job with the given id. It returns false if
// the session does not have that any more.
func (s *Session) handedBatch(id uint64, pos journal.Pos, count int, now Time, out *Output) (outcome Outcome, ok bool) {
	b := s.loop.tx.HandedBatch(now, &s.client, s.chooser(), s.informed(), count, id, pos)
	if b == nil {
		return Done, false
	}
	return batching{b, count, s.wait.until}.turn(s, now, out), true
}

// turn puts a part of the reply together, and sends it when it is whole.
func (b batching) turn(s *Session, now Time, out *Output) Outcome {
	_, more, err := b.Turn(&s.loop.tx, now, out)
	if load := awaited(err); load != nil {
		return s.park(now, b, load)
	}
	switch {
	case more:
		return s.yield(b)
	case errors.Is(err, journal.ErrUnreadable): // its jobs are buried, and others come next
		return s.reserveUpTo(b.most, now, b.until, out)
	case err != nil:
		return Quit
	}
	return Done
}
