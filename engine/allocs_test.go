package engine

import (
	"testing"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/shard"
)

// The commands that a busy server executes all the time allocate nothing once
// the engine has reached its size. (A new leaf of the index of ids and a new chunk
// of memory come once in thousands of jobs and count as nothing.)
func TestHotCommandsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const runs = 2000
	for _, x := range []struct {
		name string
		from string // of the jobs with which it begins
		op   func(c *plantClient, id uint64)
	}{
		{"put", "", func(c *plantClient, _ uint64) { c.put(0, 0) }},
		{"put with delay", "", func(c *plantClient, _ uint64) { c.put(0, 10) }},
		{"put of many priorities", "", func(c *plantClient, _ uint64) { c.put(uint32(c.loop.now)%99, 0) }},
		{"reserve", "ready", func(c *plantClient, _ uint64) { c.reserve() }},
		{"reserve-job", "ready", (*plantClient).reserveJob},
		{"delete of a ready job", "ready", (*plantClient).delete},
		{"delete of a reserved job", "reserved", (*plantClient).delete},
		{"delete of a buried job", "buried", (*plantClient).delete},
		{"delete of a delayed job", "delayed", (*plantClient).delete},
		{"release", "reserved", func(c *plantClient, id uint64) { c.release(id, 0, 0) }},
		{"release with delay", "reserved", func(c *plantClient, id uint64) { c.release(id, 0, 10) }},
		{"release with another priority", "reserved", func(c *plantClient, id uint64) { c.release(id, uint32(id)%99, 0) }},
		{"touch", "reserved", (*plantClient).touch},
		{"bury", "reserved", (*plantClient).bury},
		{"kick-job of a buried job", "buried", (*plantClient).kickJob},
		{"kick-job of a delayed job", "delayed", (*plantClient).kickJob},
		{"kick", "buried", func(c *plantClient, _ uint64) { c.must(&codec.Command{Op: codec.OpKick, Bound: 1}, "KICKED 1") }},
		{"peek", "ready", func(c *plantClient, id uint64) { c.must(&codec.Command{Op: codec.OpPeek, ID: id}, "FOUND") }},
		{"cycle", "", func(c *plantClient, _ uint64) { c.cycle(0) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := newPlant(t, 1)
			t.Cleanup(p.engine.Discard)
			c := p.client(0)
			var allocs float64
			for range 2 { // first grow, then measure
				var ids []uint64
				for range runs + 1 {
					if x.from == "" {
						ids = append(ids, 0)
						continue
					}
					delay := uint32(0)
					if x.from == "delayed" {
						delay = 1e6
					}
					id := c.put(0, delay)
					ids = append(ids, id)
					if x.from == "reserved" || x.from == "buried" {
						c.reserveJob(id)
					}
					if x.from == "buried" {
						c.bury(id)
					}
				}
				i := 0
				allocs = testing.AllocsPerRun(runs, func() {
					x.op(c, ids[i])
					i++
				})
				for id := range c.put(0, 0) {
					c.do(&codec.Command{Op: codec.OpDelete, ID: id + 1}) // unless it is gone
				}
			}
			if allocs != 0 {
				t.Errorf("%v allocations", allocs)
			}
		})
	}
}

// Nor do they for a client that has weights and is told more.
func TestHotCommandsOfAWeightedSessionDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPlant(t, 1)
	t.Cleanup(p.engine.Discard)
	c := p.client(0)
	c.must(&codec.Command{Op: codec.OpWatch, Weight: 5, Tube: []byte("a")}, "WATCHING")
	for _, mode := range []codec.Mode{codec.Weighted, codec.WeightedFair} {
		c.must(&codec.Command{Op: codec.OpReserveMode, Mode: mode, Info: true}, "USING")
		for range 2 { // first grow, then measure
			const runs = 1000
			for range runs + 1 {
				c.put(0, 0)
			}
			if allocs := testing.AllocsPerRun(runs, func() { c.delete(c.reserve()) }); allocs != 0 {
				t.Errorf("mode %d: %v allocations", mode, allocs)
			}
		}
	}
	rewatch := codec.Command{Op: codec.OpWatch, Weight: 7, Tube: []byte("a")}
	if allocs := testing.AllocsPerRun(1000, func() { c.must(&rewatch, "WATCHING 2") }); allocs != 0 {
		t.Errorf("another weight: %v allocations", allocs)
	}
}

func TestHotCommandsOnTubesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPlant(t, 1)
	c, producer, keeper := p.client(0), p.client(0), p.client(0)
	keeper.must(&codec.Command{Op: codec.OpUse, Tube: []byte("a")}, "USING")
	do := func(cmd codec.Command) func() { return func() { c.do(&cmd) } }
	useA, useDefault := do(codec.Command{Op: codec.OpUse, Tube: []byte("a")}), do(codec.Command{Op: codec.OpUse, Tube: []byte(shard.DefaultTube)})
	watch, ignore := do(codec.Command{Op: codec.OpWatch, Weight: 1, Tube: []byte("a")}), do(codec.Command{Op: codec.OpIgnore, Tube: []byte("a")})
	timeout := codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 1}
	for name, op := range map[string]func(){
		"use":              func() { useA(); useDefault() },
		"watch and ignore": func() { watch(); ignore() },
		"list-tube-used":   do(codec.Command{Op: codec.OpListTubeUsed}),
		"a wait that runs out": func() {
			if c.do(&timeout) != Wait {
				t.Fatalf("%q", c.out.Buf)
			}
			c.loop.now += clock.Second
			c.loop.pull(c.loop.now)
		},
		"a wait that a put ends": func() {
			if c.do(&timeout) != Wait {
				t.Fatalf("%q", c.out.Buf)
			}
			producer.put(0, 0)
			c.loop.pull(c.loop.now)
			c.delete(c.replyID())
		},
	} {
		op()
		if allocs := testing.AllocsPerRun(1000, op); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// A client that comes, works on a job, and goes leaves behind what it has reserved: the
// list of it, and what that grew by.
func TestAClientThatComesAndGoesLeavesLittleGarbage(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPlant(t, 1)
	c := &plantClient{tb: t, loop: p.loops[0]}
	allocs := testing.AllocsPerRun(2000, func() {
		c.session = Session{}
		c.loop.Open(&c.session, c.loop.now)
		c.cycle(0)
		if !c.session.Close(c.loop.now) {
			t.Fatal("it is not gone")
		}
	})
	if allocs > 2 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestHotCommandsOfARestrictedSessionDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPlant(t, 1)
	t.Cleanup(p.engine.Discard)
	c := &plantClient{tb: t, loop: p.loops[0]}
	c.loop.OpenGranted(&c.session, NewGrant("", RightAll, []string{"default", "a/*"}), 0)
	c.cycle(0)
	pause := codec.Command{Op: codec.OpPauseTube, Tube: []byte("b")}
	for name, op := range map[string]func(){
		"cycle":       func() { c.cycle(0) },
		"reserve-job": func() { id := c.put(0, 0); c.reserveJob(id); c.delete(id) },
		"peek": func() {
			c.must(&codec.Command{Op: codec.OpPeek, ID: c.put(0, 0)}, "FOUND")
			c.delete(c.reserve())
		},
		"a denied pause": func() { c.must(&pause, "UNKNOWN_COMMAND") },
	} {
		if allocs := testing.AllocsPerRun(1000, op); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
