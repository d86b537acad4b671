package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/pagedheap"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

// A job with an expiry may be started until so many seconds after it was put. When that time comes
// it is buried in the dead tube of its tube's setting, or deleted if there is none. One that is
// reserved then expires when its reservation ends, whatever ends it; one that is buried does not,
// and one that was kicked never does: somebody wants it run.
//
// Jobs that are to expire stand in a heap of their shard. Those that are ready or delayed stand
// there, unless they were kicked. One that is reserved or buried may: it is taken out when its time
// comes, and put back in when it becomes ready or delayed.

// expiries are the expiries of a shard. The shard's lock guards them.
type expiries struct {
	shard *shard
	heap  pagedheap.Heap[expiry, *expiry]
	timer queue.Timer // fires no later than the first is due
}

// expiryRetry is how long a job goes on that has expired and finds no room where it is to be buried.
const expiryRetry = clock.Second

// An expiry stands for a job in the heap: by when it expires and, in one moment, by id.
type expiry struct {
	at clock.Time
	k  *keyed
}

// Before implements pagedheap.Entry.
func (e *expiry) Before(f *expiry) bool { return e.at < f.at || e.at == f.at && e.k.id < f.k.id }

// Stand implements pagedheap.Entry.
func (e *expiry) Stand(i int) { e.k.place = uint32(i) + 1 }

// expiryMemory is what a job takes in the heap of expiries.
const expiryMemory = 16

// overdue reports whether a job has expired, unless it is buried.
func (sh *shard) overdue(j *job) bool {
	return j.flags&expires != 0 && !sh.kicked(j) && sh.keyedOf(j).expiry(j) <= sh.now
}

// kicked reports whether a job was ever kicked.
func (sh *shard) kicked(j *job) bool { return j.counters != 0 && sh.counters.At(j.counters).kicks > 0 }

// expiry is when a job with keys k expires that has an expiry.
func (k *keyed) expiry(j *job) clock.Time { return j.created + clock.Seconds(k.terms.Expires) }

// awaitExpiry puts a job with an expiry into the heap if it belongs there after a change.
func (sh *shard) awaitExpiry(j *job) {
	switch k := sh.keyedOf(j); {
	case sh.kicked(j):
		sh.forgetExpiry(k)
	case k.place == 0 && j.state != reserved && j.state != buried:
		at := k.expiry(j)
		if at <= sh.now && !sh.still {
			at = sh.now + expiryRetry // it could not expire
		}
		sh.pushExpiry(k, at)
	}
}

func (sh *shard) pushExpiry(k *keyed, at clock.Time) {
	sh.expiries.heap.Push(expiry{at, k})
	sh.arm(&sh.expiries.timer, at)
}

// forgetExpiry takes a job out of the heap if it stands there.
func (sh *shard) forgetExpiry(k *keyed) {
	if k.place != 0 {
		sh.expiries.heap.Remove(int(k.place - 1))
		k.place = 0
	}
}

// Expire arms the timer again: what is due is done before timers fire.
func (x *expiries) Expire(int64) (done bool) {
	x.arm()
	return true
}

func (x *expiries) arm() {
	if x.heap.Len() > 0 {
		x.shard.arm(&x.timer, max(x.heap.At(0).at, x.shard.now+1))
	}
}

// expireDue ends jobs that have expired, before timers make others ready: what is due in the same
// moment is not handed out. It leaves half of what may be done at once to the timers.
func (sh *shard) expireDue() {
	x := &sh.expiries
	for least := sh.moves / 2; x.heap.Len() > 0 && x.heap.At(0).at <= sh.now && sh.moves > least; sh.moves-- {
		k := x.heap.At(0).k
		r, j := sh.find(k.id)
		if j.state == reserved || j.state == buried {
			sh.forgetExpiry(k)
			continue
		}
		ch := sh.present(j)
		var out reply.Output // nobody waits for it
		taken, err := sh.end(r, j, &ch, expired, &out)
		if taken != nil {
			return // it expires a moment later
		}
		if err != nil {
			wait := expiryRetry
			if errors.Is(err, journal.ErrRoom) || errors.Is(err, errCold) && sh.loadAhead(j) {
				wait = tombstoneRetry
			}
			sh.forgetExpiry(k)
			sh.pushExpiry(k, sh.now+wait)
			sh.dispatch(sh.tubes[j.tube]) // meanwhile it may be started
		}
	}
}

// deleteExpired records that a job is deleted because it has expired, and frees it, but for the
// tombstone that it may leave.
func (sh *shard) deleteExpired(r ref, j *job, out *reply.Output) error {
	t := sh.tubes[j.tube]
	err := sh.delete(r, j, out)
	if err == nil {
		sh.totals.expired++
		t.totals().expired++
	}
	return err
}
