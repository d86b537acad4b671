package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkBounds reports what certainly breaks bounds of a tube or of a job: more jobs that are reserved at a time than may
// be, less time between two that begin at one server, and a job that does not expire.
func checkBounds(history []Op, jobs []*life) error {
	var begun []int64 // when servers began to serve
	ends := map[int]int64{}
	for i := range history {
		switch o := &history[i]; o.Verb {
		case serves:
			begun = append(begun, o.Call)
		case end:
			ends[o.Session] = o.Call
		}
	}
	holds, bounds := map[string][]*hold{}, map[string]Bounds{}
	for _, l := range jobs {
		if o := l.outlives(); o != nil {
			return fmt.Errorf("job %d should have expired:\n%v\n%v", l.put.ID, l.put, o)
		}
		if b := l.put.Bounds; b.bounded() {
			bounds[l.put.Tube] = b
			holds[l.put.Tube] = append(holds[l.put.Tube], l.holds(ends)...)
		}
	}
	for tube, all := range holds {
		if err := checkReserved(all, bounds[tube].Reserved); err != nil {
			return fmt.Errorf("tube %s: %w", tube, err)
		}
		if err := checkApart(all, bounds[tube].Apart, begun); err != nil {
			return fmt.Errorf("tube %s: %w", tube, err)
		}
	}
	return nil
}

// outlives is a command that has seen the job although that should have expired; nil if there is none.
func (l *life) outlives() *Op {
	for _, o := range l.ops {
		x := o.Stats
		if l.put.Expires > 0 && o.Late && x != nil && x.Kicks == 0 && (x.State == "ready" || x.State == "delayed") {
			return o
		}
	}
	return nil
}

// holds are the job's reservations, each for as long as it was there for certain. Sessions have ended at those times at
// the earliest.
func (l *life) holds(ends map[int]int64) (all []*hold) {
	ops := slices.SortedStableFunc(slices.Values(l.ops), func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	last := map[int]*hold{} // by session
	for _, o := range ops {
		h := last[o.Session]
		switch {
		case o.Reply == "RESERVED":
			h = &hold{interval: interval{from: o.Return, to: never, job: o.ID}, Op: o}
			if until, ok := ends[o.Session]; ok {
				h.to = until
			}
			if l.put.TTR < longTTR {
				h.to = min(h.to, o.Call+int64(l.put.TTR)*int64(time.Second))
			}
			last[o.Session] = h
			all = append(all, h)
		case h != nil && o.Verb != Touch && o.Verb != Peek && o.Verb != StatsJob:
			h.to = min(h.to, o.Call)
		}
	}
	return all
}

// checkReserved looks for more holds at a time than may be; 0 is any number.
func checkReserved(all []*hold, most int) error {
	for _, h := range all {
		var at []*hold // when h begins
		for _, o := range all {
			if o.from <= h.from && h.from < o.to {
				at = append(at, o)
			}
		}
		if most > 0 && len(at) > most {
			return fmt.Errorf("%d jobs are reserved at a time, of %d:\n%v\n%v", len(at), most, at[0].Op, at[1].Op)
		}
	}
	return nil
}

// checkApart looks for two that have begun at one server in less time than has to be between them.
func checkApart(all []*hold, apart time.Duration, begun []int64) error {
	for i, a := range all {
		for _, b := range all[:i] {
			from, to := min(a.Call, b.Call), max(a.Return, b.Return)
			other := slices.ContainsFunc(begun, func(at int64) bool { return from <= at && at <= to })
			if a.Late || b.Late || other {
				continue // Audit has no patience, and another server has not counted
			}
			if d := time.Duration(to - from); d < apart-time.Duration(clockSlack) {
				return fmt.Errorf("two jobs have begun within %v, not %v:\n%v\n%v", d, apart, a.Op, b.Op)
			}
		}
	}
	return nil
}
