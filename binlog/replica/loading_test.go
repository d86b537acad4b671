package replica

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// loadsSlowly has reads of a machine's snapshots wait until they are let go.
func (p *peer) loadsSlowly(t *testing.T) (letGo func()) {
	gate := make(chan struct{})
	letGo = sync.OnceFunc(func() {
		close(gate)
		p.fs.Hook(nil)
		p.loads.Store(false)
	})
	t.Cleanup(letGo)
	p.loads.Store(true)
	p.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "read" && strings.Contains(c.Name, snapshotsDir) && strings.Contains(c.Name, record.FilePrefix) {
			return faultfs.Fault{Until: gate}
		}
		return faultfs.Fault{}
	})
	return letGo
}

// A member that was started anew has the whole log in no time, and needs long to load its jobs.
func TestNothingIsHandedOverToAMemberThatLoads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll()
	l := c.leader()
	others := c.others(l)
	for _, p := range c.nodes {
		c.untilSnapshot(p)
	}
	c.settled()
	if now := c.leader(); now != l {
		t.Fatal("another member leads")
	}
	var holds, told atomic.Int32
	l.queue.mu.Lock()
	l.queue.onHold = func(bool) { holds.Add(1) }
	l.queue.mu.Unlock()
	c.net.set(func() {
		c.net.filter = func(m *raftpb.Message) bool {
			if m.GetType() == raftpb.MsgTimeoutNow {
				told.Add(1)
			}
			return true
		}
	})
	var letGo []func()
	for _, p := range others {
		p.kill()
		letGo = append(letGo, p.loadsSlowly(t))
		if err := c.start(p); err != nil {
			t.Fatal(err)
		}
	}
	n := l.running()
	c.eventually("both have the log, and load", func() bool {
		s := n.Status()
		for _, m := range s.Members {
			if m.ID != l.id && (!m.Alive || m.Match < s.Last || m.ToLoad == 0 || m.ToLoad > 100) {
				return false
			}
		}
		return true
	})
	for _, p := range others {
		if s := p.running().Status(); s.ToLoad == 0 || s.ToLoad > 100 {
			t.Errorf("%s says that %d %% are left", p.name, s.ToLoad)
		}
	}
	for _, to := range []*peer{others[0], {}} {
		if err := n.Transfer(within(t), to.id); !errors.Is(err, errLoading) {
			t.Errorf("handed over to %q: %v", to.name, err)
		}
	}
	if holds.Load() > 0 || told.Load() > 0 {
		t.Errorf("clients were held %d times, and members told %d times", holds.Load(), told.Load())
	}
	if _, err := l.queue.put(nil); err != nil {
		t.Error(err)
	}
	letGo[1]()
	c.eventually("one has loaded", func() bool {
		for _, m := range n.Status().Members {
			if m.ID == others[1].id {
				return m.ToLoad == 0
			}
		}
		return false
	})
	if err := n.Transfer(within(t), 0); err != nil {
		t.Error(err)
	}
	c.leader(others[1])
	letGo[0]()
	c.settled()
}

func TestLoadingGoesOn(t *testing.T) {
	var l loading
	l.begin(0)
	if got := l.left(); got < 1 || got > 100 {
		t.Errorf("%d %% of nothing are left", got)
	}
	l.begin(1000)
	for _, want := range []uint64{100, 75, 50, 25, 1, 1} {
		if got := l.left(); got != want {
			t.Errorf("%d %% are left, not %d", got, want)
		}
		l.readBytes.Add(250)
	}
}
