package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/pagedheap"
)

// The first of the heap is the one that expires first, whatever comes and goes.
func TestExpiriesComeInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h pagedheap.Heap[expiry, *expiry]
		var want []expiry
		order := func(a, b expiry) int {
			if a.Before(&b) {
				return -1
			}
			return 1
		}
		n := rapid.SampledFrom([]int{0, 3, 100, 3*pagedheap.PageLen + 5}).Draw(t, "at first")
		for id := uint64(1); id <= uint64(n+100); id++ {
			e := expiry{clock.Time(rapid.IntRange(0, 50).Draw(t, "at")), &keyed{id: id}}
			h.Push(e)
			want = append(want, e)
			for range rapid.IntRange(0, 2).Draw(t, "go") {
				if int(id) > n && len(want) > 0 {
					i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
					h.Remove(int(want[i].k.place) - 1)
					want = slices.Delete(want, i, i+1)
				}
			}
		}
		slices.SortFunc(want, order)
		for _, e := range want {
			if got := *h.At(0); got != e || got.k.place != 1 {
				t.Fatalf("first is %d of job %d at %d, want %d of job %d", got.at, got.k.id, got.k.place, e.at, e.k.id)
			}
			if h.Remove(0); h.Pages() > h.Len()/pagedheap.PageLen+2 {
				t.Fatalf("%d pages for %d entries", h.Pages(), h.Len())
			}
		}
	})
}

// Thousands that expire at once do so in turns, in which other deadlines are met as well.
func TestManyJobsExpireInTurns(t *testing.T) {
	for _, setting := range []string{"expire=1", "expire=1 dead=%s"} {
		s := newSim(100, 1)
		c := s.open()
		from, to := s.engine.tubeIn(2, "from"), s.engine.tubeIn(1, "to")
		c.expect(t, "TUBE_SET\r\nUSING "+from+"\r\n", "set-tube %s %s\r\nuse %s\r\n", from, strings.ReplaceAll(setting, "%s", to), from)
		c.putMany(t, 1, 5*maxMoves, "put 0 0 9 0\r\n\r\n")
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", 5*maxMoves+1), "put 0 1 9 0 exp:0\r\n\r\n")
		s.now += clock.Second
		locks := Tx{shared: s.engine.Shards}
		sh := s.engine.shards[2]
		turns := 0
		for ; sh.expiries.heap.Len() > 0; turns++ {
			before := sh.expiries.heap.Len()
			sh.lock(&locks, s.now+clock.Time(turns))
			sh.unlock(&locks)
			if n := before - sh.expiries.heap.Len(); n == 0 || n > maxMoves {
				t.Fatalf("%d jobs expire while the shard is locked", n)
			}
			if turns == 0 && sh.totals.in[delayed] > 0 {
				t.Error("a delay that has ended waits for all that expires")
			}
		}
		s.now += clock.Time(turns)
		if x := s.engine.Snapshot(s.now); x.Ready != 1 || x.ExpiredDeleted+x.ExpiredBuried != 5*maxMoves || int(x.ExpiredBuried) != x.Buried || turns < 5 {
			t.Errorf("after %d turns there is %+v", turns, x)
		}
		s.noErrors(t)
	}
}

// A job whose dead tube has no room stays as it is, may be started, and is tried again.
func TestAJobThatCannotBeBuriedIsTriedAgainEverySecond(t *testing.T) {
	s, f, c := newCramped(t)
	f.room = true
	c.expect(t, "TUBE_SET\r\nINSERTED 5\r\nINSERTED 6\r\n", "set-tube default dead=dead\r\nput 0 0 9 1 exp:2\r\nx\r\nput 0 0 99 1 exp:2\r\ny\r\n")
	d := s.open()
	c.expect(t, "RESERVED 6 1\r\ny\r\n", "reserve-job 6\r\n")
	f.err = journal.ErrNoSpace
	s.Wait(2 * time.Second)
	c.expect(t, "OUT_OF_MEMORY\r\nTOUCHED\r\n", "release 6 0 0\r\ntouch 6\r\n")
	c.expect(t, "FOUND 5 1\r\nx\r\n", "peek 5\r\n")
	s.Wait(2 * time.Second)
	d.expect(t, "RESERVED 5 1\r\nx\r\n", "reserve-job 5\r\n")
	s.Wait(2 * time.Second)
	f.err = nil
	c.expect(t, "RELEASED\r\nNOT_FOUND\r\n", "release 6 0 0\r\npeek-tube other ready\r\n")
	d.end()
	s.Settle()
	if x := s.engine.Snapshot(s.now); x.ExpiredBuried != 2 || x.Buried != 3 || x.ExpiredDeleted != 0 {
		t.Errorf("%+v", x)
	}
	s.noErrors(t)

	c.expect(t, "INSERTED 7\r\n", "put 0 0 9 1 exp:2\r\nz\r\n")
	f.err = journal.ErrNoSpace
	s.Wait(2 * time.Second)
	f.err = nil
	s.Wait(time.Second - 1)
	if x := s.engine.Snapshot(s.now); x.ExpiredBuried != 2 {
		t.Error("it was tried again before a second was over")
	}
	s.Wait(1)
	if x := s.engine.Snapshot(s.now); x.ExpiredBuried != 3 {
		t.Error("it was not tried again")
	}
	s.noErrors(t)
}

