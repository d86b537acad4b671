package numbers

import (
	"slices"
	"testing"

	"trellis/binlog/journal"
)

func TestNumbersAreKeptUntilTheyAreGone(t *testing.T) {
	var g Table[int]
	for _, n := range []journal.Numbers{
		{First: 1, Count: 4, Member: 7, Nonce: 1},
		{First: 5, Count: 2, Member: 8, Nonce: 2},
		{First: 2, Count: 2}, // gone
		{First: 7, Count: 1, Member: 8, Nonce: 2},
		{First: 7, Count: 1, Member: 8, Nonce: 2}, // twice
		{First: 5, Count: 2, Member: 8, Nonce: 2}, // as well
		{First: 8, Count: 3, Member: 7, Nonce: 3}, // has restarted
		{First: 11, Count: 9, Member: 9, Nonce: 4},
		{First: 12, Count: 2}, // gone
		{First: 14, Count: 6},
		{First: 11, Count: 9, Member: 9, Nonce: 4}, // twice, and what follows as well
		{First: 12, Count: 2},
		{First: 14, Count: 6},
		{First: 40}, // those before were given
	} {
		if !n.Valid() {
			t.Fatalf("%+v is not valid", n)
		}
		g.Take(&n)
	}
	var there []uint32
	for n := range uint32(50) {
		if n > 0 && n < 40 && !g.Gone(n) {
			there = append(there, n)
		}
	}
	if want := []uint32{5, 6, 7, 8, 9, 10, 11}; !slices.Equal(there, want) || g.Gone(0) || g.Gone(40) {
		t.Errorf("numbers %v are there, want %v", there, want)
	}
	end := uint32(0)
	for _, x := range g.list {
		if x.First < end {
			t.Errorf("number %d is listed behind %d", x.First, end)
		}
		end = x.First + x.Count
	}
	// What another engine is told of them makes the same. On the way it takes none for gone that is not,
	// whose holds it would end.
	var other Table[int]
	if err := g.Each(func(n *journal.Numbers) error {
		other.Take(n)
		for _, x := range there {
			if other.Gone(x) {
				t.Errorf("behind the numbers from %d on it takes number %d for gone", n.First, x)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for n := range uint32(50) {
		if g.Gone(n) != other.Gone(n) {
			t.Errorf("number %d is gone: %v, and for the other %v", n, g.Gone(n), other.Gone(n))
		}
	}
	if other.next != 40 {
		t.Errorf("the next is %d, want 40: no number is used twice", other.next)
	}
}
