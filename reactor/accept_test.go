package reactor

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many connect at once, to several listeners. All are served, and the loops have
// equally many of them.
func TestConnectionsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 3, hooks{})
	addrs := []net.Addr{ts.addr, ts.listen("unix"), ts.listen("tcp")}
	const n = 120
	var wg sync.WaitGroup
	for i := range n {
		c := dial(t, addrs[i%len(addrs)])
		wg.Go(func() { c.do("use a\r\n", "USING a\r\n") })
	}
	wg.Wait()
	st := ts.Stats()
	if st.Accepted != n || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
	// Acceptors on several loops may choose the same loop at the same time.
	for i, l := range st.Loops {
		if l.Connections < n/3-2 || l.Connections > n/3+2 {
			t.Errorf("loop %d has %d connections", i, l.Connections)
		}
	}
}

func TestShutdownWhileManyConnect(t *testing.T) {
	t.Parallel()
	for range some(20) {
		ts := serve(t, "tcp", 2, hooks{})
		addrs := []net.Addr{ts.addr, ts.listen("unix")}
		var wg sync.WaitGroup
		var ended atomic.Bool
		for i := range 8 {
			wg.Go(func() {
				for !ended.Load() {
					if c, err := net.Dial(addrs[i%2].Network(), addrs[i%2].String()); err == nil {
						_, _ = c.Write([]byte("use a\r\n"))
						c.Close()
					}
				}
			})
		}
		ts.until("some were accepted", func() bool { return ts.Stats().Accepted > 50 })
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		if err := ts.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		ended.Store(true)
		wg.Wait()
		if st, opened := ts.Stats(), ts.sum().Opened; st.Accepted != opened {
			t.Errorf("%d were accepted and %d opened", st.Accepted, opened)
		}
		for _, addr := range addrs {
			if c, err := net.DialTimeout(addr.Network(), addr.String(), time.Second); err == nil {
				c.Close()
				t.Errorf("%s is still open", addr)
			}
		}
	}
}

// Another process, such as systemd, may have a listener too. When the server stops
// accepting it must stop looking at it.
func TestAListenerThatOthersHaveIsLeftToThem(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ts.serving.Go(func() { _ = ts.Serve(l) })
	dial(t, l.Addr()).do("use a\r\n", "USING a\r\n")
	if err := <-ts.shutDown(t.Context()); err != nil {
		t.Error(err)
	}
	c := dial(t, l.Addr())
	again, err := net.FileListener(theirs)
	if err != nil {
		t.Fatal(err)
	}
	next := serve(t, "tcp", 1, hooks{})
	next.serving.Go(func() { _ = next.Serve(again) })
	c.do("use b\r\n", "USING b\r\n")
}

func TestConnectionsThatAreGoneBeforeTheyAreAcceptedDoNoHarm(t *testing.T) {
	t.Parallel()
	h, blocked, release := blocker()
	ts := serve(t, "tcp", 1, h)
	first := ts.dial()
	first.send("use block\r\n")
	<-blocked
	for range 20 {
		ts.dial().reset()
	}
	for range 20 {
		ts.dial().Close()
	}
	last := ts.dial()
	close(release)
	first.expect("USING block\r\n")
	last.do("use a\r\n", "USING a\r\n")
	ts.until("the others are gone", func() bool { return ts.sum().Connections == 2 })
	if st := ts.Stats(); st.Refused != 0 || st.AcceptPauses != 0 {
		t.Errorf("%+v", st)
	}
}

func TestServeRefusesWhatItCannotAcceptOn(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ts.Serve(struct{ net.Listener }{l}); err == nil {
		t.Error("a listener without a descriptor was taken")
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("it is still open")
	}
}

func TestAServerThatAcceptsNoMoreKeepsItsClients(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	ts.serving.Go(func() { ended <- ts.Serve(l) })
	c := dial(t, l.Addr())
	c.do("use a\r\n", "USING a\r\n")
	ts.Unserve()
	ts.Unserve()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.do("use b\r\n", "USING b\r\n")
	known := len(ts.Stats().Listeners)
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Skip(err) // likewise
	}
	ts.serving.Go(func() { ended <- ts.Serve(l) })
	dial(t, l.Addr()).do("use c\r\n", "USING c\r\n")
	if n := len(ts.Stats().Listeners); n != known {
		t.Errorf("%d listeners, and there were %d: one has come back", n, known)
	}
	ts.Unserve()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
