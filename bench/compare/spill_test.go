package compare

import (
	"testing"
	"time"
)

func TestABacklogIsPutAndTakenOut(t *testing.T) {
	m := overflow(500)
	for {
		values, notes := measureQuickly(t, m, fakeCommand(t, "a", ""))
		if t.Failed() || notes[NoteBroken] {
			t.Fatalf("%v, %v", values, notes)
		}
		// On a busy machine nothing may happen beside it in so short a time.
		if puts, cycles, jobs := values[0], values[2], values[4]; puts > 0 && cycles > 0 && jobs > 0 {
			return
		}
	}
}

func TestABacklogThatComesBackAsAnotherIsABrokenPromise(t *testing.T) {
	c := &Comparison{Dir: t.TempDir(), Longest: 20 * time.Millisecond}
	s := &session{Comparison: c, server: fakeCommand(t, "a", ""), table: new(Table), notes: make(map[Note]bool)}
	defer s.close()
	cfg := small("put", 500)
	cfg.Keep = true
	if err := s.start(t.Context(), "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t.Context(), cfg); err != nil || s.notes[NoteBroken] {
		t.Fatal(err, s.notes)
	}
	cfg.Depth, cfg.Seed = 4, 2
	if _, run, err := s.drain(t.Context(), cfg, small("cycle", 3)); run != nil || err != nil || !s.notes[NoteBroken] {
		t.Errorf("%v, %v, %v", run, err, s.notes)
	}
}
