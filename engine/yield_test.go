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

func TestAListOfManyTubesYieldsToTheOthersOfItsLoop(t *testing.T) {
	const n = 2*listTurn + listTurn/2
	s := newLimitedSim(65535, 1, Limits{})
	lister, other := s.open(), s.open()
	want := "---\n- default\n"
	for i := range n {
		lister.expect(t, fmt.Sprintf("USING t%d\r\nINSERTED %d\r\n", i, i+1), "use t%d\r\nput 0 0 9 0\r\n\r\n", i)
		want += fmt.Sprintf("- t%d\n", i)
	}
	var out Output
	outcome := lister.session.Execute(s.now, &codec.Command{Op: codec.OpListTubes, Tally: codec.OpListTubes}, &out)
	turns := 0
	for ; outcome == Yield; outcome = lister.session.Resume(s.now, &out) {
		turns++
		if len(out.Buf) != 0 {
			t.Fatalf("it has answered %.40q and yields", out.Buf)
		}
		// Others change what is being listed, and make lists of their own.
		other.expect(t, "DELETED\r\nOK 14\r\n---\n- default\n\r\n", "delete %d\r\nlist-tubes-watched\r\n", turns)
	}
	if want := fmt.Sprintf("OK %d\r\n%s\r\n", len(want), want); outcome != Done || turns != 2 || string(out.Buf) != want {
		t.Errorf("outcome %d after %d turns, %d bytes, want %d", outcome, turns, len(out.Buf), len(want))
	}
}
