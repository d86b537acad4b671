package reactor

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/stream"
)

func TestHalfClosedClientIsAnsweredAndThenClosed(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		for input, want := range map[string]string{
			"":                                  "",
			"use a\r\n":                         "USING a\r\n",
			"reserve\r\n":                       "TIMED_OUT\r\n",
			"reserve\r\nuse b\r\nreserve\r\n":   "TIMED_OUT\r\nUSING b\r\nTIMED_OUT\r\n",
			"use a\r\ndele":                     "USING a\r\n",
			"use a\r\nput 0 0 1 10\r\nhalf":     "USING a\r\n",
			"reserve-with-timeout 100\r\nuse c": "TIMED_OUT\r\n",
			"quit\r\nuse a\r\n":                 "",
		} {
			c := ts.dial()
			c.send(input)
			c.closeWrite()
			c.expect(want)
			c.expectEOF()
		}
		c := ts.dial()
		c.send("reserve\r\nuse a\r\nreserve\r\n")
		ts.untilWaiting(1)
		c.closeWrite()
		c.expect("TIMED_OUT\r\nUSING a\r\nTIMED_OUT\r\n")
		c.expectEOF()
	})
}

func TestHalfClosedClientGetsAReadyJobWhichThenReturns(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		p := ts.dial()
		p.put("x")
		c := ts.dial()
		c.send("reserve\r\n")
		c.closeWrite()
		c.expect(reserved(1, "x"))
		c.expectEOF()
		p.do("reserve\r\n", reserved(1, "x"))
	})
}

// So much was sent behind a reserve that the reactor has stopped reading: the
// end of it must be noticed all the same.
func TestHalfCloseBehindMoreInputThanIsKept(t *testing.T) {
	t.Parallel()
	for _, networks := range []func(*testing.T, func(*testing.T, string)){directNetworks, gatewayNetwork} {
		networks(t, testHalfCloseBehindMoreInputThanIsKept)
	}
}

func testHalfCloseBehindMoreInputThanIsKept(t *testing.T, network string) {
	ts := serve(t, network, 1, hooks{})
	c := ts.dial()
	const n = 18_000
	go func() {
		c.send("reserve\r\n" + strings.Repeat("use a\r\n", n))
		c.closeWrite()
	}()
	c.expect("TIMED_OUT\r\n" + strings.Repeat("USING a\r\n", n))
	c.expectEOF()
	if in, _ := ts.peaks(); in > stream.KeepInput+2*stream.ReadSize {
		t.Errorf("%d bytes of input were kept", in)
	}
}

// dialOn returns a client on a given loop.
func (ts *testServer) dialOn(loop int) *client {
	ts.t.Helper()
	// A client that was not told anything yet may still be on its way to a loop.
	ts.until("all who have come are there", func() bool { return ts.sum().Opened >= ts.dialed.Load() })
	for range 100 {
		before := ts.Stats().Loops[loop].Opened
		c := ts.dial()
		c.do("list-tube-used\r\n", "USING default\r\n")
		if ts.Stats().Loops[loop].Opened > before {
			return c
		}
	}
	ts.t.Fatalf("no connection gets to loop %d", loop)
	return nil
}

// blocker makes hooks whose loop stands still in the command "use block" until
// released.
func blocker() (h hooks, blocked, release chan struct{}) {
	blocked, release = make(chan struct{}), make(chan struct{})
	h.command = func(_ *conn, cmd *codec.Command) {
		if cmd.Op == codec.OpUse && string(cmd.Tube) == "block" {
			close(blocked)
			<-release
		}
	}
	return h, blocked, release
}

// The end of a waiting client's input and the job for it arrive at its loop
// together. gnet reports the end first.
func TestHalfCloseWhileAJobIsBeingHandedOver(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		h, blocked, release := blocker()
		ts := serve(t, network, 2, h)
		p, b, w := ts.dialOn(1), ts.dialOn(0), ts.dialOn(0)
		w.send("reserve\r\nuse a\r\n")
		ts.untilWaiting(1)
		b.send("use block\r\n")
		<-blocked
		p.put("x")
		w.closeWrite()
		close(release)
		w.expect(reserved(1, "x") + "USING a\r\n")
		w.expectEOF()
		p.do("reserve\r\n", reserved(1, "x"))
	})
}

func TestClientVanishesWhileAJobIsBeingHandedOver(t *testing.T) {
	t.Parallel()
	tcpNetworks(t, func(t *testing.T, network string) {
		for _, how := range []string{"close", "reset"} {
			t.Run(how, func(t *testing.T) {
				h, blocked, release := blocker()
				ts := serve(t, network, 2, h)
				p, b, w := ts.dialOn(1), ts.dialOn(0), ts.dialOn(0)
				w.send("reserve\r\n")
				ts.untilWaiting(1)
				b.send("use block\r\n")
				<-blocked
				p.put("x")
				if how == "reset" {
					w.reset()
				} else {
					w.Close()
				}
				p.send("reserve\r\n")
				close(release)
				p.expect(reserved(1, "x"))
			})
		}
	})
}