// Nothing expires in a standby, however late it is; when it serves, what is overdue is gone before
// the first command.
func TestAStandbyLetsNothingExpire(t *testing.T) {
	record := &tape{file: newFile(nil)}
	e := New(Config{Journal: record})
	f := e.Follow(clock.Always)
	f.Strict()
	for id, terms := range []*journal.Terms{{Expires: 5}, {Expires: 50}, {Expires: 5}} {
		x := &journal.Record{ID: uint64(id + 1), State: journal.Ready, TTR: 1, Tube: "default", Created: 100e9, Keys: journal.Keys{Terms: terms}}
		if id == 2 {
			x.Kicks = 1
		}
		ticket, err := record.Put(x)
		if err == nil {
			_, err = f.Full(x, journal.Place{Segment: ticket.Segment})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Stamp(120e9)
	for f.Tidy() {
	}
	if n := e.Snapshot(120 * clock.Second); n.Ready != 3 || len(record.entries) != 3 {
		t.Fatalf("%d jobs are ready, %d records", n.Ready, len(record.entries))
	}
	f.Serve(4, 120*clock.Second)
	if n := e.Snapshot(120 * clock.Second); n.Ready != 2 || n.ExpiredDeleted != 1 {
		t.Errorf("%d jobs are ready, %d have expired", n.Ready, n.ExpiredDeleted)
	}
	if n := e.Snapshot(150 * clock.Second); n.Ready != 1 {
		t.Errorf("%d jobs are ready at the end", n.Ready)
	}
}

// A server without extensions lets nothing expire, and keeps what is on record of it.
func TestExpiriesSleepWithoutExtensions(t *testing.T) {
	e := New(Config{Stock: true})
	f := e.Follow(0)
	x := &journal.Record{ID: 1, State: journal.Ready, TTR: 1, Tube: "default", Keys: journal.Keys{Terms: &journal.Terms{Expires: 5}}}
	if _, err := f.Full(x, journal.Place{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	f.Serve(2, 0)
	if n := e.Snapshot(50 * clock.Second); n.Ready != 1 {
		t.Error("a job has expired")
	}
	_, err := e.Walk(1, 1, func(r *journal.Record, _ *journal.Hold) error {
		if !r.Keys.Equal(&x.Keys) {
			t.Errorf("on record is %+v", r.Keys)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The setting of a tube counts for puts of clients that know nothing of it, also for those whose body
// comes in pieces, and those that are on record before they are jobs.
func TestPutsWithoutATagExpireAsTheirTubeSays(t *testing.T) {
	s := newSim(2*pinnedSize, 1)
	f := newFile(nil)
	s.engine.recordIn(f)
	c := s.open()
	c.expect(t, "INSERTED 1\r\n", "put 0 0 9 1\r\nx\r\n")
	c.expect(t, "TUBE_SET\r\n", "set-tube default expire=7\r\n")
	for _, size := range []int{0, 100, pinnedSize, pinnedSize + 1} {
		body := strings.Repeat("x", size)
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", f.last()+1), "put 0 0 9 %d\r\n%s\r\n", size, body)
		c.expect(t, "", "put 0 0 9 %d idp:k%d\r\n", size, size)
		c.expect(t, "", "%s", body[:size/2])
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", f.last()+1), "%s\r\n", body[size/2:])
	}
	c.expect(t, fmt.Sprintf("INSERTED %d\r\n", f.last()+1), "put 0 0 9 1 exp:3\r\nx\r\n")
	c.expect(t, fmt.Sprintf("INSERTED %d\r\n", f.last()+1), "put 0 0 9 1 exp:0\r\nx\r\n")
	last := f.last()
	for id, want := range map[uint64]uint32{1: 0, last - 1: 3, last: 0} {
		if terms := f.jobs[id].full.Keys.Terms; terms == nil && want > 0 || terms != nil && terms.Expires != want {
			t.Errorf("job %d has %+v, should expire after %d", id, terms, want)
		}
	}
	for id := uint64(2); id < last-1; id++ {
		if terms := f.jobs[id].full.Keys.Terms; terms == nil || *terms != (journal.Terms{Expires: 7}) {
			t.Errorf("job %d has %+v", id, terms)
		}
	}
	s.Wait(7 * time.Second)
	if x := s.engine.Snapshot(s.now); x.Ready != 2 {
		t.Errorf("%d jobs are left", x.Ready)
	}
	s.noErrors(t)
}

// last is the greatest id of a job on record.
func (f *file) last() (last uint64) {
	for id := range f.jobs {
		last = max(last, id)
	}
	return last
}
