package queue

import (
	"math"
	"math/bits"
)

// A Wheel keeps timers in order with constant cost for each: a hierarchical
// timing wheel after Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels" (1987), with levels of 64 slots. A level's slot spans all slots of the
// level below it. A timer stands in the lowest level on which its tick differs
// from the present one, and moves down when the present reaches its slot.
//
// Ticks are 2^16 ns, 66 microseconds. They only sort the timers: one fires when
// its deadline has come to the nanosecond, and never before. Timers fire by
// ticks, and within a tick in the order in which they were scheduled.
//
// Millions of timers may share a slot. To move them down, or to look for those
// that are due, can therefore be interrupted and goes on with the next call.
//
// The zero Wheel is empty at time 0. Its owner's lock or loop guards it and its
// timers.
type Wheel struct {
	now    int64               // the present tick; no timer stands before it
	filled [wheelLevels]uint64 // a bit for each slot with a timer
	slots  [wheelLevels][wheelSlots]*Timer

	// soonest is the least deadline in each slot of the lowest level that has
	// timers, or less if that timer was cancelled.
	soonest [wheelSlots]int64

	// moving is the level whose present slot is being moved down, 0 if none is.
	// Until that is done, new timers that would stand below it join the slot, so
	// that they stay behind those scheduled before.
	moving int

	// pass is now+1 while fire is partway through a slot, else 0: soonest then covers only
	// what fire has come past. kept is the last timer that it has left there, behind which
	// it goes on, nil if it goes on from the first.
	pass int64
	kept *Timer
}

const (
	tickBits    = 16
	slotBits    = 6
	wheelSlots  = 1 << slotBits
	wheelLevels = 8 // 2^48 ticks: more than an int64 of nanoseconds can hold

	// skipSteps is how many timers Skip moves at most. Every one that is scheduled
	// may skip, so those that it leaves are soon done.
	skipSteps = 64
)

// Never is later than every deadline.
const Never int64 = math.MaxInt64

// A Timer fires once. The zero Timer, given an owner, is ready for use. It must
// not be copied while it is scheduled.
type Timer struct {
	Owner Expirer // set before Schedule

	next, prev *Timer // in the slot, a queue whose first keeps the last in prev
	at         int64  // when it is due, in nanoseconds, meaningful while scheduled
	slot       int16  // level and slot, plus 1; 0 when not scheduled
}

// An Expirer does what is due when its timer fires. The timer is not scheduled
// any more by then and may be scheduled anew, and the Expirer may schedule and cancel others. It
// returns false when it has more to do and others should have their turn: then
// nothing more fires, and this timer comes last when the wheel is advanced again.
type Expirer interface{ Expire(now int64) (done bool) }

// Scheduled reports whether t will fire.
func (t *Timer) Scheduled() bool { return t.slot != 0 }

// At is when a scheduled timer is due, in nanoseconds.
func (t *Timer) At() int64 { return t.at }

// Schedule sets t, which must not be scheduled, to fire once at has come.
func (w *Wheel) Schedule(t *Timer, at int64) {
	t.at = at
	w.insert(t, w.moving)
}

// insert puts t into its slot on a level that is not below lowest.
func (w *Wheel) insert(t *Timer, lowest int) {
	tick := max(t.at>>tickBits, w.now)
	level := lowest
	if diff := tick ^ w.now; diff != 0 {
		level = max(level, (bits.Len64(uint64(diff))-1)/slotBits)
	}
	slot := tick >> (level * slotBits) & (wheelSlots - 1)
	head := &w.slots[level][slot]
	t.next = nil
	if *head == nil {
		t.prev = t
		*head = t
		w.filled[level] |= 1 << slot
		if level == 0 {
			w.soonest[slot] = t.at
		}
	} else {
		last := (*head).prev
		last.next, t.prev = t, last
		(*head).prev = t
		if level == 0 {
			w.soonest[slot] = min(w.soonest[slot], t.at)
		}
	}
	t.slot = int16(level*wheelSlots+int(slot)) + 1
}

