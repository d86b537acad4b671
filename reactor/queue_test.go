package reactor

import "testing"

func TestAMailboxKeepsTheOrderAndLosesNothing(t *testing.T) {
	t.Parallel()
	var m mailbox[int]
	left, popped := 0, 0
	for i := range 1000 {
		for range i % 7 {
			m.post(left)
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

// A loop that is never done with its mail finds something left whenever it takes more.
func TestAMailboxThatIsNeverEmptyStaysSmall(t *testing.T) {
	t.Parallel()
	for _, kept := range []int{1, 2, 7, 100} {
		var m mailbox[int]
		left, popped := 0, 0
		post := func() {
			m.post(left)
			left++
		}
		for range kept {
			post()
		}
		m.take()
		for range 10_000 {
			post()
			m.take()
			if v := m.pop(); v != popped {
				t.Fatalf("popped %d, want %d", v, popped)
			}
			popped++
			if m.empty() {
				t.Fatal("nothing is left")
			}
		}
		if n := len(m.items); n > 2*kept+2 {
			t.Errorf("%d are kept for the %d that are left", n, kept)
		}
	}
}
