package shard

import (
	"testing"

	"trellis/codec"
)

// A delay that began long ago ends in time although others began since, which stand in
// lower levels of the wheel.
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
