package queue

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// All yields every record in the heap, in no order. The heap must not change
// meanwhile.
func (h *Heap) All() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for i := range h.Len() {
			if !yield(h.At(i).Ref) {
				return
			}
		}
	}
}

// Check reports whether the heap's order and its records' indexes are right.
// It is for tests and looks at every entry.
func (h *Heap) Check(t Table) error {
	for i := range h.Len() {
		e := h.At(i)
		if l := t.at(e.Ref); l.ID != e.ID || int(l.Prev) != i {
			return fmt.Errorf("entry %d is job %d, which is job %d at %d", i, e.ID, l.ID, l.Prev)
		}
		if parent := h.At((i - 1) / heapArity); i > 0 && e.before(&parent) {
			return fmt.Errorf("entry %d is before its parent", i)
		}
	}
	switch {
	case h.large == nil && cap(h.small) > blockLen:
		return fmt.Errorf("there is room for %d entries in one piece", cap(h.small))
	case h.large != nil && &h.small[0] != h.large.at(0):
		return errors.New("the first block is not where the first entry is looked for")
	case h.large != nil && len(h.large.list)<<blockBits >= h.large.n+2*blockLen:
		return fmt.Errorf("%d blocks for %d entries", len(h.large.list), h.large.n)
	}
	return nil
}

// all yields the records of a run, first to last.
func (u *run) all(t Table) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for r := u.head; r != 0; r = t.at(r).Next {
			if !yield(r) {
				return
			}
		}
	}
}

// check reports whether the links of a run are right and its records ascend.
func (u *run) check(t Table, before func(l, m *Links) bool) error {
	var last Ref
	for r := range u.all(t) {
		l := t.at(r)
		if l.Prev != last {
			return fmt.Errorf("job %d is linked wrongly", l.ID)
		}
		if last != 0 && !before(t.at(last), l) {
			return fmt.Errorf("job %d is behind one that it should be before", l.ID)
		}
		last = r
	}
	if last != u.tail {
		return errors.New("a run does not know its last job")
	}
	return nil
}

// All yields every record in the queue, in no order. The queue must not change meanwhile.
func (q *ByPriority) All(t Table) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for _, u := range q.runs {
			for r := range u.all(t) {
				if !yield(r) {
					return
				}
			}
		}
		q.heap.All()(yield)
	}
}

// Least yields the first n records of the order, among up to n others and in no order, fewer if
// there are not so many. The queue must not change meanwhile.
func (q *ByPriority) Least(t Table, n int) iter.Seq[Ref] {
	return least(func(yield func(Ref) bool) {
		for _, u := range slices.Backward(q.runs) {
			for r := range u.all(t) {
				if !yield(r) {
					return
				}
			}
		}
	}, &q.heap, n)
}

// least yields the first n of some records, and then the n least of a heap.
func least(first iter.Seq[Ref], h *Heap, n int) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		left := n
		for r := range first {
			if left == 0 {
				break
			}
			if left--; !yield(r) {
				return
			}
		}
		h.LeastRefs(n)(yield)
	}
}

// Check reports whether the queue's structure and counts are right. pri returns
// the priority with which a record was pushed; withheld are the records that are. It is
// for tests and looks at every record.
func (q *Ready) Check(t Table, pri func(Ref) uint32, withheld ...Ref) error {
	count, urgent := 0, 0
	marks := make([]int, len(q.ages.marks))
	for _, r := range slices.AppendSeq(withheld, q.All(t)) {
		count++
		if pri(r) < UrgentBelow {
			urgent++
		}
		mark := len(marks) - 1
		for mark >= 0 && q.ages.marks[mark].since > t.at(r).At {
			mark--
		}
		if mark >= 0 {
			marks[mark]++
		}
	}
	if count != q.count || urgent != q.urgent {
		return fmt.Errorf("%d jobs, %d urgent; has %d, %d", q.count, q.urgent, count, urgent)
	}
	for i, m := range q.ages.marks {
		if m.jobs != marks[i] || i > 0 && m.since <= q.ages.marks[i-1].since || i == 0 && m.jobs == 0 {
			return fmt.Errorf("%d jobs are ready since %d, counts %d", marks[i], m.since, m.jobs)
		}
	}
	return q.ByPriority.Check(t, pri)
}

