package engine

import (
	"slices"

	"trellis/codec"
)

// touchingAll is a touch-all: it touches what the session has reserved when it begins,
// shard by shard.
type touchingAll struct {
	at           Time          // when it began
	reservations *reservations // of the session, which is next
	cursor       ref           // of a scan of their shard; 0 if there is none
	touched      uint64
	changes      Output // what the touches depend on
}

func (s *Session) touchAll(now Time, out *Output) Outcome {
	return (&touchingAll{at: now, reservations: s.reserved.list(), changes: Output{by: out.by}}).turn(s, now, out)
}

func (ta *touchingAll) turn(s *Session, now Time, out *Output) Outcome {
	l := s.loop
	for ta.reservations != nil {
		h := ta.reservations
		sh := h.shard
		sh.lock(&l.locks, now)
		before := ta.touched
		if ta.cursor == 0 && h.jobs.Len() <= scanSlice {
			ta.few(h)
		} else {
			ta.scan(h)
		}
		sh.unlock(&l.locks)
		if !l.Spend(int(ta.touched-before)+scanCost) && ta.reservations != nil {
			return s.yield(ta)
		}
	}
	out.dependOn(ta.changes.Pos)
	out.Buf = codec.AppendCount(out.Buf, "TOUCHED_ALL", ta.touched)
	return Done
}

// few touches all of a few reservations.
func (ta *touchingAll) few(h *reservations) {
	for _, r := range slices.AppendSeq(make([]ref, 0, scanSlice), h.jobs.All()) {
		ta.touch(h, r, h.shard.job(r))
		ta.touched++
	}
	ta.reservations = h.next
}

// scan touches the session's jobs among the next slice of the shard's jobs. In their
// heap, which changes meanwhile, some could be missed. A job whose record moves is met twice.
func (ta *touchingAll) scan(h *reservations) {
	if ta.cursor == 0 {
		// No time to run that began before ends as late as those that begin now, which
		// tells the jobs that were touched from the others.
		ta.at, ta.cursor = h.shard.now+1, ^ref(0)
	}
	ta.cursor = h.shard.jobs.Walk(ta.cursor, scanSlice, func(r ref) {
		if j := h.shard.job(r); j.state == reserved && j.Next == h.index && ta.touch(h, r, j) {
			ta.touched++
		}
	})
	if ta.cursor == 0 {
		ta.reservations = h.next
	}
}

// touch starts the time to run of a job anew. It returns false if the job has as much time
// already.
func (ta *touchingAll) touch(h *reservations, r ref, j *job) bool {
	end := ta.at + seconds(j.ttr)
	if end <= j.at() {
		return false
	}
	// It fails only if another server has taken over: then nobody is answered.
	return h.shard.touch(h, r, j, end, &ta.changes) == nil
}
