package engine

import "trellis/binlog/journal"

// A waiter is a client that may wait for a job. A shard calls it with its lock held.
type waiter interface {
	// claim ends the wait and returns where the job is to be reserved, nil if the wait
	// has ended otherwise. It is one atomic step, so that a waiter gets one job.
	claim() *reservationSet
	// deliver follows a claim: the job of that id is reserved, and what is told of it
	// depends on pos. Without an id there was no memory for that, and the waiter tries
	// again.
	deliver(sh *shard, id uint64, pos journal.Pos)
	// waitsSince is when the wait began. It does not change while the client stands in queues.
	waitsSince() Time
}

// A subscription is a client's interest in one tube. While the client waits, it stands
// in the tube's queue of waiting clients; the shard's lock guards that.
type subscription struct {
	waiter     waiter
	tube       *tube
	next, prev *subscription
}

func (w *subscription) enqueue() { w.enqueueBehind(w.tube.lastWaiting) }

// enqueueBehind has the client stand behind another one, or first if that is nil.
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
	since, ahead := w.waiter.waitsSince(), w.tube.lastWaiting
	for n := 0; n < maxPassed && ahead != nil && ahead.waiter.waitsSince() > since; n++ {
		ahead = ahead.prev
	}
	w.enqueueBehind(ahead)
}

// queued tells whether the session stands in the tube's queue.
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
		to := w.waiter.claim()
		if to == nil {
			continue // its wait has ended elsewhere a moment ago
		}
		j := sh.job(r)
		id, pos := j.ID, sh.dependsOn(j.at())
		held, err := sh.reserve(to, r, j)
		if err != nil {
			w.waiter.deliver(sh, 0, 0) // no memory for its counters, or another server has taken over: the job stays
			return
		}
		w.waiter.deliver(sh, id, max(pos, held))
	}
}
