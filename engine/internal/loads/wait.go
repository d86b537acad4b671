package loads

import (
	"slices"

	"trellis/binlog/journal"
)

// A Wait is what one command waits for. It is an error, so that an operation can return it: the command cannot be
// executed before all of its loads have ended. Its owner belongs to a loop, whose goroutine calls its methods. To
// loops it is the token of what they wait for: another wait of the same owner is another Wait.
type Wait struct {
	ID  uint64      // the job that a reserve has reserved and that its client is not told of yet; 0 for none
	Pos journal.Pos // that the reply then depends on

	table *Table
	owner Owner
	turn  uint64
	loads []*load
	first [1]*load // where loads lies until there is a second one
	left  int      // of the loads, those under way. The table's lock guards it

	list  []journal.Fetch // of a wait that is not admitted: its loads
	need  int64           // bytes of all bodies that its command needs, 0 for those that it waits for
	bytes int64           // that it is admitted with

	stage stage
}

// stage says how the owner of a wait stands: waits -> late (Late) -> left (Leave), or at once.
type stage uint8

const (
	waits stage = iota
	late
	left
)

// Error implements error.
func (w *Wait) Error() string { return "bodies are not in memory" }

// Need says that the command needs bodies of so many bytes, some of which may be in memory now. It is called before
// Add.
func (w *Wait) Need(bytes int64) { w.need = bytes }

// Add makes the wait one for bodies, each of which is fetched unless it is on its way, when the wait is admitted: with
// all that its command needs, so that two waits never have half of theirs each. It is called again, when all of its
// loads have ended, with what the command needs further.
func (w *Wait) Add(list ...journal.Fetch) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	w.left = len(list)
	if len(w.loads) > 0 { // it is admitted
		w.begin(list)
		return
	}
	w.list, w.bytes = list, 0
	for i := range list {
		w.bytes += int64(list[i].Size)
	}
	w.bytes = max(w.bytes, w.need)
	if len(list) > 0 {
		t.queue = append(t.queue, w)
		t.admit()
	}
}

// begin begins the loads of a wait that is admitted. The table's lock is held.
func (w *Wait) begin(list []journal.Fetch) {
	t := w.table
	if w.loads == nil {
		w.loads = w.first[:0]
	}
	for _, f := range list {
		f.Lane, f.Turn = journal.Urgent, w.turn
		l := t.byID[f.ID]
		switch {
		case l == nil || l.ended:
			l = t.begin(f)
		case l.fetch.Lane == journal.Ahead: // now somebody waits for it
			l.fetch.Lane, l.fetch.Turn = f.Lane, f.Turn
			t.ask(l.fetch)
		}
		l.waits = append(l.waits, w)
		w.loads = append(w.loads, l)
	}
	w.list = nil
}

// Len is how many bodies it is for.
func (w *Wait) Len() int { return len(w.loads) + len(w.list) }

// Late says that the owner has waited for long. It returns false if that was said before.
func (w *Wait) Late() bool {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.stage != waits {
		return false
	}
	w.stage = late
	t.late++
	return true
}

// GiveUp says that the owner has waited for too long. What it waits for ends as if the disk hung, for all who wait for
// that; what others have begun to fetch meanwhile, while this wait was not admitted, it waits for with them.
func (w *Wait) GiveUp() {
	t := w.table
	t.mu.Lock()
	done := t.giveUp(w)
	t.unlock()
	for _, x := range done {
		x.owner.Loaded(x)
	}
}

// giveUp is GiveUp, and returns whose last loads have ended. The lock is held.
func (t *Table) giveUp(w *Wait) (done []*Wait) {
	if w.list == nil {
		for _, l := range slices.Clone(w.loads) {
			if !l.ended {
				done = append(done, t.endLoad(l, journal.ErrHangs)...)
			}
		}
		return done
	}
	t.queue = slices.DeleteFunc(t.queue, func(x *Wait) bool { return x == w })
	w.left = 0
	for _, f := range w.list {
		l := t.byID[f.ID]
		if l == nil || l.ended {
			l = t.add(&load{fetch: f, ended: true, err: journal.ErrHangs})
		} else {
			w.left++
		}
		l.waits = append(l.waits, w)
		w.loads = append(w.loads, l)
	}
	if w.list, w.bytes = nil, 0; w.left == 0 {
		done = []*Wait{w}
	}
	return done
}

// Leave ends the wait, whether all of its loads have ended or not: nobody waits for them, and the bodies need not stay
// in memory, unless others wait. Afterwards nothing has a part of it. It may be called twice.
func (w *Wait) Leave() {
	t := w.table
	t.mu.Lock()
	if w.list != nil {
		t.queue = slices.DeleteFunc(t.queue, func(x *Wait) bool { return x == w })
	} else {
		t.bytes -= w.bytes
	}
	w.list, w.bytes = nil, 0
	for _, l := range w.loads {
		l.waits = slices.DeleteFunc(l.waits, func(x *Wait) bool { return x == w })
		t.forget(l)
	}
	w.loads = nil
	if w.stage == late {
		t.late--
	}
	if w.stage != left {
		t.waits--
	}
	w.stage = left
	t.unlock()
}
