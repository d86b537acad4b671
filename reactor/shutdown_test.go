package reactor

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shutDown begins a Shutdown and returns its result's channel.
func (ts *testServer) shutDown(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	ts.serving.Go(func() { done <- ts.Shutdown(ctx) })
	return done
}

func TestShutdownSendsWhatIsPending(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		for _, halfClose := range []bool{false, true} {
			ts := serve(t, network, 2, hooks{})
			c := ts.dial()
			const n = 1800 // whose commands are one record: what was not read by then may be dropped
			send, reply := floodReplies(c, n)
			c.send(send)
			ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
			if halfClose {
				c.closeWrite()
				ts.until("its end was noticed", func() bool { return ts.sum().Ending == 1 })
			}
			done := ts.shutDown(t.Context())
			c.expectMany(n, reply)
			c.expectEOF()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestShutdownGivesUpOnClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		for _, halfClose := range []bool{false, true} {
			ts := serve(t, network, 2, hooks{})
			c := ts.dial()
			send, _ := floodReplies(c, 3000)
			c.send(send)
			ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
			if halfClose && network != "trunk" {
				c.closeWrite()
				ts.until("its end was noticed", func() bool { return ts.sum().Ending == 1 })
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := ts.shutDown(ctx)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			if n := ts.sum().Connections; n != 0 {
				t.Errorf("%d connections are left", n)
			}
		}
	})
}

func TestShutdownAnswersWhatWasSent(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		var cs []*client
		for range 20 {
			c := ts.dial()
			c.do("use a\r\n", "USING a\r\n")
			cs = append(cs, c)
		}
		for _, c := range cs {
			c.send("use b\r\nuse c\r\n")
		}
		if network == "trunk" { // before, it is not the server that it was sent to
			ts.untilRead(uint64(20 * len("use a\r\nuse b\r\nuse c\r\n")))
		}
		if err := <-ts.shutDown(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range cs {
			c.expect("USING b\r\nUSING c\r\n")
			c.expectEOF()
		}
	})
}

// What clients hold when the server stops has not failed; what those held that left before has.
func TestShutdownCountsNoAttempt(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serveConfig(t, network, hooks{}, nil, func(c *Config) { c.Extensions, c.Loops = true, 2 })
		a, b := ts.dial(), ts.dial()
		a.do("set-tube default disconnects=1 attempts=1\r\n", "TUBE_SET\r\n")
		a.do("put 0 0 100 1\r\na\r\nput 0 0 100 1\r\nb\r\nreserve-job 1\r\n", "INSERTED 1\r\nINSERTED 2\r\nRESERVED 1 1\r\na\r\n")
		b.do("reserve-job 2\r\n", "RESERVED 2 1\r\nb\r\n")
		_ = b.Close()
		ts.until("the job is buried", func() bool { return ts.engine.Snapshot(0).Buried == 1 })
		if err := <-ts.shutDown(t.Context()); err != nil {
			t.Error(err)
		}
		if n := ts.engine.Snapshot(0); n.Ready != 1 || n.Buried != 1 {
			t.Errorf("%d jobs are ready, %d reserved, %d buried", n.Ready, n.Reserved, n.Buried)
		}
	})
}

func TestShutdownDoesNotWaitForWaitingClients(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		a, b := ts.dial(), ts.dial()
		a.send("reserve\r\nuse a\r\n")
		b.send("reserve-with-timeout 1000\r\n")
		ts.untilWaiting(2)
		if err := <-ts.shutDown(t.Context()); err != nil {
			t.Error(err)
		}
		a.expectEOF()
		b.expectEOF()
	})
}

func TestShutdownEndsServe(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	if err := <-ts.shutDown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ts.shutDown(t.Context()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if c, err := net.Dial(ts.addr.Network(), ts.addr.String()); err == nil {
		c.Close()
		t.Error("the listener is still open")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ts.Serve(l); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Shutdown: got %v, want ErrClosed", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener was not closed")
	}
}

// Bells and timers may ring at any time while the loops end.
func TestShutdownWhileJobsAreHandedOver(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		for range some(20) {
			ts := serve(t, network, 4, hooks{})
			for range 8 {
				w := ts.dial()
				w.send("use a\r\nwatch a\r\nreserve-with-timeout 1\r\nput 0 0 60 1\r\nx\r\nreserve-with-timeout 1\r\nput 0 0 60 1\r\nx\r\n")
			}
			p := ts.dial()
			p.send("use a\r\nput 0 0 60 1\r\nx\r\n")
			if err := <-ts.shutDown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Producers that do not pause, and a journal that always has something to commit.
func TestShutdownAnswersEveryCommandThatIsOnRecord(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		ts := serveJournaled(t, network, 2, hooks{}, j)
		end := make(chan struct{})
		var commits, producers sync.WaitGroup
		commits.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(100 * time.Microsecond):
					j.commit(ts, j.recorded.Load())
				}
			}
		})
		const put, inserted = "put 0 0 9 1\r\nx\r\n", "INSERTED "
		var answered atomic.Uint64
		for range 20 {
			c := ts.dial()
			producers.Go(func() {
				for {
					if _, err := io.WriteString(c, put); err != nil {
						return
					}
					s, err := c.r.ReadString('\n')
					if err != nil {
						return
					}
					if !strings.HasPrefix(s, inserted) {
						t.Errorf("got %q", s)
					}
					answered.Add(1)
				}
			})
		}
		ts.until("they are at work", func() bool { return answered.Load() > 1000 })
		if err := <-ts.shutDown(t.Context()); err != nil {
			t.Error(err)
		}
		producers.Wait()
		close(end)
		commits.Wait()
		if got, want := answered.Load(), j.recorded.Load(); got != want {
			t.Errorf("%d puts were answered, %d are on record", got, want)
		}
	})
}