// Check reports whether the queue's structure is right. pri returns the priority with which
// a record was pushed. It is for tests and looks at every record.
func (q *ByPriority) Check(t Table, pri func(Ref) uint32) error {
	if len(q.runs) > maxRuns {
		return fmt.Errorf("there are %d runs", len(q.runs))
	}
	for i, u := range q.runs {
		if u.head == 0 || i > 0 && u.pri >= q.runs[i-1].pri {
			return fmt.Errorf("the run of priority %d is empty or in a wrong place", u.pri)
		}
		for r := range u.all(t) {
			if pri(r) != u.pri || t.at(r).Next == inHeap {
				return fmt.Errorf("job %d of priority %d is in the run of %d", t.at(r).ID, pri(r), u.pri)
			}
		}
		if err := u.check(t, func(l, m *Links) bool { return l.ID < m.ID }); err != nil {
			return fmt.Errorf("the run of priority %d: %w", u.pri, err)
		}
	}
	for i := range q.heap.Len() {
		if e := q.heap.At(i); e.Key != uint64(pri(e.Ref)) || t.at(e.Ref).Next != inHeap {
			return fmt.Errorf("job %d of priority %d is in the heap with %d", e.ID, pri(e.Ref), e.Key)
		}
	}
	return q.heap.Check(t)
}

// All yields every record in the queue, in no order. The queue must not change
// meanwhile.
func (q *Ordered) All(t Table) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for r := range q.run.all(t) {
			if !yield(r) {
				return
			}
		}
		q.heap.All()(yield)
	}
}

// Least yields the first n records, among up to n others and in no order, fewer if there are not
// so many. The queue must not change meanwhile.
func (q *Ordered) Least(t Table, n int) iter.Seq[Ref] { return least(q.run.all(t), &q.heap, n) }

// Check reports whether the queue's structure and count are right. It is for
// tests and looks at every record.
func (q *Ordered) Check(t Table) error {
	count := 0
	for range q.All(t) {
		count++
	}
	if count != q.count {
		return fmt.Errorf("%d records; has %d", q.count, count)
	}
	for i := range q.heap.Len() {
		if e := q.heap.At(i); e.Key != uint64(t.at(e.Ref).At) || t.at(e.Ref).Next != inHeap {
			return fmt.Errorf("record %d of %d is in the heap with %d", e.ID, t.at(e.Ref).At, e.Key)
		}
	}
	if err := q.run.check(t, (*Links).before); err != nil {
		return err
	}
	return q.heap.Check(t)
}

// All yields the timers, in no order. The wheel must not change meanwhile.
func (w *Wheel) All() iter.Seq[*Timer] {
	return func(yield func(*Timer) bool) {
		for level := range w.slots {
			for _, first := range w.slots[level] {
				for t := first; t != nil; t = t.next {
					if !yield(t) {
						return
					}
				}
			}
		}
	}
}

// Check reports whether every timer stands where it belongs. It is for tests and
// looks at every timer.
func (w *Wheel) Check() error {
	for level := range w.slots {
		for slot, first := range w.slots[level] {
			if w.filled[level]>>slot&1 != 0 != (first != nil) {
				return fmt.Errorf("slot %d.%d is marked wrongly", level, slot)
			}
			var last *Timer
			for t := first; t != nil; last, t = t, t.next {
				if t != first && t.prev != last || int(t.slot) != level*wheelSlots+slot+1 {
					return fmt.Errorf("slot %d.%d is linked wrongly", level, slot)
				}
				tick, shift := max(t.at>>tickBits, w.now), level*slotBits
				if int(tick>>shift&(wheelSlots-1)) != slot || (tick^w.now)>>shift>>slotBits != 0 ||
					level > 0 && tick>>shift == w.now>>shift && level != w.moving {
					return fmt.Errorf("a timer for tick %d stands in slot %d.%d at tick %d", tick, level, slot, w.now)
				}
			}
			if first != nil && first.prev != last {
				return fmt.Errorf("slot %d.%d does not know its last", level, slot)
			}
		}
	}
	return nil
}