func TestJobsReturnWhenTheirClientVanishes(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 200_000)
	stages := map[string]func(ts *testServer, c *client){
		"idle":      func(ts *testServer, c *client) {},
		"in a line": func(ts *testServer, c *client) { c.send("dele") },
		"in a body": func(ts *testServer, c *client) { c.send("put 0 0 60 1000\r\nhalf") },
		"in a body that is too big": func(ts *testServer, c *client) {
			c.send(fmt.Sprintf("put 0 0 60 %d\r\nhalf", maxJob+1))
		},
		"waiting": func(ts *testServer, c *client) {
			c.send("reserve\r\n")
			ts.untilWaiting(1)
		},
		"waiting, with commands behind": func(ts *testServer, c *client) {
			c.send("reserve\r\nuse a\r\nput 0 0 60 10\r\nhalf")
			ts.untilWaiting(1)
		},
		"waiting, no longer read": func(ts *testServer, c *client) {
			c.send("reserve\r\n" + strings.Repeat("use a\r\n", 2*stream.KeepInput/7))
			ts.until("it is paused", func() bool { return ts.sum().PendingInput >= stream.KeepInput })
		},
		"in a reply": func(ts *testServer, c *client) {
			go io.WriteString(c, strings.Repeat("peek 1\r\n", 200))
			ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		},
	}
	for stage, prepare := range stages {
		for _, how := range []string{"close", "half-close", "reset", "close unix"} {
			if stage == "in a reply" && how == "half-close" {
				continue // that client has not vanished
			}
			t.Run(stage+"/"+how, func(t *testing.T) {
				network := "tcp"
				if how == "close unix" {
					network = "unix"
				}
				ts := serve(t, network, 2, hooks{})
				c, w := ts.dial(), ts.dial()
				c.put(big)
				c.do("reserve\r\n", reserved(1, big))
				prepare(ts, c)
				w.send("reserve-job 1\r\n")
				w.expect("NOT_FOUND\r\n")
				w.send("reserve\r\n")
				switch how {
				case "half-close":
					c.closeWrite()
				case "reset":
					c.reset()
				default:
					c.Close()
				}
				w.expect(reserved(1, big))
				ts.until("only one connection is left", func() bool { return ts.sum().Connections == 1 })
			})
		}
	}
}

// Whatever the moment at which a waiting client vanishes, the job goes to
// somebody who is there.
func TestNoJobIsLostToClientsThatVanishWhileWaiting(t *testing.T) {
	t.Parallel()
	tcpNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 4, hooks{})
		p, w := ts.dial(), ts.dial()
		for i := range some(300) {
			v := ts.dial()
			v.do("use a\r\n", "USING a\r\n")
			v.send("reserve\r\n")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				if i%2 == 0 {
					v.reset()
				} else {
					v.Close()
				}
			}()
			id := p.put("x")
			w.do(fmt.Sprintf("reserve\r\ndelete %d\r\n", id), reserved(id, "x")+"DELETED\r\n")
			<-gone
		}
	})
}

// floodReplies makes the client a debt of n replies of 10 KB each.
func floodReplies(c *client, n int) (send, reply string) {
	return floodOf(c, n, 10_000)
}

// floodOf is floodReplies with replies of a given size.
func floodOf(c *client, n, size int) (send, reply string) {
	body := strings.Repeat("0123456789", size/10)
	id := c.put(body)
	return strings.Repeat(fmt.Sprintf("peek %d\r\n", id), n), fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(body), body)
}

// expectMany reads n times the same.
func (c *client) expectMany(n int, want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	for i := range n {
		c.allowRead()
		if m, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
			c.t.Fatalf("reply %d of %d: got %.60q (%d bytes, %v), want %.60q", i, n, got, m, err, want)
		}
	}
}

func TestHalfClosedSlowReaderGetsEverything(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c, other := ts.dial(), ts.dial()
		const n = 10_500 // whose commands are more than one read
		send, reply := floodOf(c, n, 2500)
		c.do("reserve\r\n", "RESERVED"+strings.TrimPrefix(reply, "FOUND"))
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			c.send(send)
			c.closeWrite()
		}()
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		if network == "tcp" { // a Unix socket takes fewer commands than there are
			<-sent
			ts.until("its end was noticed", func() bool { return ts.sum().Ending == 1 })
		}
		for range 21 {
			// It does not read before the server can do no more for it.
			ts.until("it is stalled again, or nothing is left", func() bool {
				s := ts.sum()
				return s.Stalled == 1 || s.Connections == 1
			})
			c.expectMany(n/21, reply)
			other.do("use other\r\n", "USING other\r\n")
		}
		c.expectEOF()
		other.send("reserve\r\n")
		other.expect("RESERVED" + strings.TrimPrefix(reply, "FOUND"))
		in, out := ts.peaks()
		if in > stream.KeepInput+2*stream.ReadSize || out > stream.HighWater+2*int64(len(reply)) {
			t.Errorf("%d bytes of input and %d of output were kept", in, out)
		}
		ts.until("its connection is gone", func() bool { return ts.sum().Connections == 1 })
	})
}

