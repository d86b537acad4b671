package spill

import (
	"slices"
	"testing"
)

// filled are books with files of 100 bytes, from number 2 on, in each of which so many of ten bodies of 5 bytes live.
func filled(lives ...int) *books {
	b := newBooks(100)
	for _, n := range lives {
		f := b.begin(1)
		f.Size, f.Records, f.Bodies = 100, 10, 50
		for range n {
			b.add(f.Number, 5)
		}
		f.phase = whole
	}
	b.name(true)
	b.walks, b.current = 1, 1
	return b
}

func TestTheFileWithTheLeastIsMovedWhenAllAreMuchMoreThanWhatLives(t *testing.T) {
	for _, x := range []struct {
		name  string
		lives []int
		does  func(b *books)
		want  uint32
	}{
		{"all live", []int{10, 10, 10, 10}, nil, 0},
		{"as much as may be", []int{10, 10, 10, 10, 10, 2, 8}, nil, 0},
		{"more", []int{5, 5, 5, 4, 5}, nil, 5},
		{"empty ones do not count", []int{0, 0, 0, 0, 10, 9}, nil, 0},
		{"one that is written to is not moved", []int{5, 5, 5, 4, 5}, func(b *books) { b.files[5].phase = open }, 2},
		{"a broken one first", []int{10, 10, 10}, func(b *books) { b.files[4].phase = broken }, 4},
		{"a broken one that is empty", []int{10, 10, 0}, func(b *books) { b.files[4].phase = broken }, 0},
		{"what cannot be moved does not count", []int{5, 5, 5, 4, 5, 5}, func(b *books) { b.damaged(b.files[5]) }, 2},
		{"nor a broken one of these", []int{10, 10, 10}, func(b *books) {
			b.files[4].phase = broken
			b.damaged(b.files[4])
		}, 0},
	} {
		b := filled(x.lives...)
		if x.does != nil {
			x.does(b)
		}
		if got := b.toMove(); got != x.want {
			t.Errorf("%s: file %d is moved, want %d", x.name, got, x.want)
		}
	}
}

func TestAFileIsRemovedWhenNobodyCanNeedIt(t *testing.T) {
	for _, x := range []struct {
		name string
		does func(b *books)
		held []uint32
		want []uint32
	}{
		{"something lives", func(*books) {}, nil, nil},
		{"empty before the walk", func(b *books) { empty(b, 2); b.walks = 2; b.current = 2 }, nil, []uint32{2}},
		{"empty during the walk", func(b *books) { b.walks = 2; empty(b, 2); b.current = 2 }, nil, nil},
		{"empty before a walk that does not count", func(b *books) { empty(b, 2); b.walks = 2 }, nil, nil},
		{"in a list", func(b *books) { empty(b, 2, 3); b.walks = 2; b.current = 2 }, []uint32{2}, []uint32{3}},
		{"the last", func(b *books) { empty(b, 4); b.walks = 2; b.current = 2 }, nil, nil},
		{"broken or damaged", func(b *books) {
			b.files[2].phase = broken
			b.damaged(b.files[3])
			empty(b, 2, 3)
			b.walks, b.current = 2, 2
		}, nil, []uint32{2, 3}},
		{"written to", func(b *books) { empty(b, 2); b.files[2].phase = open; b.walks = 2; b.current = 2 }, nil, nil},
		{"of an owner before", func(b *books) { b.list(nil); b.walks = 2; b.current = 2 }, nil, nil},
		{"of an owner before, and the list was read", func(b *books) { b.list([]File{{Number: 3}}); b.unlisted() }, []uint32{3}, []uint32{2}},
	} {
		b := filled(1, 1, 1)
		x.does(b)
		held := map[uint32]bool{}
		for _, n := range x.held {
			held[n] = true
		}
		if got := b.removable(held); !slices.Equal(got, x.want) {
			t.Errorf("%s: files %d are removed, want %d", x.name, got, x.want)
		}
	}
}

func empty(b *books, numbers ...uint32) {
	for _, n := range numbers {
		b.forget(n, 5)
	}
}

// What the owner before has left broken is in no list, and no snapshot can refer to it.
func TestAFileOfAnOwnerBeforeIsInNoNewList(t *testing.T) {
	b := filled(1, 1)
	b.files[2].phase = broken
	b.list([]File{{Number: 3}})
	b.unlisted()
	if b.files[2].phase != spent || b.files[3].phase != whole {
		t.Errorf("the files are %d and %d", b.files[2].phase, b.files[3].phase)
	}
	if b.keep(2, 5) || b.keep(9, 5) || !b.keep(3, 5) {
		t.Error("a snapshot refers to a file that is in no list")
	}
}

// Of a directory whose sync has failed nobody knows which of its new names it has.
func TestFilesWhoseNamesAreNotDurableAreNotWhole(t *testing.T) {
	b := filled(1)
	f := b.begin(1)
	b.add(f.Number, 5)
	f.phase = whole
	b.name(false)
	if b.files[2].phase != whole || f.phase != broken {
		t.Errorf("the files are %d and %d", b.files[2].phase, f.phase)
	}
}
