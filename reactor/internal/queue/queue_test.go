package queue

import "testing"

func TestAMailboxKeepsTheOrderAndLosesNothing(t *testing.T) {
	t.Parallel()
	var m Mailbox[int]
	left, popped := 0, 0
	for i := range 1000 {
		for range i % 7 {
			m.Post(left)
			left++
		}
		if i%3 == 0 {
			m.Take()
		}
		for range i % 5 {
			if m.Empty() {
				break
			}
			if v := m.Pop(); v != popped {
				t.Fatalf("popped %d, want %d", v, popped)
			}
			popped++
		}
	}
	for m.Take(); !m.Empty(); popped++ {
		if v := m.Pop(); v != popped {
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
		var m Mailbox[int]
		left, popped := 0, 0
		post := func() {
			m.Post(left)
			left++
		}
		for range kept {
			post()
		}
		m.Take()
		for range 10_000 {
			post()
			m.Take()
			if v := m.Pop(); v != popped {
				t.Fatalf("popped %d, want %d", v, popped)
			}
			popped++
			if m.Empty() {
				t.Fatal("nothing is left")
			}
		}
		if n := len(m.items); n > 2*kept+2 {
			t.Errorf("%d are kept for the %d that are left", n, kept)
		}
	}
}
