package load

import (
	"testing"
	"time"

	"trellis/bench"

	"golang.org/x/sys/unix"
)

func TestAConnectionThatFindsNoRoomIsMadeLater(t *testing.T) {
	addr, err := bench.ParseAddress("unix:" + t.TempDir() + "/s")
	if err != nil {
		t.Fatal(err)
	}
	sa, family := sockaddr(&addr)
	listener, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(listener)
	if err := unix.Bind(listener, sa); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(listener, 0); err != nil {
		t.Fatal(err)
	}
	cfg := bench.Config{Scenario: "churn", Depth: 1, ReplyTimeout: time.Minute}
	s := &shared{cfg: &cfg, addr: &addr, drv: churnDriver{}, bodies: newBodies(bench.FixedSize(10), 1), counters: make([]counters, 1), spread: 1, tubes: []string{"x"}, base: time.Now()}
	w := newWorker(s, 0)
	w.conns = make([]conn, 10)
	if err := w.prepare(); err != nil {
		t.Fatal(err)
	}
	defer w.closeAll()
	for i := range w.conns {
		w.reconnect(&w.conns[i], 0)
	}
	if len(w.refused) == 0 {
		t.Fatal("there was room for all")
	}
	for waiting := len(w.refused); waiting > 0; waiting-- {
		if len(w.refused) != waiting || w.conns[9].state != stateClosed {
			t.Fatalf("%d connections wait, want %d", len(w.refused), waiting)
		}
		fd, _, err := unix.Accept(listener)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		w.reopen()
	}
	if c := &w.conns[9]; c.state != stateSetup || w.broken.Load() || s.report() != nil {
		t.Errorf("state %d, violations %v", c.state, s.report())
	}
}
