package reactor

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"trellis/reactor/internal/stream"
)

// A client that sends without end and reads nothing costs bounded memory, and
// the others on its loop go on.
func TestClientThatNeverReadsIsBounded(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		body := strings.Repeat("x", 60_000)
		for name, command := range map[string]string{
			"small replies": "bogus\r\n",
			"big replies":   "peek 1\r\n",
			"data":          "stats\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				ts := serve(t, network, 1, hooks{})
				other := ts.dial()
				other.put(body)
				c := ts.dial()
				flood := []byte(strings.Repeat(command, 1+100_000/len(command)))
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						if _, err := c.Write(flood); err != nil {
							return
						}
					}
				}()
				ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
				for i := range some(500) {
					other.do(fmt.Sprintf("use t%d\r\n", i), fmt.Sprintf("USING t%d\r\n", i))
				}
				c.Close()
				<-done
				in, out := ts.peaks()
				if in > stream.KeepInput+2*stream.ReadSize {
					t.Errorf("%d bytes of input were kept", in)
				}
				if out > stream.HighWater+2*int64(len(body)+50) {
					t.Errorf("%d bytes of output were kept", out)
				}
				ts.until("its connection is gone", func() bool { return ts.sum().Connections == 1 })
			})
		}
	})
}

// One batch may bring far more replies than the client takes. They are produced
// as it takes them.
func TestRepliesAreProducedAsTheyAreTaken(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		const n = 4000
		send, reply := floodReplies(c, n)
		c.send(send)
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		c.expectMany(n, reply)
		c.do("use a\r\n", "USING a\r\n")
		if _, out := ts.peaks(); out > stream.HighWater+2*int64(len(reply)) {
			t.Errorf("%d bytes of output were kept", out)
		}
		ts.until("nothing is pending", func() bool { s := ts.sum(); return s.PendingInput+s.PendingOutput+s.Stalled == 0 })
	})
}

// A waiting client may have stalled before; its job comes behind what it has
// not read yet.
func TestHandOverToAStalledClient(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c, p := ts.dial(), ts.dial()
		const n = 3000
		send, reply := floodReplies(c, n)
		c.send(send + "delete 1\r\nreserve\r\nuse after\r\n")
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		c.expectMany(n, reply)
		c.expect("DELETED\r\n")
		p.put("x")
		c.expect(reserved(2, "x") + "USING after\r\n")
	})
}

// Where reading cannot be paused, a client that sends too far ahead is closed.
func TestClientThatCannotBePausedIsClosed(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"waiting": "reserve\r\n", "stalled": "peek 1\r\n"} {
		t.Run(name, func(t *testing.T) {
			ts := serve(t, "tcp", 1, hooks{unpaused: true})
			c, other := ts.dial(), ts.dial()
			send, _ := floodReplies(other, 1)
			other.do("reserve\r\n", "RESERVED 1 10000\r\n")
			_, _ = io.CopyN(io.Discard, other.r, 10_002)
			flood := []byte(strings.Repeat(send, 1000))
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.WriteString(c, first)
				for {
					if _, err := c.Write(flood); err != nil {
						return
					}
				}
			}()
			<-done
			ts.until("it was closed", func() bool { s := ts.sum(); return s.OverLimit == 1 && s.Connections == 1 })
			if in, _ := ts.peaks(); in > stream.MaxInput+stream.ReadSize {
				t.Errorf("%d bytes of input were kept", in)
			}
			other.do("use a\r\n", "USING a\r\n")
		})
	}
}
