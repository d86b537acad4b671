package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/pagedheap"
)

// A line gives its keys in order, however many come, go and change.
func TestALineHasItsFirstKeyInFront(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var line pagedheap.Heap[standing, *standing]
	var keys []*fairKey
	order := func(a, b *fairKey) int {
		if line.At(a.index).Before(line.At(b.index)) {
			return -1
		}
		return 1
	}
	some := func() standing {
		return standing{rank: rnd.Uint64N(3), lap: rnd.Uint64N(3), id: rnd.Uint64N(1000)}
	}
	for step := range 20_000 {
		switch n := len(keys); {
		case n == 0 || n < 4*pagedheap.PageLen && step%4000 < 2000 && rnd.IntN(3) > 0:
			k := new(fairKey)
			s := some()
			s.key = k
			line.Push(s)
			keys = append(keys, k)
		case rnd.IntN(3) > 0:
			i := rnd.IntN(n)
			line.Remove(keys[i].index)
			keys = slices.Delete(keys, i, i+1)
		default:
			k := keys[rnd.IntN(n)]
			s := some()
			s.key = k
			line.Put(k.index, s)
		}
		if line.Len() != len(keys) || line.Pages()*pagedheap.PageLen > line.Len()+2*pagedheap.PageLen {
			t.Fatalf("%d entries on %d pages for %d keys", line.Len(), line.Pages(), len(keys))
		}
		if len(keys) == 0 {
			continue
		}
		first := line.At(0)
		for _, k := range keys {
			if s := line.At(k.index); s.key != k || s.Before(first) {
				t.Fatalf("step %d: entry %d has the key %p, want %p, or is before the first", step, k.index, s.key, k)
			}
		}
	}
	slices.SortFunc(keys, order)
	for _, k := range keys {
		if s := line.At(0); s.key != k && (s.Before(line.At(k.index)) || line.At(k.index).Before(s)) {
			t.Fatalf("the first is %+v, want %+v", s, line.At(k.index))
		}
		line.Remove(0)
	}
}

// Jobs whose records are moved together are still found where their keys have them.
func TestTidyingTellsWhereJobsWithKeysAre(t *testing.T) {
	const n = 20_000
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		tags := fmt.Sprintf(" fair:f%d", i%7)
		switch i / 100 % 4 { // those that stay have one of each
		case 0:
			tags += fmt.Sprintf(" con:c%d:3", i%5)
		case 1:
			tags = "" // which shares with the others
		}
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put %d 0 9999 0%s\r\n\r\n", i*7919%13, tags)
	}
	for id := 1; id <= n; id++ {
		if id%100 != 0 {
			c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
		}
	}
	sh := s.engine.defaultTube.shard
	place := sh.shared.ids.Get(n)
	s.Wait(time.Minute)
	if sh.shared.ids.Get(n) == place {
		t.Fatal("no record was moved")
	}
	s.noErrors(t)
	seen := map[uint64]bool{}
	for range n / 100 {
		r := sh.byName[DefaultTube].firstReady()
		id := sh.job(r).ID
		c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
		seen[id] = true
	}
	if len(seen) != n/100 {
		t.Fatalf("%d jobs were taken, want %d", len(seen), n/100)
	}
	s.noErrors(t)
}

// A standby counts what is reserved, but no laps: they begin anew when it serves.
func TestAStandbyCountsNoLaps(t *testing.T) {
	e := New(Config{Info: testInfo, Start: time.Unix(0, 0)})
	defer e.Discard()
	f := e.Follow(clock.Always)
	f.Strict()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, key := range []string{1: "a", 2: "a", 3: "b", 4: "b"} {
		if id > 0 {
			_, err := f.Full(&journal.Record{
				ID: uint64(id), State: journal.Ready, Tube: DefaultTube, TTR: 9, Keys: journal.Keys{Terms: &journal.Terms{Fair: key}},
			}, journal.Place{Segment: 1})
			must(err)
		}
	}
	first := func() uint64 { return e.defaultTube.shard.job(e.defaultTube.shard.byName[DefaultTube].next()).ID }
	a := sessionID(1, 1)
	must(f.Hold(&journal.Hold{ID: 1, Session: a, End: 9e9, Reserves: 1}))
	must(f.Hold(&journal.Hold{ID: 1, Session: a, End: 10e9, Touch: true}))
	if got := first(); got != 3 {
		t.Errorf("the next is job %d, want one of the key that has none reserved", got)
	}
	must(f.Update(&journal.Record{ID: 1, State: journal.Ready, Reserves: 1}))
	f.Serve(5, 0)
	if got := first(); got != 1 {
		t.Errorf("the next is job %d, want the first of all", got)
	}
	must(serves(e, 5))
}
