package engine

import "math/bits"

// A wheel keeps timers in order with constant cost for each: a hierarchical
// timing wheel after Varghese and Lauck, with levels of 64 slots. A level's
// slot spans all slots of the level below it. A timer stands in the lowest
// level on which its tick differs from the present one, and moves down when
// the present reaches its slot.
//
// Ticks are 2^16 ns, 66 microseconds. They only sort the timers: one fires when
// its deadline has come to the nanosecond, and never before.
//
// The zero wheel is empty at time 0. Its owner's lock or loop guards it.
type wheel struct {
	now    int64               // a tick; no timer stands before it
	filled [wheelLevels]uint64 // a bit for each slot with a timer
	slots  [wheelLevels][wheelSlots]*timer
}

const (
	tickBits    = 16
	slotBits    = 6
	wheelSlots  = 1 << slotBits
	wheelLevels = 8 // 2^48 ticks: more than Time can hold
)

// A timer fires once. The zero timer, given an owner, is ready for use.
type timer struct {
	next, prev *timer // in the slot, a queue whose first keeps the last in prev
	at         Time   // when it is due, meaningful while set
	place      int16  // level and slot, plus 1; 0 when not set
	owner      expirer
}

// An expirer does what is due when its timer fires. The timer is no longer set
// by then and may be set anew. It returns false when it has more to do and others
// should have their turn: then nothing more fires, and this timer comes last when
// the wheel is advanced again.
type expirer interface{ expire(now Time) (done bool) }

func (t *timer) set() bool { return t.place != 0 }

// schedule sets t, which must not be set, to fire once at has come.
func (w *wheel) schedule(t *timer, at Time) {
	t.at = at
	w.insert(t)
}

func (w *wheel) insert(t *timer) {
	tick := max(int64(t.at)>>tickBits, w.now)
	level := 0
	if diff := tick ^ w.now; diff != 0 {
		level = (bits.Len64(uint64(diff)) - 1) / slotBits
	}
	slot := tick >> (level * slotBits) & (wheelSlots - 1)
	head := &w.slots[level][slot]
	t.next = nil
	if *head == nil {
		t.prev = t
		*head = t
	} else {
		last := (*head).prev
		last.next, t.prev = t, last
		(*head).prev = t
	}
	w.filled[level] |= 1 << slot
	t.place = int16(level*wheelSlots+int(slot)) + 1
}

// cancel unsets t if it is set.
func (w *wheel) cancel(t *timer) {
	if t.place == 0 {
		return
	}
	level, slot := (t.place-1)/wheelSlots, (t.place-1)%wheelSlots
	head := &w.slots[level][slot]
	switch first := *head; {
	case first != t && t.next != nil:
		t.prev.next, t.next.prev = t.next, t.prev
	case first != t:
		t.prev.next, first.prev = nil, t.prev
	case t.next != nil:
		t.next.prev = t.prev
		*head = t.next
	default:
		*head = nil
		w.filled[level] &^= 1 << slot
	}
	t.next, t.prev, t.place = nil, nil, 0
}

// due is the time by which advance has something to do: a timer to fire, or
// some to move down a level. MaxTime when the wheel is empty.
func (w *wheel) due() Time {
	level, tick := w.nextSlot()
	switch level {
	case -1:
		return MaxTime
	case 0:
		at := MaxTime
		for t := w.slots[0][tick&(wheelSlots-1)]; t != nil; t = t.next {
			at = min(at, t.at)
		}
		return at
	}
	return Time(tick << tickBits)
}

// nextSlot finds the first slot with a timer, and the tick at which it begins.
func (w *wheel) nextSlot() (level int, tick int64) {
	for level, f := range w.filled {
		if f != 0 {
			shift := level * slotBits
			above := w.now >> shift >> slotBits << slotBits
			return level, (above | int64(bits.TrailingZeros64(f))) << shift
		}
	}
	return -1, 0
}

// skip moves the present on to a time, but not past what is due before. A wheel
// whose present lags behind works as well, but wakes its owner needlessly.
// Timers whose slot the present passes move down: left where they are, they
// would be found only after all younger ones below them.
func (w *wheel) skip(now Time) {
	to := int64(now) >> tickBits
	for {
		level, tick := w.nextSlot()
		switch {
		case level < 0 || tick > to:
			w.now = max(w.now, to)
			return
		case level == 0:
			w.now = max(w.now, tick)
			return
		}
		w.moveDown(level, tick)
	}
}

// moveDown moves the present to the beginning of a slot above the lowest level
// and the slot's timers to lower ones.
func (w *wheel) moveDown(level int, tick int64) {
	w.now = tick
	head := &w.slots[level][tick>>(level*slotBits)&(wheelSlots-1)]
	for t := *head; t != nil; t = *head {
		w.cancel(t)
		w.insert(t)
	}
}

// advance fires everything that is due at now, by ticks and within a tick in
// the order of setting. It returns false if an expirer has interrupted it.
func (w *wheel) advance(now Time) (all bool) {
	to := int64(now) >> tickBits
	for {
		level, tick := w.nextSlot()
		if level < 0 || tick > to {
			w.now = max(w.now, to)
			return true
		}
		if level > 0 {
			w.moveDown(level, tick)
			continue
		}
		w.now = tick
		head := &w.slots[0][tick&(wheelSlots-1)]
		if !w.fire(head, now) {
			return false
		}
		if *head != nil {
			return true // what is left in the present tick comes later in it
		}
	}
}

// fire fires what is due in a slot of the lowest level, and what becomes due
// there while it does. It returns false if an expirer has interrupted it.
func (w *wheel) fire(head **timer, now Time) bool {
	for fired := true; fired; {
		fired = false
		n := 0
		for t := *head; t != nil; t = t.next {
			n++
		}
		for ; n > 0 && *head != nil; n-- {
			t := *head
			w.cancel(t)
			if t.at > now {
				w.insert(t)
				continue
			}
			fired = true
			if !t.owner.expire(now) {
				if !t.set() {
					w.insert(t)
				}
				return false
			}
		}
	}
	return true
}
