package engine

import "trellis/engine/internal/shard"

// Stop tells the loop that the server is about to end, and closes sessions for no other reason. So
// what their clients hold has not failed.
func (l *Loop) Stop() { l.stopping = true }

// Close ends the session: what it has reserved becomes ready, or lingers, and its tubes lose it.
// It reports whether that is done. When it is much, or a job is on its way, Next goes on
// with it, and returns the session a last time when it is done.
func (s *Session) Close(now Time) (done bool) {
	if s.client.Flags&isOpen == 0 {
		return s.client.Flags&isClosing == 0
	}
	s.client.Flags ^= isOpen | isClosing
	if s.wait != nil && s.wait.task != nil {
		s.tellUnfinished()
	}
	l := s.loop
	l.engine.roll.remove(s)
	l.counts.sessions.Add(-1)
	if s.client.Flags&restricted != 0 {
		s.wait.grant.account.EndConnection()
	}
	if s.client.Flags&isProducer != 0 {
		l.counts.producers.Add(-1)
	}
	if s.client.Flags&isWorker != 0 {
		l.counts.workers.Add(-1)
	}
	if !s.stopWaiting(now) && s.client.IsClaimed() {
		return false // a job is on its way: Next finishes what is left
	}
	return s.finishClose(now)
}

// finishClose undoes all that others can see of a closed session, as far as the round's
// budget goes; Next goes on with the rest.
func (s *Session) finishClose(now Time) (done bool) {
	if s.client.Flags&isClosing == 0 {
		return false // it had left already: it stood in the loop's queue twice
	}
	l := s.loop
	if !s.discardIncoming(now) {
		l.starve(s)
		return false
	}
	if !l.tx.Depart(now, &s.client, s.recordedID(), s.departure()) {
		l.turns.Push(s)
		return false
	}
	s.client.Flags &^= isClosing
	s.wait = nil
	delete(l.weights, s)
	return true
}

// recordedID is the session's id if it is on record, 0 if it is not.
func (s *Session) recordedID() uint64 {
	if s.client.Flags&onRecord == 0 {
		return 0
	}
	return s.id
}

// departure is how the client of a closed session has left.
func (s *Session) departure() shard.Departure {
	switch {
	case s.client.Flags&parts != 0:
		return shard.IsParted
	case s.client.Flags&saidQuit != 0:
		return shard.HasQuit
	case s.loop.stopping:
		return shard.ServerStops
	}
	return shard.IsCutOff
}