func TestRepliesBeforeQuitArriveFirst(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c, w := ts.dial(), ts.dial()
		const n = 1000
		send, reply := floodReplies(c, n)
		c.do("reserve\r\n", "RESERVED"+strings.TrimPrefix(reply, "FOUND"))
		// What comes behind is not executed, and does not endanger the replies.
		go io.WriteString(c, send+"quit\r\n"+strings.Repeat("put 0 0 60 1\r\nx\r\n", 20_000))
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		c.expectMany(n, reply)
		c.expectEOF()
		// Its job has returned, and there is no other.
		w.do("reserve\r\ndelete 1\r\nreserve-with-timeout 0\r\n", "RESERVED"+strings.TrimPrefix(reply, "FOUND")+"DELETED\r\nTIMED_OUT\r\n")
		c.Close()
		ts.until("its connection is gone", func() bool { return ts.sum().Connections == 1 })
	})
}

func TestQuitClosesAtOnce(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		c.do("use a\r\nquit\r\nuse b\r\n", "USING a\r\n")
		c.expectEOF()
		c.Close()
		ts.until("its connection is gone", func() bool { return ts.sum().Connections == 0 })
	})
}

// A client that sends nothing behind its quit is not waited for, where the system
// tells that nothing is unread.
func TestClientThatHasQuitIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{linger: time.Hour})
		c := ts.dial()
		c.do("use a\r\n", "USING a\r\n")
		if runtime.GOOS != "linux" {
			t.Skip("the server does not ask this system whether something is unread")
		}
		c.send("use b\r\nquit\r\n")
		ts.until("its connection is gone", func() bool { return ts.sum().Connections == 0 })
		c.expect("USING b\r\n")
		c.expectEOF()
	})
}

func TestClientThatHasQuitAndStaysIsClosed(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{linger: time.Millisecond})
		c := ts.dial()
		c.send("quit\r\nuse a\r\n")
		c.expectEOF()
		ts.until("its connection is gone", func() bool { return ts.sum().Connections == 0 })
		if n := ts.sum().Cut; n != 0 {
			t.Errorf("cut: %d", n)
		}
	})
}

func TestClientThatIsDoneAndTakesNothingIsCut(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"half-close", "quit", "quit and go on"} {
		t.Run(how, func(t *testing.T) {
			h := hooks{drain: 50 * time.Millisecond}
			h.command = func(c *conn, cmd *codec.Command) {
				if cmd.Op == codec.OpListTubeUsed { // the client wants little room
					_ = unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096)
				}
			}
			ts := serve(t, "unix", 1, h)
			c, w := ts.dial(), ts.dial()
			body := strings.Repeat("x", 100_000)
			c.put(body)
			c.do("reserve\r\n", reserved(1, body))
			c.do("list-tube-used\r\n", "USING default\r\n")
			switch how {
			case "quit":
				c.send("peek 1\r\npeek 1\r\nquit\r\n")
			case "quit and go on":
				c.send("peek 1\r\npeek 1\r\nquit\r\n")
				go func() {
					for {
						if _, err := io.WriteString(c, "use a\r\n"); err != nil {
							return
						}
						time.Sleep(time.Millisecond)
					}
				}()
			default:
				c.send("peek 1\r\npeek 1\r\n")
				c.closeWrite()
			}
			w.do("reserve\r\n", reserved(1, body)) // although the output is pending
			ts.until("its connection is gone", func() bool { return ts.sum().Connections == 1 })
			if n := ts.sum().Cut; n != 1 {
				t.Errorf("cut: %d", n)
			}
		})
	}
}

