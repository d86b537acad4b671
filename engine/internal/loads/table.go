package loads

import (
	"slices"
	"sync"
	"sync/atomic"

	"trellis/binlog/journal"
)

// An Owner waits for bodies.
type Owner interface {
	// Loaded is called once when all loads of a wait have ended, on any goroutine, with no lock held.
	Loaded(w *Wait)
}

// A Sender is told, with no lock held, that something is asked for.
type Sender interface{ Wake() }

// A Table has all loads of an engine. Open makes it. Any goroutine may call its methods.
type Table struct {
	most   int64  // bytes of bodies that waits may be for, but for one that is alone
	sender Sender // for what nobody asks for at that moment

	mu    sync.Mutex
	byID  map[uint64]*load
	asked []journal.Fetch // of the loads that are under way: those that nobody fetches yet
	turns uint64          // waits that there ever were
	waits int             // that nobody has left
	late  int             // of them, those of which Late was told
	bytes int64           // of bodies that admitted waits are for
	sent  int64           // of bodies that clients are being sent
	queue []*Wait         // waits that are not admitted, first come, first served

	// What was asked for and has not come back, whether anybody still waits for it or not.
	ahead    int   // that was asked for because somebody may soon need it
	fetches  int   // for somebody
	fetching int64 // bytes of the latter

	size atomic.Int64 // of byID; written with mu held
}

// A load is one body on its way. It is under way until it has ended; while somebody has not left, it is in the table.
type load struct {
	fetch journal.Fetch
	ended bool
	err   error   // why it has ended without a body; nil before the end
	waits []*Wait // of those who have not left
}

// mostFetches is how many bodies are fetched for waits at a time, but for those of one wait.
const mostFetches = 1 << 16

// Open makes t, which is zero, a table without loads. Waits may be for so many bytes of bodies together with what
// clients are being sent, or for those of one that is alone, while clients are being sent no more than three times
// that.
func (t *Table) Open(most int64, sender Sender) { t.most, t.sender = most, sender }

// Wait is a new wait, for no body yet.
func (t *Table) Wait(owner Owner) *Wait {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns++
	t.waits++
	return &Wait{table: t, owner: owner, turn: t.turns}
}

// Ahead asks for a body for which nobody waits. It returns false if as many are on their way already as may be.
func (t *Table) Ahead(f journal.Fetch, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byID[f.ID]; l != nil && !l.ended {
		return true
	}
	if t.ahead >= most {
		return false
	}
	f.Lane = journal.Ahead
	t.begin(f)
	return true
}

// ask asks for a body. The lock is held.
func (t *Table) ask(f journal.Fetch) {
	t.count(f, 1)
	t.asked = append(t.asked, f)
}

// count counts what was asked for, or -1 for what has come back. The lock is held.
func (t *Table) count(f journal.Fetch, n int) {
	if f.Lane == journal.Ahead {
		t.ahead += n
		return
	}
	t.fetches += n
	t.fetching += int64(n) * int64(f.Size)
}

// begin asks for a body that is not on its way. The lock is held.
func (t *Table) begin(f journal.Fetch) *load {
	l := t.add(&load{fetch: f})
	t.ask(f)
	return l
}

// add puts a load into the table. The lock is held.
func (t *Table) add(l *load) *load {
	if t.byID == nil {
		t.byID = make(map[uint64]*load)
	}
	t.byID[l.fetch.ID] = l
	t.size.Store(int64(len(t.byID)))
	return l
}

// Asked appends what nobody fetches yet to list, and takes it for fetched.
func (t *Table) Asked(list []journal.Fetch) []journal.Fetch {
	t.mu.Lock()
	defer t.mu.Unlock()
	list = append(list, t.asked...)
	t.asked = t.asked[:0]
	return list
}

// Again takes what has come back without the body, which lies elsewhere, and asks for it there if it is on its way.
func (t *Table) Again(f journal.Fetch, place journal.Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(f, -1)
	if l := t.byID[f.ID]; l != nil && !l.ended {
		l.fetch.Place = place
		t.ask(l.fetch)
	}
	t.admit()
}

// End takes what has come back, and ends the load of that body, if it is on its way: it is in memory, or nobody needs
// it any more; or the error says why it cannot be. There may be more to be fetched then.
func (t *Table) End(f journal.Fetch, err error) {
	var done []*Wait
	t.mu.Lock()
	t.count(f, -1)
	if l := t.byID[f.ID]; l != nil && !l.ended {
		done = t.endLoad(l, err)
	}
	t.admit()
	t.mu.Unlock()
	for _, w := range done {
		w.owner.Loaded(w)
	}
}

// endLoad ends a load that is under way, and returns whose last one that was. The lock is held.
func (t *Table) endLoad(l *load, err error) (done []*Wait) {
	l.ended, l.err = true, err
	for _, w := range l.waits {
		if w.left--; w.left == 0 {
			done = append(done, w)
		}
	}
	t.forget(l)
	return done
}

// forget takes a load out of the table when it has ended and nobody needs it. The lock is held.
func (t *Table) forget(l *load) {
	if l.ended && len(l.waits) == 0 && t.byID[l.fetch.ID] == l {
		delete(t.byID, l.fetch.ID)
		t.size.Store(int64(len(t.byID)))
	}
}

// Awaited reports whether a body was loaded for somebody who has not left.
func (t *Table) Awaited(id uint64) bool {
	if t.size.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id] != nil
}

// Failed is why a body could not be loaded for somebody who has not left, nil if it could be, or none has.
func (t *Table) Failed(id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byID[id]; l != nil {
		return l.err
	}
	return nil
}

// Waits is how many waits there are that nobody has left, and for how many of them Late was called.
func (t *Table) Waits() (all, late int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits, t.late
}

// Waiting is how many bytes of bodies waits are for, how many waits are not admitted, and how much is to come back of
// what was ever asked for.
func (t *Table) Waiting() (bytes int64, queued, fetches int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, len(t.queue), t.fetches + t.ahead
}

// Sent counts n more bytes of bodies that clients are being sent and that cannot leave memory, or fewer.
func (t *Table) Sent(n int64) {
	t.mu.Lock()
	t.sent += n
	if n > 0 {
		t.mu.Unlock() // a shard is locked
		return
	}
	t.unlock()
}

// unlock admits waits, unlocks the table, and has the sender see to what is asked for.
func (t *Table) unlock() {
	t.admit()
	asks := len(t.asked) > 0
	t.mu.Unlock()
	if asks {
		t.sender.Wake()
	}
}

// admits reports whether there is room for a wait. Those who leave at once do not make more and more be fetched.
func (t *Table) admits(w *Wait) bool {
	if t.fetches > 0 && (t.fetches+len(w.list) > mostFetches || t.fetching+w.bytes > 2*t.most) {
		return false
	}
	if t.bytes == 0 && t.sent <= 3*t.most {
		return true // it is alone: slow clients do not stop all others at once
	}
	return t.bytes+t.sent+w.bytes <= t.most
}

// admit begins the loads of waits in the order in which they came, as far as there is room. The lock is held.
func (t *Table) admit() {
	for len(t.queue) > 0 {
		w := t.queue[0]
		if !t.admits(w) {
			return
		}
		t.queue = slices.Delete(t.queue, 0, 1)
		t.bytes += w.bytes
		w.begin(w.list)
	}
}

// Len is how many loads are under way, or are not left.
func (t *Table) Len() int { return int(t.size.Load()) }
