package binlog

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"trellis/binlog/vfs/faultfs"
)

// The longer a run leaves unsynced what it has acknowledged, the more ids a power
// cut may take the traces of.
func TestNoIDIsUsedAgainThatAPowerCutMayHaveTaken(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{50 * time.Millisecond, time.Minute, time.Hour} {
		c := newClient(t, Options{Sync: SyncEvery(interval)})
		c.fs.Hook(func(call faultfs.Call) faultfs.Fault { // however long the test takes
			if call.Op == "sync" {
				return faultfs.Fault{Err: errors.New("not before the power cut")}
			}
			return faultfs.Fault{}
		})
		last := uint64(max(interval.Seconds(), 1) * 1e6)
		c.done(c.put(testRecord(last, 10)))
		c.log.Flush()
		lost := 0
		for seed := range uint64(20) {
			o := newOwner()
			if err := o.open(testDir, Options{FS: c.fs.PowerCut(rand.New(rand.NewPCG(seed, 1)))}); err != nil {
				t.Fatal(err)
			}
			if o.jobs[last] == nil {
				lost++
			}
			if o.log.NextID() <= last {
				t.Fatalf("%v: the next id is %d, after %d was used", interval, o.log.NextID(), last)
			}
			o.log.Close()
		}
		if lost == 0 {
			t.Errorf("%v: no power cut has taken the job", interval)
		}
	}
}

func TestAStartThatFailsDoesNotCountAsACleanEnd(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Sync: SyncEvery(time.Second)})
	c.end(c.newJob(10))
	c.log.Flush()
	fs := c.fs.PowerCut(rand.New(rand.NewPCG(1, 1)))
	boom := errors.New("boom")
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "syncdir" {
			return faultfs.Fault{Err: boom}
		}
		return faultfs.Fault{}
	})
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if err := o.open(testDir, Options{FS: fs.Killed()}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if r := o.log.Recovery(); r.Clean || r.NextID < 1<<20 {
		t.Errorf("%+v", r)
	}
}

// Nobody knows which ids the records had that are damaged.
func TestASalvageLeavesIDsOut(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	o, _, err := openFiles(t, m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	last := o.log.NextID()
	o.log.Close()
	name := m.segments()[1]
	m[name][len(m[name])/2] ^= 1
	o, _, err = openFiles(t, m, Options{SkipDamaged: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if got := o.log.NextID(); got < last+1<<20 {
		t.Errorf("the next id is %d after a salvage, was %d before", got, last)
	}
}
