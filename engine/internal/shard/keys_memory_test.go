package shard

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
)

// A job's record is a cache line, and jobs without keys have nothing else for them.
func TestAJobWithoutKeysIsNoLargerForTheOthers(t *testing.T) {
	if got := unsafe.Sizeof(job{}); got != 64 {
		t.Errorf("a job's record has %d bytes", got)
	}
	if got := unsafe.Sizeof(counters{}); got != 32 {
		t.Errorf("a job's counters have %d bytes", got)
	}
	s := newSim(100, 1)
	s.open().putMany(t, 1, 1000, "put 0 0 9 0\r\n\r\n")
	for _, sh := range s.engine.shards {
		if sh.keyed.Buckets()+sh.holders.Buckets()+sh.keyspaces.Buckets() > 0 {
			t.Error("there are tables of keys for jobs that have none")
		}
	}
}

// A limited key keeps nothing of what it had for jobs that have gone.
func TestALimitedKeyKeepsNoRoomForJobsThatHaveGone(t *testing.T) {
	const n = 200
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put %d 0 9 0 con:k\r\n\r\n", i*7919%n)
	}
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", n+i+1), "put %d 0 9 0 con:k:%d\r\n\r\n", n, i+2)
	}
	key := s.engine.defaultTube.shard.byName[DefaultTube].limitedKeyOf("k")
	if key.others == nil || key.only.rest.Room() < n/2 {
		t.Fatal("there are no jobs in a heap, or no groups beside the first")
	}
	for id := 2; id <= 2*n; id++ {
		if id == n {
			s.noErrors(t)
		}
		c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
		if g, few := key.only, 2*n-id; few < n && key.others != nil && key.others.Buckets() > 2*few+1 || id >= n && g.rest.Room() > 0 {
			t.Fatalf("after job %d, there is room for %d jobs and %d groups", id, g.rest.Room(), key.others.Buckets())
		}
	}
	if key.others != nil || key.tube.limited.crowded != nil {
		t.Error("a table or list of groups is left")
	}
	s.noErrors(t)
}

// BenchmarkMemoryOfKeys reports what the keys of a job take of the Go heap, what they are
// counted for against the memory limit, and what a job takes when only every hundredth is left.
func BenchmarkMemoryOfKeys(b *testing.B) {
	const jobs = 200_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, c := range []struct {
		name string
		tags func(i int) codec.Tags
		keys int // limited or fair ones
	}{
		{"none", nil, 0},
		{"unique", func(i int) codec.Tags { return codec.Tags{Unique: fmt.Appendf(nil, "key-%d", i)} }, 0},
		{"long", func(i int) codec.Tags { return codec.Tags{Unique: fmt.Appendf(nil, "key-%060d", i)} }, 0},
		{"limited", func(i int) codec.Tags { return codec.Tags{Limited: fmt.Appendf(nil, "key-%d", i), Limit: 1} }, jobs},
		{"fair", func(i int) codec.Tags { return codec.Tags{Fair: fmt.Appendf(nil, "key-%d", i)} }, jobs},
		{"group", func(i int) codec.Tags { return codec.Tags{Group: fmt.Appendf(nil, "key-%d", i%1000)} }, 0},
		{"expiry", func(int) codec.Tags { return codec.Tags{Expires: 1e9, HasExpiry: true} }, 0},
		{"both", func(i int) codec.Tags {
			return codec.Tags{Unique: fmt.Appendf(nil, "key-%d", i), Limited: fmt.Appendf(nil, "key-%d", i%1000), Limit: 1}
		}, 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newSim(100, 1)
			client := s.open()
			must := func(cmd *codec.Command, want string) {
				client.out.Buf = client.out.Buf[:0]
				cmd.CountAs = cmd.Op
				if client.session.Execute(s.now, cmd, &client.out); !strings.HasPrefix(string(client.out.Buf), want) {
					b.Fatalf("%q", client.out.Buf)
				}
			}
			for b.Loop() {
				before := heap()
				counted := int64(0)
				for i := range jobs {
					cmd := &codec.Command{Op: codec.OpPut, TTR: 100, Terminated: true}
					if c.tags != nil {
						tags := c.tags(i)
						cmd.Tags = &tags
						keys := new(putKeys).set(&tags)
						counted += keysFootprint(keys)
						switch {
						case i >= c.keys:
						case keys.Fair() != "":
							counted += fairKeyFootprint(keys.Fair())
						default:
							counted += limitedKeyFootprint(keys.Limited) + groupMemory
						}
					}
					must(cmd, "INSERTED")
				}
				full := heap() - before
				last := s.engine.ids.Last.Load()
				for i := range uint64(jobs) {
					if i%100 > 0 {
						must(&codec.Command{Op: codec.OpDelete, ID: last - i}, "DELETED")
					}
				}
				left := heap() - before
				b.ReportMetric(full/jobs, "B/job")
				b.ReportMetric(float64(counted)/jobs, "counted-B/job")
				b.ReportMetric(left/(jobs/100), "B/job-left")
				for i := uint64(0); i < jobs; i += 100 {
					must(&codec.Command{Op: codec.OpDelete, ID: last - i}, "DELETED")
				}
				b.ReportMetric((heap()-before)/jobs, "B/gone")
			}
		})
	}
}

// Tubes that have gone and left a tombstone are not free, and those whose tombstones have gone
// are.
func TestWhatTheUniqueKeysOfATubeTakeIsCounted(t *testing.T) {
	const n = 1000
	s := newLimitedSim(100, 1, Limits{Memory: 1 << 40})
	c := s.open()
	pad := strings.Repeat("x", 180)
	want := s.engine.memory.Used()
	for i := range n {
		name := fmt.Sprint(pad, i)
		c.expect(t, fmt.Sprintf("USING %s\r\nINSERTED %d\r\nDELETED\r\n", name, i+1), "use %s\r\nput 0 0 9 0 idp:k:1000\r\n\r\ndelete %d\r\n", name, i+1)
		want += tombstoneFootprint(&journal.Keys{Unique: "k", Seconds: 1000}) + keyspaceFootprint(name)
	}
	if got := s.engine.memory.Used(); got != want {
		t.Errorf("%d tubes with a tombstone each are counted for %d bytes, want %d", n, got, want)
	}
	s.now += 2000 * clock.Second
	slow(t, s).rounds()
	if got := s.engine.memory.Used(); got != 0 {
		t.Errorf("without tombstones, %d bytes are counted", got)
	}
	for _, sh := range s.engine.shards {
		if sh.keyspaces.Buckets() > 0 {
			t.Error("a table of tubes is left")
		}
	}
	s.noErrors(t)
}
