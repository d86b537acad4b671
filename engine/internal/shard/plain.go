package shard

// Most jobs have no tags, and most tubes no setting and no fair keys: they are plain. Whoever changes a
// job asks once whether it and its tube are, and what few use is looked at only where they are not.
//
// The word of a tube is tube.plain, that of a job is job.flags, which is 0 then. A tube's word is
// put together by tube.classify from all that makes a tube other than plain, whenever one of those
// comes or goes. That it is false where it could be true costs time and nothing else.

// classify finds out whether the tube is plain.
func (t *tube) classify() { t.plain = t.policy == nil && t.limits == nil && t.fair == nil }

// plain reports whether nothing but its state and priority decides what becomes of a job of the tube t.
func (j *job) plain(t *tube) bool { return j.flags == 0 && t.plain }

// beforeChange does what is to be done before a job that is not plain comes to a state.
func (sh *shard) beforeChange(t *tube, j *job, to state) {
	if t.fair != nil {
		sh.prepareFair(t, j, to)
	}
}

// pushReady adds a job that is not plain to the ready jobs of its tube.
func (sh *shard) pushReady(t *tube, r ref, j *job) {
	switch {
	case j.flags&isLimited != 0:
		t.ready.PushWithheld(j.pri, &j.Links)
		sh.pushLimited(t, r, j)
	case t.fair != nil:
		t.ready.PushWithheld(j.pri, &j.Links)
		sh.offer(t, r, j)
	default:
		t.ready.Push(sh.table, j.pri, r, &j.Links)
	}
}

// removeReady undoes pushReady.
func (sh *shard) removeReady(t *tube, j *job) {
	switch {
	case j.flags&isLimited != 0:
		t.ready.RemoveWithheld(j.pri, &j.Links)
		sh.removeLimited(t, j)
	case j.flags&isFair != 0:
		t.ready.RemoveWithheld(j.pri, &j.Links)
		sh.withdraw(t, j)
	default:
		t.ready.Remove(sh.table, j.pri, &j.Links)
	}
}

// addReserved counts a reserved job that is not plain where that keeps others from being reserved.
func (sh *shard) addReserved(t *tube, j *job) {
	if t.limits != nil {
		t.gate()
	}
	if j.flags&isLimited != 0 {
		sh.occupy(t, j)
	}
}

// removeReserved undoes addReserved.
func (sh *shard) removeReserved(t *tube, j *job) {
	if t.limits != nil {
		t.gate()
	}
	if j.flags&isLimited != 0 {
		sh.vacate(t, j)
	}
	if j.flags&isFair != 0 {
		sh.vacateFair(t, j)
	}
	sh.orphansWith(j).forget()
}

// afterChange does what is to be done when a job that is not plain has come from one state to another.
func (sh *shard) afterChange(j *job, from state) {
	if j.flags&hasGroups != 0 && (from == held || from == buried || j.state == buried) {
		sh.regroup(j)
	}
	if j.flags&expires != 0 {
		sh.awaitExpiry(j)
	}
}