// A client cannot take what the server does not send.
func TestClientThatIsDoneIsNotCutWhileTheServerDelays(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		for what, room := range map[string]bool{"a commit": true, "room in the journal": false} {
			t.Run(what, func(t *testing.T) {
				j := &crampedJournal{fakeJournal: new(fakeJournal)}
				j.room.Store(room)
				var e *engine.Engine
				ts, put := serveStopped(t, network, hooks{}, j.fakeJournal, func(c *Config) {
					e, c.Now = newJournaledEngine(t, j)
					c.Engine = e
				})
				c := ts.dial()
				c.send("put 0 0 9 1\r\nx\r\n")
				c.closeWrite()
				ts.until("it is being ended", func() bool { return ts.sum().Ending == 1 })
				for range 3 {
					put(drainTimeout + time.Second)
				}
				j.room.Store(true)
				e.Room()
				j.untilRecorded(ts, 1)
				put(drainTimeout + time.Second)
				j.commit(ts, 1)
				c.expect("INSERTED 1\r\n")
				c.expectEOF()
				if n := ts.sum().Cut; n != 0 {
					t.Errorf("cut: %d", n)
				}
			})
		}
	})
}

// The client may be gone, and a disk may hang for days.
func TestClientThatIsDoneIsCutWhenTheServerHasDelayedForLong(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts, put := serveStopped(t, "tcp", hooks{}, j, func(*Config) {})
	c := ts.dial()
	c.send("put 0 0 9 1\r\nx\r\n")
	c.closeWrite()
	ts.until("it is being ended", func() bool { return ts.sum().Ending == 1 })
	for n := range serverTimeouts {
		if cut := ts.sum().Cut; cut != 0 {
			t.Fatalf("cut: %d after %d times the testTimeout", cut, n)
		}
		put(drainTimeout + time.Second)
	}
	c.expectEOF()
	if n := ts.sum().Cut; n != 1 {
		t.Errorf("cut: %d", n)
	}
	j.untilRecorded(ts, 1)
	j.commit(ts, 1)
	d := ts.dial()
	d.do("peek 1\r\n", "FOUND 1 1\r\nx\r\n") // its job stays
}

// What waits for a commit behind what the client does not take is no excuse.
func TestClientThatIsDoneAndTakesNothingIsCutBesideACommit(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts, put := serveStopped(t, "unix", hooks{}, j, func(*Config) {})
	c, p := ts.dial(), ts.dial()
	const n = stream.HighWater - 1000 // more than a socket takes, less than is written before the batch's end
	p.send("put 0 0 9 " + fmt.Sprint(n) + "\r\n" + strings.Repeat("x", n) + "\r\nuse a\r\nput 0 0 9 1\r\ny\r\n")
	j.untilRecorded(ts, 2)
	j.commit(ts, 2)
	p.expect("INSERTED 1\r\nUSING a\r\nINSERTED 2\r\n")
	p.do("watch a\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n"+reserved(2, "y"))
	c.send("watch a\r\nignore default\r\npeek 1\r\nreserve\r\n")
	ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
	p.send("delete 2\r\n") // TIMED_OUT tells of that
	j.untilRecorded(ts, 3)
	c.closeWrite()
	ts.until("it is being ended", func() bool { return ts.sum().Ending == 1 })
	ts.onLoops(func(l *loop) {
		if c := l.deadlines.first().conn; !l.streams.Sendable(&c.Stream) || c.DependsOn() == 0 {
			t.Error("it is not as it was meant to be")
		}
	})
	put(drainTimeout / 2)
	if n := ts.sum().Cut; n != 0 {
		t.Errorf("cut: %d after half of the time", n)
	}
	put(drainTimeout/2 + time.Second)
	if n := ts.sum().Cut; n != 1 {
		t.Errorf("cut: %d", n)
	}
}

// What a client reserved is there for others when the client learns that its connection
// has ended, even if it was so much that it was given back in several rounds.
func TestAClientLearnsOfItsEndWhenOthersCanHaveItsJobs(t *testing.T) {
	t.Parallel()
	const n = 5_000 // more than a round gives back
	networks(t, func(t *testing.T, network string) {
		for name, leave := range map[string]func(c *client){
			"quit":                func(c *client) { c.send("quit\r\n") },
			"quit with more sent": func(c *client) { c.send("quit\r\nuse a\r\n") },
			"half-close":          func(c *client) { c.closeWrite() },
		} {
			t.Run(name, func(t *testing.T) {
				ts := serve(t, network, 2, hooks{})
				other, c := ts.dialOn(1), ts.dialOn(0)
				go c.send(strings.Repeat("put 0 0 120 0\r\n\r\nreserve\r\n", n))
				var want strings.Builder
				for i := range n {
					fmt.Fprintf(&want, "INSERTED %d\r\nRESERVED %[1]d 0\r\n\r\n", i+1)
				}
				c.expect(want.String())
				leave(c)
				c.expectEOF()
				other.send("stats\r\n")
				if got := other.data(); !strings.Contains(got, "\ncurrent-jobs-reserved: 0\n") || !strings.Contains(got, fmt.Sprintf("\ncurrent-jobs-ready: %d\n", n)) {
					t.Error("jobs are still reserved")
				}
			})
		}
	})
}
