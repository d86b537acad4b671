package shard

import (
	"testing"

	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
)

// A panic that interrupts a change of the engine's state is known for what it is:
// the process that goes on would serve from broken structures.
func TestALoopIsBusyAfterAPanicInTheMiddleOfAChange(t *testing.T) {
	for _, cmd := range []codec.Command{
		{Op: codec.OpPut, Terminated: true},
		{Op: codec.OpReserve},
		{Op: codec.OpReserveJob, ID: 1},
		{Op: codec.OpReserveJob, ID: 3},
		{Op: codec.OpDelete, ID: 1},
		{Op: codec.OpDelete, ID: 2},
		{Op: codec.OpRelease, ID: 2},
		{Op: codec.OpRelease, ID: 2, Delay: 1},
		{Op: codec.OpBury, ID: 2},
		{Op: codec.OpTouch, ID: 2},
		{Op: codec.OpKick, Bound: 1},
		{Op: codec.OpKickJob, ID: 3},
		{Op: codec.OpPauseTube, Tube: []byte(DefaultTube), Delay: 1},
		{Op: codec.OpUse, Tube: []byte("new")},
		{Op: codec.OpWatch, Weight: 1, Tube: []byte("new")},
	} {
		t.Run(cmd.Op.String(), func(t *testing.T) {
			s := newSim(100, 1)
			c := s.open()
			// 1 is ready, 2 reserved, 3 buried, 4 delayed.
			c.say(
				"put 1 0 9 0", "", "put 0 0 9 0", "", "put 0 0 9 0", "", "put 0 9 9 0", "",
				"reserve-job 2", "reserve-job 3", "bury 3 0",
			)
			if c.loop.Busy() {
				t.Fatal("busy before")
			}
			// What a bug might leave: everything that a change needs is missing.
			for _, sh := range s.engine.shards {
				sh.jobs = arena.Slab[job]{}
				sh.alarm, sh.armed = func(clock.Time) { panic("no loop is there to wake") }, clock.MaxTime
				if cmd.Op != codec.OpPauseTube && cmd.Op != codec.OpKick {
					sh.byName = nil
				}
			}
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
				if !c.loop.Busy() {
					t.Fatal("not busy")
				}
			}()
			c.session.Execute(s.now, &cmd, &c.out)
		})
	}
}
