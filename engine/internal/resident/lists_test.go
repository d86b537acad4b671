package resident

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
)

// Whatever is added, dropped, passed over and swept, in whatever order, entries come as two plain lists would give them.
func TestEntriesComeInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Lists
		l.Open()
		defer l.Discard()
		var fresh, kept []Entry
		var pos journal.Pos
		void := map[uint64]bool{}
		first := func() *[]Entry {
			durable := pos - journal.Pos(rapid.IntRange(0, 3).Draw(t, "not durable"))
			var want *[]Entry
			if len(fresh) > 0 && fresh[0].Pos <= durable {
				want = &fresh
			} else if len(kept) > 0 && kept[0].Pos <= durable {
				want = &kept
			}
			e, ok := l.First(durable)
			if ok != (want != nil) || ok && e != (*want)[0] {
				t.Fatalf("the first is %v, %v of %v and %v", e, ok, fresh, kept)
			}
			if !ok {
				t.Skip("none is durable")
			}
			return want
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				above := rapid.Bool().Draw(t, "above")
				for range rapid.IntRange(1, 400).Draw(t, "entries") {
					pos++
					e := Entry{ID: uint64(pos), Pos: pos, Place: journal.Place{Segment: 1, Offset: uint32(pos)}}
					if err := l.Room(); err != nil {
						t.Fatal(err)
					}
					if l.Add(e, above); above {
						fresh = append(fresh, e)
					} else {
						kept = append(kept, e)
					}
				}
			},
			"drop": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "entries") {
					from := first()
					l.Drop()
					*from = (*from)[1:]
				}
			},
			"pass": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "entries") {
					from := first()
					e := (*from)[0]
					*from = (*from)[1:]
					kept = append(kept, e)
					l.Pass()
				}
			},
			"some become void": func(t *rapid.T) {
				one := rapid.Uint64Range(1, 5).Draw(t, "of")
				for id := range uint64(pos) {
					if id%one == 0 || rapid.IntRange(0, 300).Draw(t, "all") > 0 {
						void[id] = true
					}
				}
			},
			"sweep": func(t *rapid.T) {
				n := rapid.IntRange(1, 1000).Draw(t, "entries")
				l.Sweep(n, func(e Entry) bool { return void[e.ID] })
				for _, x := range []*[]Entry{&fresh, &kept} {
					seen := (*x)[:min(n, len(*x))]
					*x = append((*x)[len(seen):], slices.DeleteFunc(slices.Clone(seen), func(e Entry) bool { return void[e.ID] })...)
				}
			},
			"": func(t *rapid.T) {
				if l.Len() != len(fresh)+len(kept) {
					t.Fatalf("there are %d entries, want %d", l.Len(), len(fresh)+len(kept))
				}
				if chunks := l.chunks.Live(); chunks > 2*len(fresh)+2*len(kept)+3 {
					t.Fatalf("%d chunks for %d entries", chunks, l.Len())
				}
			},
		})
	})
}

// Two sweeps over all leave no more chunks than there are entries for.
func TestASweepLeavesNoRoom(t *testing.T) {
	var l Lists
	l.Open()
	defer l.Discard()
	const n = 100 * chunkEntries
	for id := range uint64(n) {
		if err := l.Room(); err != nil {
			t.Fatal(err)
		}
		l.Add(Entry{ID: id}, id%2 == 0)
	}
	l.Sweep(n, func(e Entry) bool { return e.ID/2%10 != 0 })
	if n := l.Len(); n != 10*chunkEntries {
		t.Errorf("%d entries are left", n)
	}
	if n := l.chunks.Live(); n > 10+3 {
		t.Errorf("%d chunks are left", n)
	}
}
