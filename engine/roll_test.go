package engine

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTheRollIsASortedListOfSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r roll
		var want []*Session
		gone := &Session{}
		enter := func(s *Session) {
			id := cmp.Or(s.id, r.lastID+1)
			at, there := slices.BinarySearchFunc(want, id, func(o *Session, id uint64) int { return cmp.Compare(o.id, id) })
			if added := r.add(s); added == there || s.id != id {
				t.Fatalf("session %d is added: %v, as %d; there was one: %v", id, added, s.id, there)
			}
			if !there {
				want = slices.Insert(want, at, s)
			}
			if id == gone.id {
				gone = &Session{}
			}
		}
		strike := func(i int) {
			r.remove(want[i])
			gone = want[i]
			want = slices.Delete(want, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "sessions") {
					enter(new(Session))
				}
			},
			"enter with ids": func(t *rapid.T) {
				id := rapid.Uint64Range(1, 1<<20).Draw(t, "first")
				step := rapid.Uint64Range(0, 7).Draw(t, "step")
				for range rapid.IntRange(1, 300).Draw(t, "sessions") {
					enter(&Session{id: 1<<40 + id})
					id += step
				}
			},
			"strike one": func(t *rapid.T) {
				if len(want) > 0 {
					strike(rapid.IntRange(0, len(want)-1).Draw(t, "which"))
				}
			},
			"strike some": func(t *rapid.T) {
				every := rapid.IntRange(2, 200).Draw(t, "every")
				for i := len(want) - 1; i >= 0; i -= every {
					strike(i)
				}
			},
			"strike a stretch": func(t *rapid.T) {
				from := rapid.IntRange(0, len(want)).Draw(t, "from")
				for n := rapid.IntRange(0, len(want)-from).Draw(t, "sessions"); n > 0; n-- {
					strike(from)
				}
			},
			"": func(t *rapid.T) {
				if all := r.appendFrom(nil, 0, len(want)+1); !slices.Equal(all, want) {
					t.Fatalf("%d sessions are on the roll, want %d", len(all), len(want))
				}
				if most := 4*len(want)/rollPageLen + 2; len(r.pages) > most {
					t.Fatalf("%d sessions take %d pages", len(want), len(r.pages))
				}
				if r.find(gone.id) != nil || r.find(r.lastID+1) != nil || r.find(0) != nil {
					t.Fatal("one is found that is not there")
				}
				if len(want) == 0 {
					return
				}
				i := rapid.IntRange(0, len(want)-1).Draw(t, "found")
				if r.find(want[i].id) != want[i] {
					t.Fatalf("session %d is not found", want[i].id)
				}
				n := rapid.IntRange(0, 300).Draw(t, "page")
				if page := r.appendFrom(nil, want[i].id+1, n); !slices.Equal(page, want[i+1:min(i+1+n, len(want))]) {
					t.Fatalf("%d sessions behind the one at %d, want up to %d", len(page), i, n)
				}
			},
		})
	})
}
