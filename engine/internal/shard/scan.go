package shard

import (
	"iter"
	"slices"
)

// scanSlice is how many jobs a command over a tube's jobs looks at, or changes, before
// it lets others have the shard.
const scanSlice = 512

// A scan goes over the jobs of a tube, a slice under each lock. Those that are there
// all the while are met at least once, in no order: it walks over all jobs of the
// shard from the last record to the first, and records move in the same direction.
type scan struct {
	shard  *shard
	tube   string // it may disappear meanwhile, and come again
	cursor ref    // jobs from here on are done
}

func scanOf(sh *shard, name string) scan { return scan{shard: sh, tube: name, cursor: ^ref(0)} }

// done reports whether all jobs were met.
func (sc *scan) done() bool { return sc.cursor == 0 }

// slice calls f for the next jobs of the tube t until it returns false: then the scan
// goes on with the same job. f may delete the job. The shard is locked.
func (sc *scan) slice(t *tube, f func(ref, *job) bool) {
	sh, again := sc.shard, ref(0)
	next := sh.jobs.Walk(sc.cursor, scanSlice, func(r ref) {
		if j := sh.job(r); again == 0 && j.tube == t.index && j.state != unqueued && !f(r, j) {
			again = r + 1
		}
	})
	if sc.cursor = next; again != 0 {
		sc.cursor = again
	}
}

// A reservationScan goes over what one session has reserved, shard by shard, a slice under each lock. What is
// reserved all the while is met at least once.
type reservationScan struct {
	reservations *reservations // of the session, which are next; nil at the end
	cursor       ref           // of a scan of their shard; 0 if there is none
}

// isShort reports whether all that is reserved in the next shard is a slice, of which each is met once.
func (sc *reservationScan) isShort() bool {
	return sc.cursor == 0 && sc.reservations.jobs.Len() <= scanSlice
}

// slice calls f for the next jobs. f may end their reservations. The shard is locked.
func (sc *reservationScan) slice(f func(ref, *job)) {
	h := sc.reservations
	if sc.isShort() {
		for _, r := range slices.AppendSeq(make([]ref, 0, scanSlice), h.jobs.All()) {
			f(r, h.shard.job(r))
		}
		sc.reservations = h.next
		return
	}
	// In their heap, which changes meanwhile, some could be missed. A job whose record moves is met twice.
	if sc.cursor == 0 {
		sc.cursor = ^ref(0)
	}
	sc.cursor = h.shard.jobs.Walk(sc.cursor, scanSlice, func(r ref) {
		if j := h.shard.job(r); j.state == reserved && j.Next == h.index {
			f(r, j)
		}
	})
	if sc.cursor == 0 {
		sc.reservations = h.next
	}
}

// scanCost is what a slice costs, besides what is done to the jobs.
const scanCost = scanSlice/16 + lockCost

// first is the job that is first in a state, 0 if there is none. A reserved job has no
// queue among those of its tube.
func (t *tube) first(in state) ref {
	switch in {
	case ready:
		return t.firstReady()
	case delayed:
		if t.delayed.Len() > 0 {
			return t.delayed.First().Ref
		}
	case held:
		if t.held != nil {
			return t.held.First().Ref
		}
	case buried:
		return t.buried.First(t.shard.table)
	}
	return 0
}

// firstShown is the job that is first of those in a state and of those that are shown to be.
func (t *tube) firstShown(in state) ref {
	r := t.first(in)
	if r == 0 && in == delayed {
		r = t.first(held)
	}
	return r
}

// countShown is the number of jobs that are in a state or shown to be.
func (t *tube) countShown(in state) int {
	n := t.count(in)
	if in == delayed {
		n += t.count(held)
	}
	return n
}

// count is the number of jobs in a state.
func (t *tube) count(in state) int {
	switch in {
	case ready:
		return t.ready.Len()
	case delayed:
		return t.delayed.Len()
	case held:
		if t.held != nil {
			return t.held.Len()
		}
	case buried:
		return t.buried.Len()
	case reserved:
		return t.reserved
	}
	return 0
}

// all yields all jobs in a state but reserved, in no order. If it is held, there are some.
func (t *tube) all(in state) iter.Seq[ref] {
	switch in {
	case ready:
		return t.allReady()
	case delayed:
		return t.delayed.All()
	case held:
		return t.held.All()
	default:
		return t.buried.All(t.shard.table)
	}
}
