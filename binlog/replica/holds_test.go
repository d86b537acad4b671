package replica

import (
	"errors"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entry"
)

// What only a later version has stands in entries of that version, and these stand behind the
// entry that allows it.
func TestHoldsStandInEntriesOfVersionTwoBehindTheRaise(t *testing.T) {
	h := newHand(t, 3)
	h.opts.Newest = 2
	l := h.lead()
	put(t, l, 1, 10)
	if l.RecordsHolds() {
		t.Fatal("holds are recorded, and nothing allows it")
	}
	l.raise(2)
	if !l.RecordsHolds() {
		t.Fatal("no holds are recorded, and an entry allows it")
	}
	by := journal.Origin{Session: 1 << 50, Offset: 9}
	l.setLow(true) // no room is needed
	for _, record := range []func() (journal.Pos, error){
		func() (journal.Pos, error) { return l.Hold(&journal.Hold{ID: 1, Session: by.Session, Reserves: 1}) },
		func() (journal.Pos, error) { return l.EndHold(&journal.Record{ID: 1, State: journal.Ready}) },
		func() (journal.Pos, error) { return l.Close(by.Session) },
		func() (journal.Pos, error) { return l.Numbers(&journal.Numbers{First: 1 << 20, Count: 1}) },
		func() (journal.Pos, error) { return l.DeleteFor(1, journal.Former{}, by) },
	} {
		if pos, err := record(); err != nil || pos != l.last {
			t.Fatalf("%d of %d: %v", pos, l.last, err)
		}
	}
	var kinds []entry.Kind
	var formats []uint8
	for range 3 {
		var r entry.Reader
		l.mu.Lock()
		u := l.units[len(kinds)]
		h := l.header(u)
		h.Seal(u.buf)
		head, err := r.Reset(u.buf)
		l.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		kinds, formats = append(kinds, head.Kind), append(formats, head.Format)
		for err == nil {
			_, err = r.Next()
		}
		if errors.Is(err, entry.ErrMalformed) {
			t.Errorf("the %v is not read: %v", head.Kind, err)
		}
	}
	if kinds[1] != entry.Raise || formats[0] != 0 || formats[1] != 0 || formats[2] != 2 {
		t.Errorf("entries %v are of versions %v", kinds, formats)
	}
	l.end()
	if _, err := l.Hold(&journal.Hold{ID: 1, Session: 1, Reserves: 1}); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("a hold of a leadership that is over: %v", err)
	}
}
