package binlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
)

// Any history with any crashes: what is recovered is the state after some prefix
// of the commands, with all in it that was acknowledged, as far as the level of
// safety says.
func TestRandomHistoriesSurviveRandomCrashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(rt, rapid.Uint64().Draw(rt, "seed"), Options{
			Sync:        levels[rapid.SampledFrom([]string{"synced", "interval", "never"}).Draw(rt, "level")],
			SegmentSize: rapid.SampledFrom([]int64{MinSegmentSize, 3 * MinSegmentSize, 1 << 20}).Draw(rt, "segment"),
		})
		if err := h.start(); err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if h.log != nil {
				h.log.Close()
			}
		}()
		for range rapid.IntRange(1, 6).Draw(rt, "crashes") {
			for range rapid.IntRange(0, 150).Draw(rt, "steps") {
				if !h.step() {
					rt.Fatal("the log has failed")
				}
			}
			if rapid.Bool().Draw(rt, "settled") {
				h.await()
			}
			switch end := rapid.SampledFrom([]string{"kill", "power", "close"}).Draw(rt, "end"); {
			case end == "close":
				last := Pos(0)
				if n := len(h.ops); n > 0 {
					last = h.ops[n-1].pos
				}
				if err := h.log.Close(); err != nil {
					rt.Fatal(err)
				}
				h.fs = h.fs.Killed()
				if err := h.recoverAndCheck(last); err != nil {
					rt.Fatal(err)
				}
			case end == "power" && h.opts.Sync == SyncNever:
				// Nothing is promised, not even about ids, but that damage does not
				// go unnoticed.
				h.crash(true)
				h.told = 0
				if err := h.start(); err != nil && !errors.As(err, new(*DamageError)) {
					rt.Fatal(err)
				}
				return
			default:
				required := h.crash(end == "power")
				if err := h.recoverAndCheck(required); err != nil {
					rt.Fatal(err)
				}
			}
		}
	})
}

// Many goroutines, compaction and the operating system's files.
func TestManyGoroutinesAppendAtOnce(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const writers, steps = 4, 1500
			dir := t.TempDir()
			o := newOwner()
			opts := Options{Sync: policy, SegmentSize: 64 << 10}
			if err := o.open(dir, opts); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for w := range uint64(writers) {
				wg.Go(func() {
					for i := range uint64(steps) {
						id := w*steps + i + 1
						if _, err := o.put(testRecord(id, int(id%300+id%10/9*2*encodeOutside))); err != nil {
							t.Error(err)
							return
						}
						if i%3 > 0 {
							if _, err := o.delete(id - 1); err != nil {
								t.Error(err)
								return
							}
						} else if i > 0 {
							r := o.snapshot1(id)
							r.State, r.BuryOrder = Buried, id
							if _, err := o.update(&r); err != nil {
								t.Error(err)
								return
							}
						}
						if i%8 == 0 {
							o.log.Flush()
						}
					}
				})
			}
			wg.Wait()
			o.log.Flush()
			eventually(t, "the commit", func() bool { return o.log.Stats().PendingBytes == 0 })
			eventually(t, "compaction", func() bool { return o.log.Stats().SegmentsRemoved > 0 })
			want := o.snapshot()
			if err := o.log.Close(); err != nil {
				t.Fatal(err)
			}
			again := newOwner()
			if err := again.open(dir, opts); err != nil {
				t.Fatal(err)
			}
			defer again.log.Close()
			if d := diff(again.snapshot(), want); d != "" {
				t.Error(d)
			}
		})
	}
}

func (o *owner) snapshot1(id uint64) Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.jobs[id].Record
}

func TestAnIDIsNeverUsedAgain(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: MinSegmentSize})
	for range 1000 {
		c.end(c.newJob(100))
	}
	for range 3 {
		eventually(t, "compaction", func() bool { return c.log.Stats().Segments <= 2 })
		if err := c.log.Close(); err != nil {
			t.Fatal(err)
		}
		c.fs = c.fs.Killed()
		o := newOwner()
		if err := o.open(testDir, Options{FS: c.fs, SegmentSize: MinSegmentSize}); err != nil {
			t.Fatal(err)
		}
		c.owner = o
		if got := o.log.NextID(); got != 1001 {
			t.Fatalf("the next id is %d, want 1001", got)
		}
		// Runs that use no id, and many segments.
		for range 200 {
			if _, err := o.put(testRecord(7, 100)); err != nil {
				t.Fatal(err)
			}
			if _, err := o.delete(7); err != nil {
				t.Fatal(err)
			}
		}
		o.log.Flush()
	}
}

func TestProgressAndRecoveryAreTold(t *testing.T) {
	t.Parallel()
	m, jobs := aLog(t, Options{})
	phases := map[string]Progress{}
	o, _, err := openFiles(t, m, Options{Progress: func(p Progress) { phases[p.Phase] = p }})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	maps.DeleteFunc(jobs, func(_ uint64, r Record) bool { return r.ID == 0 }) // settings
	r := o.log.Recovery()
	if !r.Clean || r.Jobs != int64(len(jobs)) || r.Segments != len(m.segments()) || r.Records == 0 || r.Bytes == 0 {
		t.Errorf("recovery: %+v", r)
	}
	if got := slices.Sorted(maps.Keys(phases)); fmt.Sprint(got) != "[check replay]" {
		t.Errorf("phases: %v", got)
	}
	for _, p := range phases {
		if p.Done == 0 || p.Done > p.Total {
			t.Errorf("the last progress is %+v", p)
		}
	}
	s := o.log.Stats()
	if s.Jobs != r.Jobs || s.OldestSegment == 0 || s.CurrentSegment < s.OldestSegment || s.LiveBytes == 0 || s.DiskBytes < s.UsedBytes {
		t.Errorf("stats: %+v", s)
	}
}

// A sync is due soon after a write, also when nothing follows.
func TestTheLastWriteIsSyncedWithoutFurtherTraffic(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Sync: SyncEvery(5 * time.Millisecond)})
	c.newJob(10)
	c.log.Flush()
	eventually(t, "the sync", func() bool {
		s := c.log.Stats()
		return s.PendingBytes == 0 && s.UnsyncedBytes == 0 && s.Syncs > 0
	})
}

func TestAppendsDoNotAllocate(t *testing.T) {
	c := newClient(t, Options{Sync: SyncNever, SegmentSize: 1 << 20})
	r := testRecord(1, 100)
	size := journal.Size(r.Tube, len(r.Body))
	if n := testing.AllocsPerRun(200, func() {
		r.ID++
		ticket, err := c.log.Put(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.log.Update(r); err != nil {
			t.Fatal(err)
		}
		if _, err := c.log.Delete(r.ID, journal.Former{Segment: ticket.Segment, Size: size}); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
