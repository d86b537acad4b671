package reactor

import "testing"

func TestAConnectionsPhaseMovesForwardOnly(t *testing.T) {
	t.Parallel()
	for from := authenticating; from <= ended; from++ {
		for to := authenticating; to <= ended; to++ {
			want := to > from || (from == waiting || from == forwarded) && to == serving
			got := func() (moved bool) {
				defer func() { moved = recover() == nil }()
				c := conn{phase: from}
				c.enter(to)
				return c.phase == to
			}()
			if got != want {
				t.Errorf("%v to %v: allowed %t, want %t", from, to, got, want)
			}
		}
		c := conn{phase: from}
		if c.fail(); c.phase != max(from, broken) {
			t.Errorf("a connection that is %v fails and is %v", from, c.phase)
		}
	}
}
