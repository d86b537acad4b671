package shard

import (
	"trellis/engine/internal/arena"
)

// While jobs of a tube are reserved, bodies of those that come next are loaded before anybody waits for them. The jobs
// that come next, as far as a window reaches, are wanted: the evictor passes each of them over once, whether its body
// was loaded or was there. A job is wanted until it is ready no more, or was passed over.
//
// Jobs with limited or fair keys are not wanted: what comes next of them depends on what is reserved by then.

const (
	// aheadWindow bounds, in bytes, the jobs of a tube that are wanted: eight of the longest reads, so that there is a
	// next one to be made while those who have reserved jobs are told of them.
	aheadWindow = 1 << 20

	aheadLook = 256 // jobs that are looked at under one lock

	// Of jobs in a heap those in its upper levels are wanted, all of which come to the root through these. Each reserve
	// looks at some.
	aheadHeap, aheadStep = 1 + 4 + 16 + 64 + 256 + 1024, 16
)

// readAhead is of a tube with ready jobs that are cold, or wanted. The shard's lock guards it.
type readAhead struct {
	cold   int    // ready jobs that are
	wanted int64  // bytes of jobs that are
	heaped int    // where the last look in the heap has ended
	last   uint64 // the id of the job at which the last look has ended; 0 for none
}

// aheadSize is what a job counts in a window: very many small ones are not wanted either.
func aheadSize(j *job) int64 { return jobMemory + arena.Footprint(j.size) }

// countCold counts n more ready jobs of a tube that are cold, or fewer.
func (t *tube) countCold(n int) {
	if t.ahead == nil {
		t.ahead = new(readAhead)
	}
	t.ahead.cold += n
	t.endAhead()
}

// endAhead forgets where reading ahead was when there is nothing to be read.
func (t *tube) endAhead() {
	if t.ahead.cold == 0 && t.ahead.wanted == 0 {
		t.ahead = nil
	}
}

// leaveAhead counts off a ready job, which is cold or wanted and is about to be ready no more.
func (sh *shard) leaveAhead(t *tube, j *job) {
	if j.storage&isWanted != 0 {
		sh.unwant(t, j)
	}
	if j.cold() {
		t.countCold(-1)
	}
}

// unwant undoes want.
func (sh *shard) unwant(t *tube, j *job) {
	n := aheadSize(j)
	j.storage &^= isWanted
	t.ahead.wanted -= n
	sh.shared.wanted.Add(-n)
	t.endAhead()
}

// readAhead has jobs of the tube be wanted that come next, one of which has just been reserved.
func (sh *shard) readAhead(t *tube) {
	a, e := t.ahead, sh.shared
	if a.cold == 0 || e.wanted.Load() >= e.cfg.Limits.Bodies/4 {
		return
	}
	if n := min(t.ready.InHeap(), aheadHeap); n > 0 {
		for look := min(n, aheadStep); look > 0 && a.wanted < aheadWindow; look-- {
			if a.heaped++; a.heaped >= n {
				a.heaped = 0
			}
			if !sh.want(t, sh.job(t.ready.AtHeap(a.heaped))) {
				return
			}
		}
	}
	look := aheadLook
	if a.wanted >= aheadWindow/2 {
		look = 0
	}
	r := sh.lookedTo(t)
	for ; look > 0 && r != 0 && a.wanted < aheadWindow; look-- {
		j := sh.job(r)
		if !sh.want(t, j) {
			return
		}
		a.last = j.ID
		r = t.ready.Behind(j.pri, &j.Links)
	}
}

// lookedTo is the first job of the tube that was not looked at, but for those in a heap; 0 if all were.
func (sh *shard) lookedTo(t *tube) ref {
	if _, j := sh.find(t.ahead.last); j != nil && j.state == ready && j.tube == t.index && !j.withheld() {
		return t.ready.Behind(j.pri, &j.Links)
	}
	return t.ready.Headmost()
}

// withheld reports whether a ready job may not stand in the order of its tube.
func (j *job) withheld() bool { return j.flags&(isLimited|isFair) != 0 }

// want has a ready job of the tube be wanted. It returns false if its body would have to be loaded, and cannot be now.
func (sh *shard) want(t *tube, j *job) bool {
	if j.storage&isWanted != 0 || j.withheld() {
		return true
	}
	if j.cold() {
		if !sh.shared.loads.Ahead(j.fetch(), maxAhead) {
			return false
		}
		sh.by.asks()
	}
	n := aheadSize(j)
	j.storage |= isWanted
	t.ahead.wanted += n
	sh.shared.wanted.Add(n)
	return true
}
