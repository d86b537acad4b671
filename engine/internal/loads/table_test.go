package loads

import (
	"errors"
	"slices"
	"testing"

	"trellis/binlog/journal"
)

// An owner counts how often it is told that its bodies are there.
type owner struct{ told []*Wait }

func (o *owner) Loaded(w *Wait) { o.told = append(o.told, w) }

func fetch(id uint64) journal.Fetch {
	return journal.Fetch{ID: id, Place: journal.Place{Segment: 1, Offset: uint32(id)}, Size: 1}
}

// aheadOf is fetch for what nobody waits for.
func aheadOf(id uint64) journal.Fetch {
	f := fetch(id)
	f.Lane = journal.Ahead
	return f
}

// asked are the ids that are to be fetched now.
func (t *Table) ids() (list []uint64) {
	for _, f := range t.Asked(nil) {
		list = append(list, f.ID)
	}
	return list
}

func TestABodyThatSeveralWantIsFetchedOnceAndAwaitedByEachOfThem(t *testing.T) {
	var table Table
	table.Open(100, new(woken))
	var a, b owner
	first, second := table.Wait(&a), table.Wait(&b)
	first.Add(fetch(1), fetch(2))
	second.Add(fetch(2))
	if got := table.ids(); !slices.Equal(got, []uint64{1, 2}) {
		t.Fatalf("%v are fetched", got)
	}
	table.End(fetch(2), nil)
	if len(a.told) != 0 || !slices.Equal(b.told, []*Wait{second}) {
		t.Errorf("%d and %d waits have ended", len(a.told), len(b.told))
	}
	second.Leave()
	if !table.Awaited(2) {
		t.Error("a body that somebody waits for is not awaited")
	}
	table.End(fetch(1), nil)
	table.End(fetch(1), nil)
	if !slices.Equal(a.told, []*Wait{first}) {
		t.Errorf("it is told %d times that its bodies are there", len(a.told))
	}
	first.Leave()
	first.Leave()
	if table.Awaited(1) || table.Awaited(2) || table.Len() != 0 {
		t.Errorf("%d loads are left", table.Len())
	}
}

// Who leaves early is not told, and leaves nothing behind when the body has come.
func TestWhoHasLeftIsNotTold(t *testing.T) {
	var table Table
	table.Open(100, new(woken))
	var a owner
	w := table.Wait(&a)
	w.Add(fetch(1))
	w.Leave()
	again := table.Wait(&a)
	again.Add(fetch(1))
	if got := table.ids(); len(got) != 1 {
		t.Errorf("%v are fetched", got)
	}
	again.Leave()
	if table.End(fetch(1), nil); len(a.told) != 0 || table.Len() != 0 {
		t.Errorf("it is told %d times, and %d loads are left", len(a.told), table.Len())
	}
}

// A failure is known to those who have waited for it; who comes then tries anew.
func TestAFailureIsForThoseWhoHaveWaited(t *testing.T) {
	var table Table
	table.Open(100, new(woken))
	var a, b owner
	w := table.Wait(&a)
	w.Add(fetch(1))
	table.End(fetch(1), journal.ErrUnreadable)
	if err := table.Failed(1); !errors.Is(err, journal.ErrUnreadable) {
		t.Errorf("it has failed with %v", err)
	}
	next := table.Wait(&b)
	next.Add(fetch(1))
	if got := table.ids(); !slices.Equal(got, []uint64{1, 1}) {
		t.Errorf("%v are fetched", got)
	}
	if w.Leave(); !table.Awaited(1) || table.Failed(1) != nil {
		t.Error("the new load is forgotten with the old one")
	}
	table.End(fetch(1), nil)
	if next.Leave(); table.Len() != 0 {
		t.Errorf("%d loads are left", table.Len())
	}
}

