package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// reserve takes the first ready job of all watched tubes, or that of the tube which the
// session's weights choose, or waits until the given time for one.
func (s *Session) reserve(now, until Time, out *Output) Outcome {
	s.becomeWorker()
	var q shard.Request
	s.request(&q, now, until)
	v, err := s.loop.tx.Reserve(now, &q, out)
	switch {
	case v == shard.MustWait:
		s.wait.batch = 0
		return Wait
	case v != shard.GotJob:
		s.timedOut(out, v, 0)
	case err != nil:
		out.Answer(err, "")
	}
	return Done
}

// request makes q, which is zero, what the session reserves by.
func (s *Session) request(q *shard.Request, now, until Time) {
	q.Client, q.Until = &s.client, until
	q.Informed, q.Aged = s.client.Flags&isInformed != 0, s.client.Flags&isAged != 0
	if s.client.Flags&isWeighted != 0 {
		q.Weights = s.loop.weights[s]
	}
	if s.client.Flags&halfClosed != 0 {
		q.Until = now
	}
}

func (s *Session) reserveJob(now Time, cmd *codec.Command, out *Output) Outcome {
	works, err := s.loop.tx.ReserveJob(now, cmd.ID, &s.client, s.client.Flags&isInformed != 0, out)
	if works {
		s.becomeWorker()
	}
	return s.changed(err, cmd, out, "")
}

func (s *Session) becomeWorker() {
	if s.client.Flags&isWorker == 0 {
		s.client.Flags |= isWorker
		s.loop.counts.workers.Add(1)
	}
}
