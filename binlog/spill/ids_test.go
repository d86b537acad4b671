package spill

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestASetOfIDsIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[uint64]bool{}
		var s IDs
		for range rapid.IntRange(0, 8).Draw(t, "runs") {
			id := rapid.OneOf(rapid.Uint64Range(0, 5000), rapid.Uint64()).Draw(t, "from")
			every := rapid.Uint64Range(1, 3).Draw(t, "every")
			for range rapid.IntRange(1, 1500).Draw(t, "ids") {
				if s.Add(id) == want[id] {
					t.Fatalf("whether %d is new is not known", id)
				}
				want[id] = true
				if id += every; id < every {
					break
				}
			}
		}
		got, err := DecodeIDs(s.Encode())
		if err != nil || !maps.Equal(got.leaves, s.leaves) {
			t.Fatalf("%d leaves of %d, %v", len(got.leaves), len(s.leaves), err)
		}
		for id := range want {
			if !got.Has(id) || got.Has(id+1) != want[id+1] {
				t.Fatalf("%d: %v, and the next one %v", id, got.Has(id), got.Has(id+1))
			}
		}
	})
}

// Little more than a bit for each id.
func TestASetOfIDsIsShort(t *testing.T) {
	var s IDs
	const n = 1 << 18
	for id := range uint64(n) {
		if id%100 > 0 {
			s.Add(id)
		}
	}
	if size := len(s.Encode()); size > n/8+n/leafIDs+1 {
		t.Errorf("%d bytes for %d ids", size, n)
	}
}

// What others can make a node hold is bounded, and no longer is what a node tells.
func TestASetOfIDsHasABound(t *testing.T) {
	leaf := append([]byte{1}, make([]byte, leafSize)...) // behind a gap of one
	most := append([]byte{idsVersion}, bytes.Repeat(leaf, maxLeaves)...)
	if s, err := DecodeIDs(most); err != nil || len(s.leaves) != maxLeaves {
		t.Errorf("%d leaves, %v", len(s.leaves), err)
	}
	if _, err := DecodeIDs(append(most, leaf...)); err == nil {
		t.Error("a longer one is read")
	}
	if n := (leafSize + binary.MaxVarintLen64) * maxLeaves; n > 40<<20 { // wire.MaxHas
		t.Errorf("they may take %d bytes", n)
	}
}

func FuzzDecodeIDs(f *testing.F) {
	var s IDs
	for _, id := range []uint64{1, 2, 700, 1 << 40, math.MaxUint64} {
		s.Add(id)
	}
	f.Add(s.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeIDs(b)
		if err != nil {
			return
		}
		again, err := DecodeIDs(s.Encode())
		if err != nil || !maps.Equal(again.leaves, s.leaves) {
			t.Fatalf("%x is read as %v, and that as %v, %v", b, slices.Collect(maps.Keys(s.leaves)), again, err)
		}
	})
}
