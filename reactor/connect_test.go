package reactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/reactor/internal/accept"
)

// connect connects from inside the process.
func (ts *testServer) connect() *client {
	ts.t.Helper()
	nc, err := ts.Connect(ts.t.Context())
	if err != nil {
		ts.t.Fatal(err)
	}
	return newClient(ts.t, nc)
}

func TestAConnectionFromInsideTheProcessIsServedAsAnyOther(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 3, hooks{})
		outside, inside := ts.dial(), ts.connect()
		body := strings.Repeat("b", 300_000)
		outside.send("watch large\r\nreserve\r\n")
		outside.expect("WATCHING 2\r\n")
		inside.do("use large\r\n", "USING large\r\n")
		id := inside.put(body)
		outside.expect(reserved(id, body))
		outside.do(fmt.Sprintf("release %d 0 0\r\n", id), "RELEASED\r\n")
		inside.do("watch large\r\n"+strings.Repeat("list-tube-used\r\n", 1000)+"reserve\r\n",
			"WATCHING 2\r\n"+strings.Repeat("USING large\r\n", 1000)+reserved(id, body))
		inside.do("quit\r\n", "")
		inside.expectEOF()
		outside.do("reserve\r\n", reserved(id, body))
	})
}

func TestConnectionsFromInsideTheProcessAreSpreadOverTheLoops(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 4, hooks{})
	for range 8 {
		ts.connect().do("list-tube-used\r\n", "USING default\r\n")
	}
	for i, l := range ts.Stats().Loops {
		if l.Connections != 2 {
			t.Errorf("loop %d has %d connections, want 2", i, l.Connections)
		}
	}
}

func TestManyConnectFromInsideTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				nc, err := ts.Connect(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				c := newClient(t, nc)
				c.do("list-tube-used\r\n", "USING default\r\n")
				c.Close()
			}
		})
	}
	wg.Wait()
	ts.until("all connections are gone", func() bool { return ts.sum().Connections == 0 })
}

func TestAConnectionFromInsideTheProcessTakesNoPlace(t *testing.T) {
	t.Parallel()
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.MaxConnections = 1 })
	inside := ts.connect()
	outside := ts.dial()
	outside.do("list-tube-used\r\n", "USING default\r\n")
	ts.connect().do("list-tube-used\r\n", "USING default\r\n")
	inside.Close()
	ts.until("it is gone", func() bool { return ts.sum().Connections == 2 })
	refused := ts.dial()
	refused.expect("OUT_OF_MEMORY\r\n")
	refused.expectEOF()
	if l := ts.Stats().Listeners; len(l) != 1 || l[0].Connections != 1 {
		t.Errorf("listeners: %+v, want one with one connection", l)
	}
}

func TestAccessControlIsNotAskedOfAConnectionFromInsideTheProcess(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	ts := guarded(t, "tcp", hooks{}, d)
	c := ts.connect()
	c.do("use auth/of-another\r\npause-tube default 0\r\n", "USING auth/of-another\r\nPAUSED\r\n")
	if asked := d.asked(); len(asked) > 0 {
		t.Errorf("access control was asked of %v", asked)
	}
}

func TestAConnectionFromInsideTheProcessNeedsNoPlainListener(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tls1.3", 1, hooks{})
	ts.connect().do("list-tube-used\r\n", "USING default\r\n")
	ts.dial().do("list-tube-used\r\n", "USING default\r\n")
}

func TestAConnectionFromInsideTheProcessMayBeIdle(t *testing.T) {
	t.Parallel()
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.IdleTimeout = 10 * time.Millisecond })
	inside := ts.connect()
	for range 3 {
		ts.dial().expectEOF()
	}
	inside.do("list-tube-used\r\n", "USING default\r\n")
}

func TestThePeerOfAConnectionFromInsideTheProcessHasAName(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	ts.connect().do("list-tube-used\r\n", "USING default\r\n")
	var peers []Peer
	ts.onLoops(func(l *loop) {
		c := &conn{loop: l, listener: accept.Own}
		peers = append(peers, c.peer())
	})
	if len(peers) != 1 || peers[0] != (Peer{Addr: "console", UID: -1}) {
		t.Errorf("got %+v", peers)
	}
}

func TestShutdownEndsConnectionsFromInsideTheProcess(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	c := ts.connect()
	c.do("list-tube-used\r\n", "USING default\r\n")
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expectEOF()
	if nc, err := ts.Connect(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, %v, want %v", nc, err, ErrClosed)
	}
}

func TestConnectingWhileTheServerIsShutDownFailsOrIsEnded(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				nc, err := ts.Connect(t.Context())
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				newClient(t, nc)
			}
		})
	}
	ts.until("somebody has connected", func() bool { return ts.sum().Connections > 0 })
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestConnectGivesUpWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	reached, release := make(chan struct{}), make(chan struct{})
	ts := serve(t, "tcp", 1, hooks{})
	ts.loops[0].call(func(*loop) {
		close(reached)
		<-release
	})
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		nc, err := ts.Connect(ctx)
		if err == nil {
			nc.Close()
		}
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	ts.until("its connection is gone", func() bool {
		st := ts.Stats()
		return st.Loops[0].Connections == 0 && st.Loops[0].Opened == 1
	})
}
