package reactor

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/stream"
)

// A client that takes all it is given does not keep its loop for long.
func TestClientThatTakesMuchYields(t *testing.T) {
	t.Parallel()
	c, _ := lone(t)
	if err := unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20); err != nil {
		t.Skip("a socket's buffer cannot be made so big that nobody need read from it:", err)
	}
	body := strings.Repeat("x", 10_000)
	now := c.loop.server.now()
	c.traffic(now, fmt.Appendf(nil, "put 0 0 60 %d\r\n%s\r\n", len(body), body))
	input := []byte(strings.Repeat("peek 1\r\n", 1000)) // asks for 10 MB
	c.traffic(now, input)
	if n := c.loop.streams.Counts.BytesOut.Load(); n < stream.HighWater || n > roundSteps<<10+stream.HighWater+20_000 {
		t.Errorf("%d bytes were written at once", n)
	}
	if c.Pending() == nil || !c.backlogOrNil().queued || c.InputLen() == 0 {
		t.Fatal("it has not yielded")
	}
	for n := 1; c.Pending() != nil; n++ {
		if n > 10 {
			t.Fatal("it does not come to an end")
		}
		c.loop.newRound()
		c.loop.serve(now)
	}
	if n, least := c.loop.streams.Counts.BytesOut.Load(), uint64(1000*len(body)); n < least {
		t.Errorf("%d bytes were written in all, want more than %d", n, least)
	}
}