// What is loaded ahead is bounded, needs nobody, and is asked for again when somebody waits for it.
func TestLoadsAheadAreBounded(t *testing.T) {
	var table Table
	table.Open(100, new(woken))
	var a owner
	for id, want := range []bool{true, true, false} {
		if table.Ahead(fetch(uint64(id)+1), 2) != want {
			t.Errorf("%d are on their way; another one: %v", id, !want)
		}
	}
	if !table.Ahead(fetch(1), 2) {
		t.Error("what is on its way is refused")
	}
	table.ids()
	w := table.Wait(&a)
	w.Add(fetch(1))
	if list := table.Asked(nil); len(list) != 1 || list[0].Lane != journal.Urgent {
		t.Errorf("asked for is %v", list)
	}
	if table.Ahead(fetch(3), 2) {
		t.Error("what is still to come back counts no more as ahead")
	}
	table.End(aheadOf(1), nil)
	if !table.Ahead(fetch(3), 2) {
		t.Error("what has come back counts as ahead")
	}
	table.End(fetch(1), nil)
	for id := range uint64(2) {
		table.End(aheadOf(id+2), nil)
	}
	if w.Leave(); table.Len() != 0 || table.ahead != 0 {
		t.Errorf("%d loads are left, %d ahead", table.Len(), table.ahead)
	}
}

// What lies elsewhere is asked for there, for those who wait for it.
func TestALoadIsAskedForAgain(t *testing.T) {
	var table Table
	table.Open(100, new(woken))
	var a owner
	w := table.Wait(&a)
	w.Add(fetch(1))
	table.ids()
	table.Again(fetch(1), journal.Place{Segment: 2, Offset: 3})
	table.Again(fetch(7), journal.Place{Segment: 2, Offset: 3})
	if list := table.Asked(nil); len(list) != 1 || list[0].Place != (journal.Place{Segment: 2, Offset: 3}) {
		t.Errorf("asked for is %v", list)
	}
	if table.End(fetch(1), nil); len(a.told) != 1 {
		t.Error("nobody is told")
	}
}

type woken struct{ n int }

func (w *woken) Wake() { w.n++ }

// waitsFor are waits of one owner, each for bodies of some jobs.
func (t *Table) waitsFor(o Owner, jobs [][]uint64) (waits []*Wait) {
	for _, ids := range jobs {
		w := t.Wait(o)
		var list []journal.Fetch
		for _, id := range ids {
			list = append(list, fetch(id))
		}
		w.Add(list...)
		waits = append(waits, w)
	}
	return waits
}

// What is waited for is bounded; who comes first is admitted first, with all that it is for, and who is alone always.
func TestWaitsAreAdmittedInTheirOrderAndWhole(t *testing.T) {
	var table Table
	var a owner
	var s woken
	table.Open(3, &s)
	waits := table.waitsFor(&a, [][]uint64{{1, 2}, {3, 4}, {5}, {6, 7, 8, 9}})
	if got := table.ids(); !slices.Equal(got, []uint64{1, 2}) {
		t.Fatalf("%v are asked for; 5 has to wait behind 3 and 4", got)
	}
	table.End(fetch(1), nil)
	table.End(fetch(2), nil)
	if got := table.ids(); len(a.told) != 1 || len(got) != 0 {
		t.Errorf("before the first has left, %v are asked for", got)
	}
	waits[0].Leave()
	if got := table.ids(); !slices.Equal(got, []uint64{3, 4, 5}) || s.n != 1 {
		t.Errorf("%v are asked for, told %d times", got, s.n)
	}
	for id := range uint64(3) {
		table.End(fetch(id+3), nil)
	}
	waits[2].Leave()
	waits[1].Leave()
	if got := table.ids(); !slices.Equal(got, []uint64{6, 7, 8, 9}) {
		t.Errorf("%v are asked for by one that is alone", got)
	}
	late := table.Wait(&a)
	late.Add(fetch(1))
	late.Leave() // it is not admitted, and leaves nothing
	waits[3].Leave()
	for id := range uint64(4) {
		table.End(fetch(id+6), nil)
	}
	if bytes, queued, fetched := table.Waiting(); bytes != 0 || queued+fetched+table.Len() != 0 {
		t.Errorf("%d bytes, %d waits, %d fetches, %d loads are left", bytes, queued, fetched, table.Len())
	}
}

