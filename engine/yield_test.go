package engine

import (
	"fmt"
	"testing"

	"trellis/codec"
)

func TestAKickOfManyJobsYieldsToTheOthersOfItsLoop(t *testing.T) {
	const n = 2*kickTurn + kickTurn/2
	s := newLimitedSim(65535, 1, Limits{})
	producer, kicker, other := s.open(), s.open(), s.open()
	for i := range n {
		producer.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put %d 100 9 1\r\nx\r\n", i)
	}
	var out Output
	outcome := kicker.session.Execute(s.now, &codec.Command{Op: codec.OpKick, Tally: codec.OpKick, Bound: 1 << 30}, &out)
	turns := 0
	for ; outcome == Yield; outcome = kicker.session.Resume(s.now, &out) {
		turns++
		if len(out.Buf) != 0 {
			t.Fatalf("it has answered %q and yields", out.Buf)
		}
		// Another client of the loop finds what was kicked, and delays one more.
		other.expect(t, fmt.Sprintf("RESERVED %d 1\r\nx\r\n", turns), "reserve\r\n")
		producer.expect(t, fmt.Sprintf("INSERTED %d\r\n", n+turns), "put 9999 200 9 1\r\nx\r\n")
	}
	if want := fmt.Sprintf("KICKED %d\r\n", n); outcome != Done || turns != 2 || string(out.Buf) != want {
		t.Errorf("outcome %d after %d turns, %q, want %q", outcome, turns, out.Buf, want)
	}
	if got := s.engine.Snapshot(s.now); got.Ready != n-turns || got.Delayed != turns {
		t.Errorf("%d ready, %d delayed", got.Ready, got.Delayed)
	}
	// A client that closes in the middle leaves the rest as it is.
	for range 2 * kickTurn {
		producer.ask(t, "put 9999 100 9 1\r\nx\r\n")
	}
	kicker.session.Execute(s.now, &codec.Command{Op: codec.OpKick, Tally: codec.OpKick, Bound: 1 << 30}, &out)
	kicker.session.Close(s.now)
	if got := s.engine.Snapshot(s.now); got.Delayed != kickTurn+turns {
		t.Errorf("%d are delayed after half a kick", got.Delayed)
	}
}
