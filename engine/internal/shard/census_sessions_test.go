package shard

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
)

// session counts what a session uses, watches and has reserved, and checks what it knows of that.
func (c *census) session(s *Session) {
	c.using[s.client.used]++
	var watches, holds shardSet
	for i := range s.client.watched {
		w := &s.client.watched[i]
		c.watched[w.tube]++
		watches |= 1 << w.tube.shard.number
		if sessionOf(w.waiter) != s {
			c.failf("a watch of %s names another session", w.tube.name)
		}
		if w.queued() && s.client.claimed.Load() == claimFree {
			c.failf("a session that does not wait stands in the queue of %s", w.tube.name)
		}
		if !w.queued() && s.client.claimed.Load() == claimWaiting {
			c.failf("a session that waits is missing from the queue of %s", w.tube.name)
		}
	}
	if w := s.weights(); (w != nil) != (s.client.Flags&hasWeights != 0) || w != nil && len(w.All()) != len(s.client.watched) || w == nil && s.client.Flags&isWeighted != 0 {
		c.failf("a session that watches %d tubes has the weights %+v, flags %b", len(s.client.watched), w, s.client.Flags)
	}
	for h := s.client.reserved.list(); h != nil; h = h.next {
		if h.of != s.client.reserved || h.shard.reservations[h.index] != h {
			c.failf("reservations in shard %d are not their session's", h.shard.number)
		}
		holds |= 1 << h.shard.number
	}
	if watches != s.client.watchedShards || holds != s.client.reserved.set() || len(s.client.watched) == 0 {
		c.failf("shards watched %b, held in %b; want %b, %b", s.client.watchedShards, s.client.reserved.set(), watches, holds)
	}
}

// roll checks that the open sessions, and no others, are on the roll, by id.
func (c *census) roll() {
	open := map[*Session]bool{}
	for _, s := range c.sessions {
		if s.client.Flags&isOpen != 0 {
			open[s] = true
		}
	}
	last := uint64(0)
	pages, lastID := c.engine.rollPages()
	for i, p := range pages {
		if p.n == 0 || i > 0 && p.n+pages[i-1].n <= rollPageLen/2 {
			c.failf("page %d of the roll has %d sessions", i, p.n)
		}
		for at, s := range p.sessions {
			switch {
			case at >= p.n && s != nil:
				c.failf("page %d of the roll goes on behind its end", i)
			case at < p.n && (!open[s] || s.number() <= last || s.number() > lastID && journal.NumberOf(s.number()) == 0):
				c.failf("session %d is on the roll behind %d, open %v", s.number(), last, open[s])
			case at < p.n:
				last = s.number()
				delete(open, s)
			}
		}
	}
	if len(open) > 0 {
		c.failf("%d open sessions are not on the roll", len(open))
	}
}

// loop checks a loop's mailbox, timers and counts.
func (c *census) loop(l *Loop) {
	c.caller(l.by())
	for s := range l.weighted() {
		if !slices.Contains(c.sessions, s) {
			c.failf("a loop has weights of a session that is gone")
		}
	}
	mail, calls, hasMail, rung := l.mailbox()
	waiting, open, producers, workers := 0, 0, 0, 0
	c.timers = map[*queue.Timer]string{}
	for _, s := range mail {
		if c.mailed[s] != nil {
			c.failf("a session is in a mailbox twice")
		}
		c.mailed[s] = l
		if !s.isIn(l) || s.client.claimed.Load() != claimTaken {
			c.failf("a session in the mailbox has claim %d", s.client.claimed.Load())
		}
	}
	for _, s := range l.canGoOn() {
		if !s.isIn(l) {
			c.failf("a session is in the queue of another loop")
		}
		if s.client.claimed.Load() == claimTaken {
			c.mailed[s] = l
		}
	}
	mails := len(mail) + calls
	if hasMail != (mails > 0) || mails > 0 && !rung {
		c.failf("a mailbox of %d says %v, rung %v", mails, hasMail, rung)
	}
	for _, s := range c.sessions {
		if !s.isIn(l) {
			continue
		}
		if s.client.Flags&isOpen != 0 {
			open++
			producers += int(s.client.Flags & isProducer / isProducer)
			workers += int(s.client.Flags & isWorker / isWorker)
		} else if c.mailed[s] == nil {
			c.failf("a closed session is still there")
		}
		timer, at := s.timer()
		switch s.client.claimed.Load() {
		case claimWaiting:
			waiting++
			if at != clock.MaxTime {
				c.covered(timer, at, "a waiting session")
			} else if timer.Scheduled() {
				c.failf("a session that waits for ever has a timer")
			}
		case claimTaken:
			if c.mailed[s] == nil {
				c.failf("a claimed session is in no mailbox")
			}
			if timer.Scheduled() {
				c.timers[timer] = "a claimed session"
			}
		default:
			if timer != nil && timer.Scheduled() {
				c.failf("a session that does not wait has a timer")
			}
		}
	}
	c.wheel(l.timers(), l.wakesAt(), "a loop")
	want := sessionCounts{int64(open), int64(producers), int64(workers), int64(waiting)}
	if got := l.sessionCounts(); got != want {
		c.failf("a loop counts %+v, has %+v", got, want)
	}
}

func (c *census) caller(by *Tx) {
	if by.held != 0 || len(by.wakers) != 0 || len(by.firings) != 0 {
		c.failf("a goroutine has the locks %b, %d loops to wake and %d groups to fire", by.held, len(by.wakers), len(by.firings))
	}
}
