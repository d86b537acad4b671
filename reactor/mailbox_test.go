package reactor

import "testing"

func TestAMailboxKeepsTheOrderAndLosesNothing(t *testing.T) {
	var m mailbox[int]
	left, popped := 0, 0
	for i := range 1000 {
		for range i % 7 {
			m.leave(left)
			left++
		}
		if i%3 == 0 {
			m.take()
		}
		for range i % 5 {
			if m.empty() {
				break
			}
			if v := m.pop(); v != popped {
				t.Fatalf("popped %d, want %d", v, popped)
			}
			popped++
		}
	}
	for m.take(); !m.empty(); popped++ {
		if v := m.pop(); v != popped {
			t.Fatalf("popped %d, want %d", v, popped)
		}
	}
	if popped != left {
		t.Errorf("%d of %d came out", popped, left)
	}
}
