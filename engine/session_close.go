package engine

// Stop tells the loop that the server is about to end, and closes sessions for no other reason. So
// what their clients hold has not failed.
func (l *Loop) Stop() { l.stopping = true }

// Close ends the session: what it has reserved becomes ready, and its tubes lose it.
// It reports whether that is done. When it is much, or a job is on its way, Next goes on
// with it, and returns the session a last time when it is done.
func (s *Session) Close(now Time) (done bool) {
	if s.flags&isOpen == 0 {
		return s.used == nil
	}
	s.flags &^= isOpen
	if s.wait != nil && s.wait.task != nil {
		s.tellUnfinished()
	}
	l := s.loop
	l.engine.roll.remove(s)
	l.counts.sessions.Add(-1)
	if s.flags&restricted != 0 {
		s.wait.grant.account.EndConnection()
	}
	if s.flags&isProducer != 0 {
		l.counts.producers.Add(-1)
	}
	if s.flags&isWorker != 0 {
		l.counts.workers.Add(-1)
	}
	if s.claimed.Load() != claimFree && !s.stopWaiting(now) {
		return false // a job is on its way: Next finishes what is left
	}
	return s.finishClose(now)
}

// finishClose undoes all that others can see of a closed session, as far as the round's
// budget goes; Next goes on with the rest.
func (s *Session) finishClose(now Time) (done bool) {
	if s.used == nil {
		return false // it had left already: it stood in the loop's queue twice
	}
	l := s.loop
	if !s.discardIncoming(now) {
		l.starve(s)
		return false
	}
	if !s.giveBack(now) || !s.unwatchAll(now) {
		l.turns.Push(s)
		return false
	}
	l.tx.Attend(now, s.used, -1, 0)
	s.used, s.wait = nil, nil
	if s.flags&onRecord != 0 {
		l.engine.leaveSession(s.id, s.reserved)
		s.reserved = nil
	}
	delete(l.listed, s)
	delete(l.weights, s)
	return true
}

// giveBack makes what the session has reserved ready again, as far as the round's budget goes, or leaves it to
// an absent session.
func (s *Session) giveBack(now Time) (done bool) {
	l := s.loop
	switch {
	case s.reserved == nil:
		return true
	case s.flags&parts != 0:
		if l.tx.LeaveAbsent(now, s.reserved) {
			return true
		}
	case s.wait != nil && s.wait.closing != nil:
		if s.wait.closing.Turn(&l.tx, now, l.stopping) {
			return false
		}
	default:
		if v := l.tx.BeginClosing(now, s.reserved); v != nil {
			s.waiter().closing = v
			return s.giveBack(now)
		}
	}
	s.reserved = nil
	return true
}

// unwatchAll ends the session's interest in its tubes, one after the other.
func (s *Session) unwatchAll(now Time) (done bool) {
	l := s.loop
	// Each turn takes the first tube and moves the last one into the gap, which
	// shows in the order of list-tubes.
	for len(s.watched) > 0 {
		last := len(s.watched) - 1
		t := s.watched[0].Tube()
		s.watched[0] = s.watched[last]
		s.watched[last] = subscription{}
		s.watched = s.watched[:last]
		l.tx.Attend(now, t, 0, -1)
		if !l.Spend(lockCost) && len(s.watched) > 0 {
			return false
		}
	}
	s.watched = nil
	return true
}
