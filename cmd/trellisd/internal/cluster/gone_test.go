package cluster

import (
	"slices"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor"
)

// What clients of a gateway hold is free two seconds after it has reset them, and not before.
func TestALoopIsGoneWhenItsGatewayHasGivenUp(t *testing.T) {
	a := newAbsences()
	a.began(1)
	a.ended(1, false)
	passed := time.Duration(0) // before the first tick
	for ; a.tick([]uint32{1}, 1) == nil; passed += gonePause {
	}
	if spare := passed - reactor.LeaderPatience; spare < 2*time.Second || spare > 3*time.Second {
		t.Errorf("a loop is gone %v after its gateway has given up", spare)
	}
}

// The leader's own loops have no trunks, and are not gone.
func TestALeadersOwnLoopsAreNeverGone(t *testing.T) {
	e := engine.New(engine.Config{MaxJobSize: 1})
	defer e.Discard()
	f := e.Follow(engine.Always)
	for _, n := range []journal.Numbers{{First: 1, Count: 2, Member: 1, Nonce: 7}, {First: 3, Count: 2, Member: 2, Nonce: 8}} {
		if err := f.Numbers(&n); err != nil {
			t.Fatal(err)
		}
	}
	if got := numbersOfOthers(e, 7); !slices.Equal(got, []uint32{3, 4}) {
		t.Errorf("for want of a trunk %v may be gone", got)
	}
}

func TestALoopIsGoneWhenItHasHadNoTrunkForLong(t *testing.T) {
	a := newAbsences()
	all := []uint32{3, 4, 5}
	pass := func(ticks int, want ...uint32) {
		t.Helper()
		for range ticks - 1 {
			if gone := a.tick(all, 1); gone != nil {
				t.Fatalf("%v are gone", gone)
			}
		}
		if gone := a.tick(all, 1); !slices.Equal(gone, want) {
			t.Fatalf("%v are gone, want %v", gone, want)
		}
	}
	a.began(4)
	a.began(7) // its number was given a moment ago
	pass(goneTicks-1, []uint32{}...)
	if gone := a.tick(all, 0); gone != nil {
		t.Errorf("%v are gone without a tick", gone)
	}
	pass(1, 3, 5)
	pass(1, 3, 5) // what is under way had not ended
	all = []uint32{4, 7}
	a.began(4) // a trunk takes the place of another
	a.ended(4, false)
	pass(3*goneTicks, []uint32{}...)
	a.ended(4, false)
	pass(goneTicks-1, []uint32{}...)
	a.began(4)
	a.ended(4, false)
	pass(goneTicks, 4)
	if a.ended(7, true); len(a.left) != 1 {
		t.Error("who has left is left to the next tick")
	}
	if gone := a.tick(all, 0); !slices.Equal(gone, []uint32{4, 7}) {
		t.Errorf("%v are gone, and 7 has left", gone)
	}
}
