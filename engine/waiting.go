package engine

// A session that finds no job waits: it stands in the queue of every tube that
// it watches, and whoever makes a job ready in one of them claims it.

// startWaiting queues the session. The locks of all watched shards are held.
func (s *Session) startWaiting(until, soon, now Time) {
	w := s.waiter()
	w.since, w.until, w.soon, w.verdict = now, until, soon, noVerdict
	for i := range s.watched {
		s.watched[i].enqueue()
	}
	s.loop.counts.waiting.Add(1)
	s.claim.Store(claimWaiting)
	if at := min(until, soon); at != MaxTime {
		s.loop.schedule(&w.timer, at, now)
	}
}

// WaitingSince is when the session's last wait has begun.
func (s *Session) WaitingSince() Time { return s.wait.since }

// waiter returns s.wait, which it makes if need be.
func (s *Session) waiter() *wait {
	if s.wait == nil {
		s.wait = &wait{session: s}
		s.wait.timer.owner = s.wait
	}
	return s.wait
}

func (w *watch) enqueue() {
	t := w.tube
	w.next, w.prev = nil, t.lastWaiting
	if t.lastWaiting != nil {
		t.lastWaiting.next = w
	} else {
		t.firstWaiting = w
	}
	t.lastWaiting = w
	t.waiting++
}

// queued tells whether the session stands in the tube's queue.
func (w *watch) queued() bool { return w.prev != nil || w.tube.firstWaiting == w }

func (w *watch) dequeue() {
	if !w.queued() {
		return
	}
	t := w.tube
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		t.firstWaiting = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		t.lastWaiting = w.prev
	}
	w.next, w.prev = nil, nil
	t.waiting--
}

// dispatch hands ready jobs of t to sessions that wait for them, the one that
// has waited longest first. What it does not come to, the tube's timer makes it
// go on with.
func (sh *shard) dispatch(t *tube, now Time) {
	for t.ready.count > 0 && t.firstWaiting != nil && !t.paused(now) {
		if !sh.mayMove() {
			sh.arm(&t.timer, sh.now+1)
			return
		}
		w := t.firstWaiting
		w.dequeue()
		s := w.session
		// Its wait may have ended elsewhere a moment ago.
		if !s.claim.CompareAndSwap(claimWaiting, claimTaken) {
			continue
		}
		s.loop.counts.waiting.Add(-1)
		r, j := t.ready.first(sh)
		if _, err := sh.tallyOf(j); err != nil {
			// No memory for its counters: the job stays, and the session is
			// woken without one and tries again.
			s.wait.shard, s.wait.id = sh, 0
			s.loop.post(s, sh.by)
			return
		}
		s.wait.shard, s.wait.id, s.wait.pos = sh, j.id, sh.unsettled(j.at)
		t.ready.remove(sh, j)
		sh.reserve(s, r, j, now)
		s.loop.post(s, sh.by)
	}
}

// stopWaiting ends the session's wait, unless somebody has claimed it to hand a
// job over: then it reports false, and the session turns up in the mailbox.
func (s *Session) stopWaiting(now Time) bool {
	if !s.claim.CompareAndSwap(claimWaiting, claimTaken) {
		return false
	}
	s.loop.counts.waiting.Add(-1)
	s.dequeueAll(now)
	s.claim.Store(claimFree)
	return true
}

// dequeueAll takes a session whose claim was taken out of all queues that it
// still stands in.
func (s *Session) dequeueAll(now Time) {
	s.loop.wheel.cancel(&s.wait.timer)
	s.lockAll(s.watches, now)
	for i := range s.watched {
		s.watched[i].dequeue()
	}
	s.unlockAll(s.watches)
}

// handed finds the session in the mailbox: it was claimed for a job.
func (s *Session) handed(now Time) {
	if len(s.watched) > 1 {
		s.dequeueAll(now)
	} else {
		s.loop.wheel.cancel(&s.wait.timer) // its only entry was taken by the claimer
	}
	s.claim.Store(claimFree)
	if s.flags&isOpen == 0 {
		s.leave(now)
		return
	}
	s.owner.Wake(now)
}

// expire ends the wait at its time-out. What is due in the watched tubes comes
// first: a job that becomes ready at the same moment is delivered.
func (w *wait) expire(now Time) bool {
	s := w.session
	s.lockAll(s.watches, now)
	s.unlockAll(s.watches)
	if !s.stopWaiting(now) {
		return true
	}
	w.verdict = timedOut
	if w.soon <= now {
		w.verdict = deadlineSoon
	}
	s.owner.Wake(now)
	return true
}

// Resume continues a session whose owner was woken, or that has yielded. It returns
// Done with the reply appended, Wait when the job that woke it has gone again, or
// Yield.
func (s *Session) Resume(now Time, out *Output) Outcome {
	w := s.wait
	if k := w.kick; k.most > 0 {
		w.kick = kicking{}
		return s.goOnKicking(now, k, out)
	}
	if li := w.listing; li != nil {
		w.listing = nil
		return s.goOnListing(*li, out)
	}
	if v := w.verdict; v != noVerdict {
		w.verdict = noVerdict
		out.Buf = appendVerdict(out.Buf, v)
		return Done
	}
	if w.shard != nil {
		sh, id := w.shard, w.id
		w.shard = nil
		sh.lock(&s.loop.caller, now)
		if _, j := sh.find(id); j != nil && sh.heldBy(s, j) {
			out.dependOn(w.pos)
			out.appendReserved(sh, j)
			sh.unlock(&s.loop.caller)
			return Done
		}
		sh.unlock(&s.loop.caller)
	}
	// Its time to run ended before this loop came to say so.
	return s.reserve(now, w.until, out)
}
