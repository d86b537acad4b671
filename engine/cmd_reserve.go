package engine

import (
	"trellis/codec"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/weights"
)

// reserve takes the first ready job of all watched tubes, or that of the tube which the
// session's weights choose, or waits until the given time for one.
func (s *Session) reserve(now, until Time, out *Output) Outcome {
	s.becomeWorker()
	waits, err := s.loop.tx.Reserve(
		now, &s.client, s.waitsUntil(now, until), s.chooser(), s.informed(), out)
	if waits {
		s.wait.batch = 0
		return Wait
	}
	if err != nil {
		if load := awaited(err); load != nil {
			return s.parkReserve(load, until, now)
		}
		out.Answer(err, "")
	}
	return Done
}

// parkReserve has a reserve wait for the body of the job that it has reserved.
func (s *Session) parkReserve(load *loads.Wait, until, now Time) Outcome {
	w := s.waiter()
	w.id, w.pos, w.until, w.batch, w.end = load.ID, load.Pos, until, 0, byJob
	if s.client.Flags&(isAged|isWaiting) == 0 {
		w.since = now // otherwise it is the same wait as before
	}
	return s.park(now, nil, load)
}

// waitsUntil is how long a reserve waits that would wait until a time.
func (s *Session) waitsUntil(now, until Time) Time {
	if s.client.Flags&halfClosed != 0 {
		return now
	}
	return until
}

// chooser is the weights by which the session's reserves choose, nil if they go by priority.
func (s *Session) chooser() *weights.Weights {
	if s.client.Flags&isWeighted == 0 {
		return nil
	}
	return s.loop.weights[s]
}

func (s *Session) reserveJob(now Time, cmd *codec.Command, out *Output) Outcome {
	works, err := s.loop.tx.ReserveJob(now, cmd.ID, &s.client, s.informed(), out)
	if works {
		s.becomeWorker()
	}
	return s.changed(now, err, cmd, out, "")
}

func (s *Session) becomeWorker() {
	if s.client.Flags&isWorker == 0 {
		s.client.Flags |= isWorker
		s.loop.counts.workers.Add(1)
	}
}
