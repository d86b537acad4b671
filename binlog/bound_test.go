package binlog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// client is an owner whose commands wait for their commit, some at a time, as
// those of connections do.
type client struct {
	t *testing.T
	*owner
	fs     *faultfs.FS
	nextID uint64
	since  int
	seg    int64
	worst  int64 // how far the directory was above its bound
	rng    *rand.Rand

	committed chan struct{}
}

func newClient(t *testing.T, opts Options) *client { return newClientOf(t, opts, (*owner).open) }

func newClientOf(t *testing.T, opts Options, open func(*owner, string, Options) error) *client {
	c := &client{t: t, owner: newOwner(), fs: faultfs.New(testDir), rng: rand.New(rand.NewPCG(1, 2)), seg: opts.SegmentSize, committed: make(chan struct{}, 1)}
	opts.FS = c.fs
	c.hooks.OnCommit = func(Pos) { wake(c.committed) }
	if err := open(c.owner, testDir, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.log.Close() })
	return c
}

func (c *client) done(pos Pos, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	if c.since++; c.since%32 != 0 {
		return
	}
	if c.work != nil {
		c.work()
	}
	c.log.Flush()
	for runtime.Gosched(); c.log.Committed() < pos; {
		<-c.committed
	}
	c.worst = max(c.worst, c.excess())
}

// excess is how far the directory is above its bound.
func (c *client) excess() int64 {
	live := c.log.Stats().LiveBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log.index != nil {
		live += 48 * int64(len(c.jobs))
	}
	return c.fs.Used() - 2*(live+c.tombstones) - 2*c.seg
}

func (c *client) newJob(body int) uint64 {
	c.nextID++
	c.done(c.put(testRecord(c.nextID, body)))
	return c.nextID
}

func (c *client) change(id uint64, s State) {
	r := c.jobs[id].Record
	r.State, r.Due, r.BuryOrder = s, 0, 0
	switch s {
	case Delayed:
		r.Due = 5
	case Buried:
		c.nextID++
		r.BuryOrder = c.nextID
	}
	c.done(c.update(&r))
}

func (c *client) end(id uint64) { c.done(c.delete(id)) }

func TestTheDirectoryStaysBelowTwiceTheLiveBytesAndTwoSegments(t *testing.T) {
	steps := 2000
	if proof {
		steps = 10_000
	}
	workloads := map[string]func(*client){
		"an old job is kept while others pass": func(c *client) {
			c.newJob(1000)
			for range steps {
				c.end(c.newJob(100))
			}
		},
		"a job is released with delay for ever": func(c *client) {
			id := c.newJob(100)
			for range 2 * steps {
				c.change(id, Delayed)
			}
		},
		"buries and kicks in a loop": func(c *client) {
			for range 50 {
				c.newJob(10)
			}
			for i := range 2 * steps {
				c.change(uint64(i%50+1), []State{Buried, Ready}[i/50%2])
			}
		},
		"a long queue, first in first out": func(c *client) {
			for range 3000 {
				c.newJob(100)
			}
			for i := range steps {
				c.newJob(100)
				c.end(uint64(i + 1))
			}
		},
		"jobs of a long queue end in any order": func(c *client) {
			ids := []uint64{}
			for range 3000 {
				ids = append(ids, c.newJob(100))
			}
			for range steps {
				i := c.rng.IntN(len(ids))
				c.end(ids[i])
				ids[i] = c.newJob(c.rng.IntN(200))
			}
		},
		"a long queue is emptied in any order": func(c *client) {
			for range 8000 {
				c.newJob(100)
			}
			ids := slices.Collect(maps.Keys(c.jobs))
			for _, id := range ids {
				c.end(id)
			}
		},
		"all jobs of a long queue are released again and again": func(c *client) {
			for range 2000 {
				c.newJob(0)
			}
			for i := range steps {
				c.change(uint64(i%2000+1), Delayed)
			}
		},
		"small jobs that may leave tombstones": func(c *client) {
			for i := range steps / 4 {
				c.nextID++
				r := testRecord(c.nextID, 0)
				r.Keys = journal.Keys{Unique: fmt.Sprint("key", c.nextID), Seconds: 1}
				c.done(c.put(r))
				if i%4 == 3 {
					c.end(c.nextID - uint64(c.rng.IntN(4)))
				}
			}
		},
		"bodies of every size": func(c *client) {
			ids := []uint64{}
			for range steps / 4 {
				size := c.rng.IntN(1 << c.rng.IntN(15))
				ids = append(ids, c.newJob(size))
				if len(ids) > 100 {
					i := c.rng.IntN(len(ids))
					c.end(ids[i])
					ids[i] = ids[len(ids)-1]
					ids = ids[:len(ids)-1]
				}
			}
		},
	}
	for name, work := range workloads {
		for level, policy := range levels {
			if level != "interval" && !proof { // when what was written is synced changes little
				continue
			}
			for _, indexes := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, indexes %v", name, level, indexes), func(t *testing.T) {
					t.Parallel()
					opts := Options{Sync: policy, SegmentSize: 64 << 10, Indexes: indexes}
					testBound(newClientOf(t, opts, (*owner).openStill), work)
				})
			}
		}
		// With goroutines, how far the directory is ahead of compaction for a moment
		// depends on who gets his turn.
		t.Run(name+", as a server", func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Options{Sync: SyncEvery(time.Millisecond), SegmentSize: 64 << 10})
			work(c)
			c.log.Flush()
			eventually(t, "compaction", func() bool { return c.excess() <= 0 })
			if s := c.log.Stats(); s.Migrated > 2*s.Written {
				t.Errorf("%d jobs were moved for %d records", s.Migrated, s.Written)
			}
		})
	}
}

// testBound does work on a log without goroutines, whose directory must never be too large for it.
func testBound(c *client, work func(*client)) {
	c.t.Helper()
	work(c)
	s := c.log.Stats()
	c.t.Logf("worst %d, %d moved of %d written, segments %d", c.worst, s.Migrated, s.Written, s.SegmentsRemoved)
	if c.worst > 0 {
		c.t.Errorf("the directory was %d bytes too large", c.worst)
	}
	if s.Migrated > 2*s.Written {
		c.t.Errorf("%d jobs were moved for %d records", s.Migrated, s.Written)
	}
	if disk := c.fs.Used(); s.DiskBytes != disk {
		c.t.Errorf("files of %d bytes are said to have %d", disk, s.DiskBytes)
	}
}