// What clients are being sent takes room from those who wait. One that is alone is admitted all the same, until that is
// three times the room.
func TestWhatClientsAreBeingSentTakesRoom(t *testing.T) {
	var table Table
	var a owner
	var s woken
	table.Open(10, &s)
	add := func(id uint64) *Wait {
		w := table.Wait(&a)
		w.Add(fetch(id))
		return w
	}
	table.Sent(12)
	first, second := add(1), add(2)
	if got := table.ids(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("%v are asked for", got)
	}
	if table.Sent(-4); s.n != 1 || !slices.Equal(table.ids(), []uint64{2}) {
		t.Errorf("when there is room it is told %d times", s.n)
	}
	table.Sent(23)
	first.Leave()
	second.Leave()
	third := add(3)
	if got := table.ids(); len(got) != 0 {
		t.Errorf("%v are asked for while clients are sent too much", got)
	}
	if table.Sent(-1); s.n != 2 || !slices.Equal(table.ids(), []uint64{3}) {
		t.Errorf("then it is told %d times", s.n)
	}
	third.Leave()
}

// Who has waited for too long gets what has failed, and those who wait for the same. What others have asked for while it
// was not admitted it waits for with them, and makes room for those behind it.
func TestWhoGivesUpWaitsNoMore(t *testing.T) {
	var table Table
	var a owner
	var s woken
	table.Open(3, &s)
	waits := table.waitsFor(&a, [][]uint64{{1, 2}, {2, 3, 4}, {5}})
	table.ids()
	waits[1].GiveUp()
	if len(a.told) != 0 || table.Failed(3) == nil || table.Failed(2) != nil {
		t.Errorf("%d are told; failed have 3: %v, and 2: %v", len(a.told), table.Failed(3), table.Failed(2))
	}
	if got := table.ids(); s.n != 1 || !slices.Equal(got, []uint64{5}) {
		t.Errorf("%v are asked for behind it, told %d times", got, s.n)
	}
	waits[0].GiveUp()
	if len(a.told) != 2 || !errors.Is(table.Failed(2), journal.ErrHangs) {
		t.Errorf("%d are told; 2 has failed: %v", len(a.told), table.Failed(2))
	}
	waits[0].GiveUp()
	waits[2].Late()
	if waits[2].Late() || len(a.told) != 2 {
		t.Error("it is late, or given up, twice")
	}
	if all, late := table.Waits(); all != 3 || late != 1 {
		t.Errorf("%d wait, %d of them for long", all, late)
	}
	for _, w := range waits {
		w.Leave()
	}
	for id := range uint64(6) {
		table.End(fetch(id), nil)
	}
	all, late := table.Waits()
	if bytes, queued, _ := table.Waiting(); all+late+queued+table.Len() != 0 || bytes != 0 {
		t.Errorf("%d waits, %d late, %d queued, %d loads, %d bytes are left", all, late, queued, table.Len(), bytes)
	}
}

// Who asks and leaves at once, again and again, makes no more be fetched than is bounded, in bytes and in number: others
// wait until something has come back, which nobody needs any more.
func TestWhoLeavesAtOnceMakesNoMoreBeFetched(t *testing.T) {
	for name, x := range map[string]struct{ most, asks, want int64 }{
		"bytes":  {10, 1000, 20},
		"number": {1 << 40, mostFetches + 1000, mostFetches},
	} {
		var table Table
		var a owner
		table.Open(x.most, new(woken))
		for id := range x.asks {
			w := table.Wait(&a)
			w.Add(fetch(uint64(id)))
			w.Leave()
		}
		asked := table.ids()
		if int64(len(asked)) != x.want {
			t.Fatalf("%s: %d are fetched, want %d", name, len(asked), x.want)
		}
		last := table.Wait(&a)
		last.Add(fetch(1 << 40))
		if got := table.ids(); len(got) != 0 {
			t.Errorf("%s: %v are fetched beside them", name, got)
		}
		table.End(fetch(asked[0]), nil)
		if got := table.ids(); !slices.Equal(got, []uint64{1 << 40}) {
			t.Errorf("%s: %v are fetched when one has come back", name, got)
		}
		for _, id := range asked[1:] {
			table.End(fetch(id), nil)
		}
		table.End(fetch(1<<40), nil)
		last.Leave()
		if bytes, queued, fetched := table.Waiting(); bytes != 0 || queued+fetched+table.Len()+table.ahead != 0 {
			t.Errorf("%s: %d bytes, %d waits, %d fetches, %d loads are left", name, bytes, queued, fetched, table.Len())
		}
	}
}
