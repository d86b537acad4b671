package reactor

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
)

// Committer is the journal that replies depend on: none leaves before what it
// tells is committed. Both methods may be called from any goroutine.
type Committer interface {
	// Committed is the place up to which the journal is committed.
	Committed() journal.Pos
	// Flush commits what was recorded, or sees to it that it soon will be. It
	// does not wait for a disk.
	Flush()
}

// committing is what a loop has to do with the journal. All connections that
// gnet serves in one round are held until its end, so that one commit serves
// them all; nobody is held for longer than the commit takes, and a connection
// whose commands changed nothing is not held at all.
type committing struct {
	held    []*conn     // whose output waits for a commit
	spare   []*conn     // for the next held
	waits   atomic.Bool // held is not empty
	posted  atomic.Bool // a commitTask is on its way
	failing atomic.Bool // nothing will be committed any more

	// The commands that held output answers, one tally for each round, and whether
	// the next round has begun.
	tallies   []heldTally
	roundOver bool
}

// heldTally is the commands of one round.
type heldTally struct {
	pos   journal.Pos // what their replies wait for
	tally tally
}

// addTally takes the commands of a connection that is held.
func (k *committing) addTally(pos journal.Pos, t *tally) {
	if len(k.tallies) == 0 || k.roundOver {
		k.tallies = append(k.tallies, heldTally{})
		k.roundOver = false
	}
	last := &k.tallies[len(k.tallies)-1]
	last.pos = max(last.pos, pos)
	last.tally.take(t)
}

// countCommitted counts the commands whose replies have been sent.
func (l *loop) countCommitted(committed journal.Pos, failed bool) {
	k := &l.commits
	n, now := 0, l.server.cfg.Now()
	for n < len(k.tallies) && (failed || k.tallies[n].pos <= committed) {
		if !failed {
			l.latency.answered(&k.tallies[n].tally, now)
		}
		n++
	}
	k.tallies = slices.Delete(k.tallies, 0, n)
}

// Committed tells the loops that the journal has been committed further. Any
// goroutine may call it.
func (s *Server) Committed() {
	for _, l := range s.loops {
		if l.commits.waits.Load() {
			l.postCommit()
		}
	}
}

// CommitFailed tells the loops that the journal will not be committed any
// further. Commands that wait for it, and those that come to do so, are answered
// INTERNAL_ERROR, and their connections are closed. Any goroutine may call it.
func (s *Server) CommitFailed() {
	for _, l := range s.loops {
		l.commits.failing.Store(true)
		l.postCommit()
	}
}

func (l *loop) postCommit() {
	if !l.commits.posted.Swap(true) {
		l.post((*commitTask)(l))
	}
}

// mustWait tells whether replies that depend on a place in the journal have to
// wait.
func (l *loop) mustWait(pos journal.Pos) bool {
	return pos != 0 && l.server.cfg.Journal.Committed() < pos
}

// hold keeps c's output from firm on back until the journal is committed up to
// pos. replies is how many replies have come to it.
func (c *conn) hold(firm int, pos journal.Pos, replies int) {
	x := c.backlog()
	x.pos = max(x.pos, pos)
	x.replies += replies
	k := &c.loop.commits
	k.addTally(pos, &c.loop.tally)
	if x.held {
		return
	}
	x.held, x.firm = true, firm
	k.held = append(k.held, c)
	k.waits.Store(true)
	c.loop.postCommit()
}

// sendHeld commits what c's output waits for and goes on, or gives up. It is for the
// end of the loop, when no task is run any more.
func (c *conn) sendHeld(now engine.Time) {
	const interval = 50 * time.Microsecond // a sync takes longer
	l := c.loop
	for c.x != nil && c.x.held {
		l.server.cfg.Journal.Flush()
		for l.mustWait(c.x.pos) {
			if l.commits.failing.Load() {
				return
			}
			select {
			case <-l.server.giveUp:
				return
			case <-time.After(interval):
			}
		}
		c.x.held, c.x.pos, c.x.replies = false, 0, 0
		c.advance(now)
	}
}

// commitTask commits what the connections of the last round wait for, and sends
// them what may be sent.
type commitTask loop

func (t *commitTask) Run(context.Context) error {
	l := (*loop)(t)
	k := &l.commits
	k.posted.Store(false)
	if len(k.held) == 0 {
		return nil
	}
	log := l.server.cfg.Journal
	log.Flush()
	committed, failed := log.Committed(), k.failing.Load()
	now := l.server.cfg.Now()
	list := k.held
	k.held, k.roundOver = k.spare[:0], true
	for i, c := range list {
		list[i] = nil
		switch {
		case c.ended || c.x == nil || !c.x.held:
		case failed:
			c.x.held = false
			c.refuseHeld(now)
		case committed < c.x.pos:
			k.held = append(k.held, c)
		default:
			c.x.held, c.x.pos, c.x.replies = false, 0, 0
			c.committed(now)
		}
	}
	k.spare = list[:0]
	l.countCommitted(committed, failed)
	k.waits.Store(len(k.held) > 0)
	// Who commits looks at waits after it has moved on the place.
	if len(k.held) > 0 && (log.Committed() != committed || k.failing.Load() != failed) {
		l.postCommit()
	}
	l.deliver(now)
	return nil
}

// committed goes on after what c's output tells has been committed.
func (c *conn) committed(now engine.Time) {
	defer c.loop.recovered()
	c.advance(now)
	c.settle(now)
}

// refuseHeld answers what waited for a commit that will never be.
func (c *conn) refuseHeld(now engine.Time) {
	defer c.loop.recovered()
	x := c.x
	replies := x.replies
	c.loop.counts.pendingOutput.Add(int64(x.firm - len(x.out.B)))
	if x.out.B = x.out.B[:x.firm]; x.outAt == x.firm {
		c.dropOutput()
	}
	c.over = true
	for range replies {
		c.loop.out.Buf = append(c.loop.out.Buf, codec.ReplyInternalError...)
	}
	c.flush()
	c.settle(now)
}
