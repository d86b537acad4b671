package shard

import (
	"math/bits"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/loads"
)

// A waiter is a client that may wait for a job. A shard calls it with its lock held.
type waiter interface {
	// Wait begins the wait. Unless there is a job before, it ends at until, or at soon, when the safety margin of
	// one of the client's jobs begins. All shards of the tubes for which it waits are locked. Aged: the client has
	// waited before, and stands before those in the queues who began to wait later.
	Wait(until, soon, now clock.Time) (aged bool)
	// Deliver follows a claim: the job of that id is reserved, and what is told of it
	// depends on pos. Without an id there was no memory for that, and the waiter tries
	// again. by is the goroutine that calls it.
	Deliver(by *Tx, id uint64, pos journal.Pos)
	// Since is when the wait began. It does not change while the client stands in queues.
	Since() clock.Time
	// Left is the name of the client's account, "" for none, and the job that it was handed and not told of, 0 for
	// none.
	Left() (account string, untold uint64)
	// Adopts reports whether the client may work in a tube, and be taken for a worker of that account, "" for none.
	Adopts(tube, account string) bool
	// Client is what shards know of it.
	Client() *Client
	// Loaded is called without a lock.
	loads.Owner
}

// A subscription is a client's interest in one tube. While the client waits, it stands
// in the tube's queue of waiting clients; the shard's lock guards that.
type subscription struct {
	waiter     waiter
	tube       *tube
	next, prev *subscription
}

func (w *subscription) enqueue() { w.enqueueBehind(w.tube.lastWaiting) }

// enqueueBehind puts the client behind another one, or first if that is nil.
func (w *subscription) enqueueBehind(ahead *subscription) {
	t := w.tube
	behind := t.firstWaiting
	if ahead != nil {
		behind = ahead.next
		ahead.next = w
	} else {
		t.firstWaiting = w
	}
	if behind != nil {
		behind.prev = w
	} else {
		t.lastWaiting = w
	}
	w.next, w.prev = behind, ahead
	t.waiting++
	t.awaitOpening()
}

// maxPassed is how many waiting clients are looked at to find the place of one that has waited before.
const maxPassed = 64

// enqueueAged is enqueue for a client that has waited before: it stands ahead of the last ones who began later.
func (w *subscription) enqueueAged() {
	since, ahead := w.waiter.Since(), w.tube.lastWaiting
	for n := 0; n < maxPassed && ahead != nil && ahead.waiter.Since() > since; n++ {
		ahead = ahead.prev
	}
	w.enqueueBehind(ahead)
}

// queued reports whether the session stands in the tube's queue.
func (w *subscription) queued() bool { return w.prev != nil || w.tube.firstWaiting == w }

func (w *subscription) dequeue() {
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

// StopWaiting ends the client's wait for a job. An answer that there is none depends on pos. It reports false if the
// client does not wait, or if somebody has claimed it to hand a job over: then it turns up in the mailbox.
func (c *Tx) StopWaiting(now clock.Time, cl *Client) (pos journal.Pos, ok bool) {
	if !cl.claim() {
		return 0, false
	}
	c.dequeue(now, cl)
	cl.claimed.Store(claimFree)
	return c.endsWatched(cl), true
}

// EndClaim takes a client that was claimed out of all queues that it still stands in.
func (c *Tx) EndClaim(now clock.Time, cl *Client) {
	if len(cl.watched) > 1 { // its only entry was taken by the claimer
		c.dequeue(now, cl)
	}
	cl.claimed.Store(claimFree)
}

// dequeue takes a client, whose wait has ended, out of all queues that it still stands in.
func (c *Tx) dequeue(now clock.Time, cl *Client) {
	c.lockAll(cl.watchedShards, now)
	for i := range cl.watched {
		cl.watched[i].dequeue()
	}
	c.unlockAll(cl.watchedShards)
	c.spend(len(cl.watched) / watchesPerCost)
}

// watchesPerCost is how many tubes of a watch list can be looked at for a unit of cost.
const watchesPerCost = 4

// Margin returns when the safety margin of the first of a client's reservations begins, and whether the
// client waits. It may be later than when it began to wait: somebody else may have deleted a job. Who does not
// wait has no margin.
func (c *Tx) Margin(now clock.Time, cl *Client) (soon clock.Time, waits bool) {
	c.lockAll(cl.watchedShards, now)
	waits = cl.claimed.Load() == claimWaiting
	first := cl.reserved.list() // who claims the client may add one, with one of these locks
	c.unlockAll(cl.watchedShards)
	soon = clock.MaxTime
	if !waits {
		return soon, false
	}
	for h := first; h != nil; h = h.next {
		h.shard.lock(c, now)
		soon = min(soon, h.marginBegins())
		h.shard.unlock(c)
	}
	return soon, true
}

// endsWatched is the position on which an answer depends that says that no tube has a job that the client watches.
func (c *Tx) endsWatched(cl *Client) (pos journal.Pos) {
	if c.shared.log.Journal == nil {
		return 0
	}
	for set := cl.watchedShards; set != 0; set &= set - 1 {
		pos = max(pos, c.shared.shards[bits.TrailingZeros16(uint16(set))].dependsOnEnds())
	}
	return pos
}

// dispatch hands ready jobs of t to sessions that wait for them, the one that
// has waited longest first. What it does not come to, the tube's timer makes it
// go on with.
func (sh *shard) dispatch(t *tube) {
	if t.firstWaiting != nil {
		sh.handOver(t)
	}
}

// handOver is dispatch for a tube at which somebody waits.
func (sh *shard) handOver(t *tube) {
	for t.firstWaiting != nil && !t.isShut() {
		r := t.next()
		if r == 0 {
			return
		}
		if !sh.mayMove() {
			sh.arm(&t.timer, sh.now+1)
			return
		}
		w := t.firstWaiting
		w.dequeue()
		cl := w.waiter.Client()
		if !cl.claim() {
			continue // its wait has ended elsewhere a moment ago
		}
		j := sh.job(r)
		id, pos := j.ID, sh.dependsOn(j.at())
		held, err := sh.reserve(cl.set(), r, j)
		if err != nil {
			w.waiter.Deliver(sh.by, 0, 0) // no memory for its counters, or another server has taken over: the job stays
			return
		}
		w.waiter.Deliver(sh.by, id, max(pos, held))
	}
}
