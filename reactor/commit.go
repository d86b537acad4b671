package reactor

import (
	"slices"
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/queue"
	"trellis/reactor/internal/relay"
)

// Committer is the journal that replies depend on: no reply leaves before what it
// tells is committed. Both methods are called on the goroutines of loops, also of
// several at a time.
type Committer interface {
	// Committed is the position up to which the journal is committed.
	Committed() journal.Pos
	// Flush commits what was recorded, or sees to it that it soon will be. It
	// does not wait for a disk.
	Flush()
}

// commits is a loop's connections whose replies wait for the journal. The first
// connection in a round whose replies have to wait wakes the loop;
// after the next poll, one Flush serves all that have come since. Nobody waits for
// longer than that and the commit take, and a connection whose commands changed nothing
// does not wait at all.
type commits struct {
	// waiting have output that waits for a commit, in order of arrival. One that depends on an
	// earlier position is released with its predecessor.
	waiting   queue.Queue[*conn]
	pongs     queue.Queue[pong]
	committed journal.Pos // the position that Flush has been found to have reached

	pending atomic.Bool // Committed is to wake the loop: somebody waits, and the loop has looked already
	failing atomic.Bool // nothing will be committed any more

	batches []heldBatch // the commands that the output answers, a batch for each round
}

type heldBatch struct {
	round     uint32
	dependsOn journal.Pos // what the replies wait for
	batch     latency.Batch
}

// Committed tells the loops that the journal has been committed further. Any
// goroutine may call it.
func (s *Server) Committed() {
	for _, l := range s.loops {
		if l.commits.pending.Load() {
			l.gnet.Wake()
		}
	}
}

// CommitFailed tells the loops that the journal will not be committed any
// further. Replies that wait for it, and those that come to do so, are dropped, and
// their connections end without a word: nobody knows whether what they tell will
// have happened when the log is read again. Any goroutine may call it.
func (s *Server) CommitFailed() {
	for _, l := range s.loops {
		l.commits.failing.Store(true)
		l.gnet.Wake()
	}
}

// mustWait reports whether replies that depend on a position in the journal have to
// wait.
func (l *loop) mustWait(pos journal.Pos) bool {
	return pos != 0 && l.journal.Committed() < pos
}

// awaitCommit notes that c's output waits until the journal is committed up to pos. waiting says that it did so
// before.
func (c *conn) awaitCommit(pos journal.Pos, waiting bool) {
	l := c.loop
	l.commits.addBatch(l.round, pos, &l.batch)
	if !waiting {
		l.awaitsCommit()
		l.commits.waiting.Push(c)
	}
}

// awaitsCommit makes the loop commit what is about to wait for it.
func (l *loop) awaitsCommit() {
	if l.commits.idle() {
		l.commits.pending.Store(true)
	}
	l.gnet.Wake()
}

// idle reports whether nothing waits.
func (k *commits) idle() bool { return k.waiting.Empty() && k.pongs.Empty() }

// addBatch takes the commands of a connection whose replies wait.
func (k *commits) addBatch(round uint32, pos journal.Pos, b *latency.Batch) {
	if n := len(k.batches); n == 0 || k.batches[n-1].round != round {
		k.batches = append(k.batches, heldBatch{round: round})
	}
	last := &k.batches[len(k.batches)-1]
	last.dependsOn = max(last.dependsOn, pos)
	last.batch.Take(b)
}

// commit commits what connections wait for, as far as that is possible at once.
func (l *loop) commit() {
	k := &l.commits
	if k.idle() {
		return
	}
	// Flush may commit, and tell all loops so. This one looks for itself, and must not be
	// woken for it. Whatever is committed after that look finds pending set again.
	k.pending.Store(false)
	l.journal.Flush()
	k.pending.Store(true)
	k.committed = l.journal.Committed()
	if k.answerPings(); k.idle() {
		k.pending.Store(false)
	}
}

// hasCommitted reports whether the output of the connection that has waited longest
// need not wait any more.
func (l *loop) hasCommitted() bool {
	k := &l.commits
	if k.waiting.Empty() {
		return false
	}
	return k.waiting.First().DependsOn() <= k.committed || k.failing.Load()
}

// nextCommitted takes the connection whose output need not wait any more from the
// list, or returns nil.
func (l *loop) nextCommitted() *conn {
	k := &l.commits
	if !l.hasCommitted() {
		return nil
	}
	c := k.waiting.Pop()
	if k.idle() {
		k.pending.Store(false)
	}
	if !l.hasCommitted() {
		l.countCommitted()
	}
	return c
}

// countCommitted counts the commands whose replies have been sent.
func (l *loop) countCommitted() {
	k := &l.commits
	n, now, failing := 0, l.server.now(), k.failing.Load()
	for n < len(k.batches) && (failing || k.batches[n].dependsOn <= k.committed) {
		if !failing {
			l.latency.Answered(&k.batches[n].batch, now)
		}
		n++
	}
	k.batches = slices.Delete(k.batches, 0, n)
}

// pong is the answer to a ping of a gateway's.
type pong struct {
	to        *relay.Leader
	number    uint32
	dependsOn journal.Pos
}

// answerPings answers the pings whose answers need not wait any more, and drops those that always would.
func (k *commits) answerPings() {
	failing := k.failing.Load()
	for !k.pongs.Empty() && (failing || k.pongs.First().dependsOn <= k.committed) {
		p := k.pongs.Pop()
		p.to.Pong(p.number, !failing)
	}
}
