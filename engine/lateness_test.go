package engine

import (
	"testing"

	"trellis/codec"
)

// A deadline that was set long ago is met in time although others were set since,
// which stand in lower levels of the wheel.
func TestAnOldDeadlineIsNotLateBehindYoungerOnes(t *testing.T) {
	var w wheel
	old, young := newFiring(), newFiring()
	w.schedule(&old.timer, 30*second)
	w.skip(20 * second) // nothing is due before
	w.schedule(&young.timer, 31*second)
	w.advance(30 * second)
	if len(old.fired) != 1 {
		t.Fatalf("a timer for %d has not fired at %d", 30*second, 30*second)
	}
}

// The same, as a client sees it.
func TestADelayEndsInTimeBehindYoungerDelays(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	do := func(cmd codec.Command) string {
		c.out.Buf = nil
		c.session.Execute(s.now, &cmd, &c.out)
		return string(c.out.Buf)
	}
	// Two tubes in one shard.
	sh := s.engine.shardFor([]byte("a"))
	other := []byte("b")
	for s.engine.shardFor(other) != sh {
		other = append(other, 'b')
	}
	do(codec.Command{Op: codec.OpUse, Tube: []byte("a")})
	do(codec.Command{Op: codec.OpPut, Delay: 30, TTR: 1, Terminated: true})
	s.Wait(20e9)
	do(codec.Command{Op: codec.OpUse, Tube: other})
	do(codec.Command{Op: codec.OpPut, Delay: 11, TTR: 1, Terminated: true})
	s.Wait(10e9)
	do(codec.Command{Op: codec.OpUse, Tube: []byte("a")})
	if got := do(codec.Command{Op: codec.OpPeekReady}); got != "FOUND 1 0\r\n\r\n" {
		t.Fatalf("after 30 s, peek-ready: %q", got)
	}
}
