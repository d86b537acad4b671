package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs/faultfs"
)

// Members may share their storage. When it stalls, nobody could do better than the one that leads.
func TestALeaderStaysWhileMostDisksStall(t *testing.T) {
	t.Parallel()
	for _, stalled := range []int{2, 3} {
		c := newCluster(t, 3, 1).startAll()
		l := c.leader()
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		before := l.running().Status()
		disks := append([]*peer{l}, c.others(l)...)[:stalled]
		if stalled == 2 {
			disks = c.others(l)
		}
		gate := make(chan struct{})
		for _, p := range disks {
			p.fs.Hook(func(call faultfs.Call) faultfs.Fault {
				if call.Op == "sync" {
					p.stuck.Store(true)
					return faultfs.Fault{Until: gate}
				}
				return faultfs.Fault{}
			})
		}
		acked := make(chan error, 1)
		go func() {
			_, err := l.queue.put(nil)
			acked <- err
		}()
		c.wait(4 * commitTimeoutTicks)
		for _, p := range disks {
			p.fs.Hook(nil)
			p.stuck.Store(false)
		}
		close(gate)
		if err := <-acked; err != nil {
			t.Errorf("%d disks stalled, and a put that waited for them ended with: %v", stalled, err)
		}
		if d := c.settled(); d.Jobs != 2 {
			t.Errorf("%d jobs", d.Jobs)
		}
		after := l.running().Status()
		if !after.Serves || after.Term != before.Term || after.Depositions > 0 {
			t.Errorf("%d disks stalled; before: %+v, after: %+v", stalled, before, after)
		}
	}
}

// What the writer waits for is seen by the others, whatever it writes.
func TestAMarkIsAStoreToo(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	put(t, l, 1, 10)
	h.run()
	syncs := 0
	h.opts.FS.(*faultfs.FS).Hook(func(call faultfs.Call) faultfs.Fault {
		if call.Op == "sync" {
			syncs++
			if number, _ := h.writer.storing(); number == 0 {
				t.Errorf("sync %d is of no store", syncs)
			}
		}
		return faultfs.Fault{}
	})
	if err := h.writer.rest(); err != nil {
		t.Fatal(err)
	}
	if syncs == 0 {
		t.Error("nothing was marked")
	}
}

// The reason for which a node has stepped down may be gone, and nobody else may be able to lead:
// what the others have of the log may be shorter.
func TestANodeThatHasSteppedDownOftenDoesNotWaitForLong(t *testing.T) {
	h := newHand(t, 1)
	for range 10 {
		h.lead()
		h.consensus.stepDown("a test")
		h.run()
		for range 8 * 20 {
			h.consensus.onTick()
			h.run()
		}
		if h.consensus.quiet() {
			t.Fatalf("it does not campaign for %d ticks more", h.consensus.backoff.until-h.consensus.tick)
		}
	}
}

// An entry may be on its way for longer than nothing may be committed.
func TestALeaderStaysWhileALargeEntryArrivesOverASlowLink(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3)
	c.rate = 1 << 20
	c.startAll()
	l := c.leader()
	before := l.running().Status()
	if _, err := l.queue.put(make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if after := l.running().Status(); after.Term != before.Term || after.Depositions > 0 {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	c.settled()
}

func TestWhatExcusesALeader(t *testing.T) {
	h := newHand(t, 3)
	c := h.consensus
	c.tick = 1000
	for _, x := range []struct {
		what    string
		arrived uint64 // at member 2
		stalled uint64 // ticks, of the leader's own disk
		excused bool
	}{
		{"messages without entries", arrivalBytes - 1, 0, false},
		{"enough", arrivalBytes, 0, true},
		{"too little since then", 2*arrivalBytes - 1, 0, false},
		{"enough again, in small parts", 2 * arrivalBytes, 0, true},
		{"the leader's own disk stalls", 4 * arrivalBytes, stallTicks, false},
		{"the member counts anew", arrivalBytes / 2, 0, false},
		{"little after that", arrivalBytes, 0, false},
		{"enough after that", 3 * arrivalBytes / 2, 0, true},
	} {
		c.excusedTick = 0
		c.storeNumber, c.storeSeen = 1, c.tick-x.stalled
		m := message(raftpb.MsgHeartbeatResp, 1, 2)
		(&report{arrived: x.arrived}).put(m)
		c.stepPeer(m)
		if (c.excusedTick == c.tick) != x.excused {
			t.Errorf("%s: %v", x.what, c.excusedTick)
		}
	}
	c.storeNumber = 0
}