// Cancel makes t not fire. A timer that is not scheduled stays as it is.
func (w *Wheel) Cancel(t *Timer) {
	if t.slot == 0 {
		return
	}
	level, slot := int(t.slot-1)/wheelSlots, int(t.slot-1)%wheelSlots
	head := &w.slots[level][slot]
	first := *head
	if t == w.kept {
		w.kept = nil // the pass begins anew
	}
	switch {
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
	t.next, t.prev, t.slot = nil, nil, 0
}

// Due is a time by which Advance has something to do: a timer to fire, some to
// move down a level, or what it was interrupted in. It is never later than the
// first deadline; if that has passed already, Due has passed, too. It is Never
// when the wheel is empty.
func (w *Wheel) Due() int64 {
	level, tick := w.nextSlot()
	switch {
	case level < 0:
		return Never
	case level == 0 && w.pass != tick+1:
		return w.soonest[tick&(wheelSlots-1)]
	}
	return tick << tickBits
}

// nextSlot finds the first slot with a timer, and the tick at which it begins.
// The slot that is being moved down is before all others.
func (w *Wheel) nextSlot() (level int, tick int64) {
	if w.moving != 0 {
		if w.slots[w.moving][w.now>>(w.moving*slotBits)&(wheelSlots-1)] != nil {
			return w.moving, w.now
		}
		w.moving = 0 // it has moved down, or was cancelled
	}
	for level, f := range w.filled {
		if f != 0 {
			shift := level * slotBits
			above := w.now >> shift >> slotBits << slotBits
			return level, (above | int64(bits.TrailingZeros64(f))) << shift
		}
	}
	return -1, 0
}

// Skip moves the present on to a time, but not past what is due before. A wheel
// whose present lags behind works as well, but wakes its owner needlessly.
// Timers whose slot the present passes move down: left where they are, they
// would be found only after all younger ones below them. If that takes too long,
// the present goes no further for now.
func (w *Wheel) Skip(now int64) {
	to := now >> tickBits
	budget := skipSteps
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
		if !w.moveDown(level, tick, &budget) {
			return
		}
	}
}

// moveDown moves the present to the beginning of a slot above the lowest level
// and the slot's timers to lower ones. It returns false if the budget ends before.
func (w *Wheel) moveDown(level int, tick int64, budget *int) (done bool) {
	w.now, w.moving = tick, level
	head := &w.slots[level][tick>>(level*slotBits)&(wheelSlots-1)]
	for t := *head; t != nil; t = *head {
		if *budget <= 0 {
			return false
		}
		*budget--
		w.Cancel(t)
		w.insert(t, 0)
	}
	return true
}

// Advance fires everything that is due at now. Each timer that it fires, moves
// down or looks at in vain takes one from budget, and an Expirer may take more.
// When nothing is left of the budget, or an Expirer asks for it, Advance returns
// false, and the next call goes on from there. It returns true when there is
// nothing left to do at now.
func (w *Wheel) Advance(now int64, budget *int) (all bool) {
	to := now >> tickBits
	for {
		level, tick := w.nextSlot()
		if level < 0 || tick > to {
			w.now = max(w.now, to)
			return true
		}
		if level > 0 {
			if !w.moveDown(level, tick, budget) {
				return false
			}
			continue
		}
		w.now = tick
		if !w.fire(now, budget) {
			return false
		}
		if w.slots[0][tick&(wheelSlots-1)] != nil {
			return true // what is left in the present tick comes later in it
		}
	}
}

// fire fires what is due in the lowest level's present slot, and what becomes
// due there while it does. It returns false if it was interrupted.
//
// A pass goes along the slot from the first timer to the last and leaves those
// there that are not due. Another one follows if some of them are due by then.
func (w *Wheel) fire(now int64, budget *int) (done bool) {
	slot, pass := w.now&(wheelSlots-1), w.now+1
	head := &w.slots[0][slot]
	for *head != nil && (w.pass == pass || w.soonest[slot] <= now) {
		if w.pass != pass {
			w.pass, w.soonest[slot] = pass, Never
		}
		t := *head
		if w.kept != nil {
			t = w.kept.next
		}
		if t == nil {
			w.pass, w.kept = 0, nil
			continue
		}
		if *budget <= 0 {
			return false
		}
		*budget--
		if t.at > now {
			w.kept = t
			w.soonest[slot] = min(w.soonest[slot], t.at)
			continue
		}
		w.Cancel(t)
		if !t.Owner.Expire(now) {
			if !t.Scheduled() {
				w.insert(t, 0)
			}
			w.kept = nil // t comes last, behind all that become due
			return false
		}
	}
	w.pass = 0
	return true
}
