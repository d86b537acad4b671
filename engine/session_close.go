package engine

// Stop tells the loop that the server is about to end, and closes sessions for no other reason. So
// what their clients hold has not failed.
func (l *Loop) Stop() { l.tx.Stop() }

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
	s.leaveLoads()
	if !s.discardIncoming(now) {
		l.starve(s)
		return false
	}
	if !s.endOutlasting(now) || !s.depart(now) {
		l.turns.Push(s)
		return false
	}
	s.client.Flags &^= isClosing
	s.wait = nil
	delete(l.weights, s)
	return true
}

// depart ends what shards know of a closed session's client, as far as the round's budget goes.
func (s *Session) depart(now Time) (done bool) {
	tx, recorded := &s.loop.tx, uint64(0)
	if s.client.Flags&onRecord != 0 {
		recorded = s.id
	}
	if s.client.Flags&parts != 0 {
		return tx.Part(now, &s.client, recorded)
	}
	return tx.Depart(now, &s.client, recorded, s.client.Flags&saidQuit != 0)
}
