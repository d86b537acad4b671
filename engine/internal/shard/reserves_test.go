package shard

import (
	"testing"

	"trellis/engine/internal/clock"
)

func TestASessionKnowsWhetherItHoldsAJob(t *testing.T) {
	s := newLimitedSim(65535, 4, Limits{})
	c := s.open()
	is := func(want bool, when string) {
		t.Helper()
		if got := c.session.Reserves(s.now); got != want {
			t.Errorf("%s: %t", when, got)
		}
	}
	is(false, "at first")
	c.expect(t, "INSERTED 1\r\n", "put 0 0 5 1\r\nx\r\n")
	is(false, "with a ready job")
	c.expect(t, "RESERVED 1 1\r\nx\r\n", "reserve\r\n")
	is(true, "with a reserved job")
	s.now += 5 * clock.Second
	is(false, "when its time to run has ended")
}
