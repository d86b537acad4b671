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
	for ; a.tick(func() []uint32 { return []uint32{1} }, 1) == nil; passed += gonePause {
	}
	if spare := passed - reactor.LeaderPatience; spare < 2*time.Second || spare > 3*time.Second {
		t.Errorf("a loop is gone %v after its gateway has given up", spare)
	}
}

// Until a loop has had a trunk in a leadership, nothing is executed for its sessions in that. It is not forgotten that it
// has had one, while its number is there.
func TestALoopHasItsFirstTrunkInALeadershipOnce(t *testing.T) {
	a := newAbsences()
	all := func() []uint32 { return []uint32{1, 2} }
	a.tick(all, 1)
	if !a.began(1) || a.began(1) {
		t.Error("the first of two trunks is not the first")
	}
	a.ended(1, false)
	a.ended(1, false)
	a.tick(all, 1)
	if a.began(1) || !a.began(2) {
		t.Error("a trunk behind others is the first, or the first of another loop is not")
	}
}

// The numbers are looked up behind what began before, so that one given a moment ago is among them.
func TestALookAtGatewaysSeesTheNumbersOfAllThatBegan(t *testing.T) {
	a := newAbsences()
	a.tick(func() []uint32 {
		if a.mu.TryLock() {
			t.Error("a trunk may begin and end between the look at the numbers and that at the trunks")
			a.mu.Unlock()
		}
		return nil
	}, 1)
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
			if gone := a.tick(func() []uint32 { return all }, 1); gone != nil {
				t.Fatalf("%v are gone", gone)
			}
		}
		if gone := a.tick(func() []uint32 { return all }, 1); !slices.Equal(gone, want) {
			t.Fatalf("%v are gone, want %v", gone, want)
		}
	}
	a.began(4)
	a.began(7) // its number was given a moment ago
	pass(goneTicks-1, []uint32{}...)
	if gone := a.tick(func() []uint32 { return all }, 0); gone != nil {
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
	if gone := a.tick(func() []uint32 { return all }, 0); !slices.Equal(gone, []uint32{4, 7}) {
		t.Errorf("%v are gone, and 7 has left", gone)
	}
}
