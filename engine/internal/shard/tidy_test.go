package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine/internal/clock"
)

// mapped is what all shards hold from the system.
func (e *Engine) mapped() (n int64) {
	for _, sh := range e.shards {
		n += sh.jobs.Mapped() + sh.counters.Mapped() + sh.bodies.Mapped()
	}
	return n
}

// Whatever states the remaining jobs are in, and however they are scattered,
// the memory of those that left comes back and nothing of the others changes.
func TestMemoryOfDeletedJobsComesBackAlsoWhenSomeStay(t *testing.T) {
	s := newSim(1<<20, 1)
	c := s.open()
	do := func(cmd codec.Command, want string) {
		t.Helper()
		c.out.Buf = c.out.Buf[:0]
		if got := c.session.Execute(s.now, &cmd, &c.out); got != Done || !bytes.HasPrefix(c.out.Buf, []byte(want)) {
			t.Fatalf("%v %d: outcome %d, %.60q, want %s", cmd.Op, cmd.ID, got, c.out.Buf, want)
		}
	}
	body := func(id uint64) []byte {
		n := 100
		if id%100 == 0 {
			n = 30_000
		}
		return bytes.Repeat([]byte(fmt.Sprintf("%08d", id)), n/8)
	}
	const n = 60_000
	rnd := rand.New(rand.NewPCG(5, 6))
	for id := uint64(1); id <= n; id++ {
		b := body(id)
		delay := uint32(0)
		if id%5 == 0 {
			delay = 1000
		}
		do(codec.Command{
			Op: codec.OpPut, CountAs: codec.OpPut, Pri: rnd.Uint32N(12), Delay: delay, TTR: 100_000,
			Size: uint32(len(b)), Body: b, Terminated: true,
		}, "INSERTED")
		if id%3 == 0 {
			do(codec.Command{Op: codec.OpReserveJob, CountAs: codec.OpReserveJob, ID: id}, "RESERVED")
			if id%2 == 0 {
				do(codec.Command{Op: codec.OpBury, CountAs: codec.OpBury, ID: id}, "BURIED")
			}
		}
	}
	full := s.engine.mapped()
	stay := map[uint64]string{}
	for id := uint64(1); id <= n; id++ {
		if rnd.IntN(100) == 0 {
			do(codec.Command{Op: codec.OpStatsJob, CountAs: codec.OpStatsJob, ID: id}, "OK")
			stay[id] = string(c.out.Buf)
		} else {
			do(codec.Command{Op: codec.OpDelete, CountAs: codec.OpDelete, ID: id}, "DELETED")
		}
	}
	began := s.now
	s.Wait(20 * time.Second)
	if got := s.engine.mapped(); got > full/20 {
		t.Fatalf("%d bytes are mapped for 1 %% of the jobs, %d were for all", got, full)
	}
	s.now = began // so that ages and times left are the same
	for id, want := range stay {
		do(codec.Command{Op: codec.OpStatsJob, CountAs: codec.OpStatsJob, ID: id}, want)
		b := body(id)
		do(codec.Command{Op: codec.OpPeek, CountAs: codec.OpPeek, ID: id}, fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(b), b))
	}
	for id := range stay {
		do(codec.Command{Op: codec.OpDelete, CountAs: codec.OpDelete, ID: id}, "DELETED")
	}
	s.now = began + 20*clock.Second
	s.Wait(10 * time.Second)
	if got := s.engine.mapped(); got != 0 {
		t.Fatalf("%d bytes are mapped for no job", got)
	}
}

// Large bodies are moved a few at a time: nobody waits at the shard's lock for more.
func TestAStepOfTidyingCopiesFewLargeBodies(t *testing.T) {
	const n, size = 400, 60_000
	s := newSim(1<<20, 1)
	c := s.open()
	body := bytes.Repeat([]byte{'x'}, size)
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 9 %d\r\n%s\r\n", size, body)
	}
	full := s.engine.mapped()
	for id := 1; id <= n; id++ {
		if id%10 != 0 {
			c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
		}
	}
	sh := s.engine.defaultTube.shard
	places := func() (p []ref) {
		for id := uint64(10); id <= n; id += 10 {
			_, j := sh.find(id)
			p = append(p, j.body)
		}
		return p
	}
	total := 0
	for before := places(); s.alarm() != clock.MaxTime; {
		s.now = s.alarm()
		s.loops[0].run(s.now)
		after := places()
		moved := 0
		for i := range after {
			if after[i] != before[i] {
				moved++
			}
		}
		if moved*size > tidyBytes+tidyLook*size {
			t.Errorf("a step has moved %d bodies", moved)
		}
		total += moved
		before = after
	}
	if got := s.engine.mapped(); total < n/20 || got > full/5 {
		t.Errorf("%d bodies were moved, %d of %d bytes are still mapped", total, got, full)
	}
}

// The body of a put that has not come whole lies where no walk over the jobs comes.
func TestTidyingEndsWhereNothingCanBeMoved(t *testing.T) {
	const size = 60_000
	s := newSim(1<<20, 1)
	c := s.open()
	body := bytes.Repeat([]byte{'x'}, size)
	half := func() *simConn {
		d := s.open()
		d.expect(t, "", "put 0 0 9 %d\r\n%s", size, body[:size/2])
		return d
	}
	put := func() (id uint64) {
		got := c.ask(t, "put 0 0 9 %d\r\n%s\r\n", size, body)
		if _, err := fmt.Sscanf(got, "INSERTED %d", &id); err != nil {
			t.Fatalf("a put was answered %q", got)
		}
		return id
	}
	half()
	var ids []uint64
	for range 40 {
		ids = append(ids, put())
	}
	last := half()
	for _, id := range ids {
		c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
	}
	s.Wait(10 * time.Second)
	sh := s.engine.defaultTube.shard
	scattered := sh.bodies.Mapped()
	if sh.tidier.timer.Scheduled() {
		t.Error("it looks again and again")
	}
	if got := last.ask(t, "%s\r\n", body[size/2:]); !strings.HasPrefix(got, "INSERTED ") {
		t.Fatalf("a put was answered %q", got)
	}
	c.expect(t, "DELETED\r\n", "delete %d\r\n", put())
	s.Wait(10 * time.Second)
	if got := sh.bodies.Mapped(); got >= scattered {
		t.Errorf("%d bytes are mapped when all can be moved, as were %d before", got, scattered)
	}
}
