package cluster

import (
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine"
)

// A member that gives its port up because nobody leads may be elected at that moment: it has the port then.
func TestALeaderHasThePortThatItWasAboutToGiveUp(t *testing.T) {
	var opened atomic.Int32
	q := NewQueue(QueueConfig{Log: slog.New(slog.DiscardHandler), Listen: func() (plain, tls []net.Listener, err error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		opened.Add(1)
		return []net.Listener{l}, nil, err
	}})
	q.newGateway = new(Member).newGateway
	c, err := q.newClients(nil, func() engine.Time { return 0 }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.reset()
	c.leads.Store(true)
	c.open()
	for end := time.Now().Add(time.Minute); opened.Load() < 2; time.Sleep(time.Millisecond) {
		c.server.Unserve()
		if time.Now().After(end) {
			t.Fatal("a leader does not open its port again")
		}
	}
}

// A node that ends has no engine to make room for, and little time.
func TestANodeThatEndsMakesNoRoomForAnotherEngine(t *testing.T) {
	r := newRig(t, 1)
	r.leader(-1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := r.stop(0); err != nil {
		t.Error(err)
	}
	if runtime.ReadMemStats(&after); after.NumForcedGC != before.NumForcedGC {
		t.Error("garbage is collected before the node ends")
	}
}

// What an engine has recorded is due by the time of the next leadership, which goes on from that of this one.
func TestALeadersEngineHasTheTimeOfTheLeadership(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := &rig{t: t, net: newNetwork(true), newest: make([]uint32, 1), trunks: map[int]uint16{}}
	r.mono = func() time.Duration { // as where much else runs
		time.Sleep(10 * time.Millisecond)
		return time.Since(began)
	}
	r.startAll()
	r.eventually("a member leads", func() bool {
		q := r.queues[0]
		q.mu.Lock()
		s, start := q.service, q.start
		q.mu.Unlock()
		if s == nil {
			return false
		}
		from := s.leadership.Now() - start
		at := s.now()
		to := s.leadership.Now() - start
		if at < engine.Time(from) || at > engine.Time(to) {
			t.Errorf("it is %v for the engine, and %v to %v for the leadership", time.Duration(at), time.Duration(from), time.Duration(to))
		}
		return true
	})
}
