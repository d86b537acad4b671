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
}

// Error implements error.
func (w *Wait) Error() string { return "bodies are not in memory" }

// Add makes the wait one for bodies, each of which is fetched unless it is on its way. It is called once.
func (w *Wait) Add(list ...journal.Fetch) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	w.loads = w.first[:0]
	for _, f := range list {
		f.Lane, f.Turn = journal.Urgent, w.turn
		l := t.byID[f.ID]
		switch {
		case l == nil || l.ended:
			l = t.begin(f)
		case l.fetch.Lane == journal.Ahead: // now somebody waits for it
			t.ahead--
			l.fetch.Lane, l.fetch.Turn = f.Lane, f.Turn
			t.asked = append(t.asked, l.fetch)
		}
		l.waits = append(l.waits, w)
		w.loads = append(w.loads, l)
	}
	w.left = len(list)
}

// Len is how many bodies it is for.
func (w *Wait) Len() int { return len(w.loads) }

// Leave ends the wait, whether all of its loads have ended or not: nobody waits for them, and the bodies need not stay
// in memory, unless others wait. Afterwards nothing has a part of it. It may be called twice.
func (w *Wait) Leave() {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range w.loads {
		l.waits = slices.DeleteFunc(l.waits, func(x *Wait) bool { return x == w })
		t.forget(l)
	}
	w.loads = nil
}
