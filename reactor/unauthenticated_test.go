package reactor

import (
	"io"
	"net"
	"slices"
	"testing"
)

// crowded serves with access control and few places on one loop.
func crowded(t *testing.T, d *doorkeeper) *testServer {
	t.Helper()
	ts, _ := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops, c.MaxConnections = d, 1, 8 })
	return ts
}

func TestClientsThatAreSilentLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	ts := crowded(t, d)
	var good, silent []*client
	for range 6 {
		for range 5 {
			silent = append(silent, ts.dial())
		}
		c := ts.dial()
		c.do("auth good\r\n", "AUTHENTICATED\r\n")
		good = append(good, c)
	}
	for _, c := range silent[:len(silent)-1] {
		c.expectEOF()
	}
	for _, c := range good {
		c.do("list-tube-used\r\n", "USING default\r\n")
	}
	silent[len(silent)-1].do("auth good\r\n", "AUTHENTICATED\r\n")
	if got := d.refusals(); len(got) != len(silent)-1 || slices.Min(got) != RefusedCrowded {
		t.Errorf("refused %v", got)
	}
	ts.onLoops(func(l *loop) {
		if n := l.unauthenticated.Size(); n != 0 {
			t.Errorf("%d silent clients are left", n)
		}
	})
}

func TestTheLastPlaceIsASilentClients(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	ts := crowded(t, d)
	for range 7 {
		ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
	}
	silent := ts.dial()
	ts.until("all places are taken", func() bool { return ts.sum().Connections == 8 })
	c := ts.dial()
	c.do("auth good\r\n", "AUTHENTICATED\r\n")
	silent.expectEOF()
	refused := ts.dial()
	refused.expect("OUT_OF_MEMORY\r\n")
	refused.expectEOF()
	c.do("list-tube-used\r\n", "USING default\r\n")
}

func TestSilentClientsOfOtherLoopsMakeRoomToo(t *testing.T) {
	t.Parallel()
	ts, _ := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops, c.MaxConnections = newDoorkeeper(), 4, 16 })
	for range 12 {
		ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
	}
	for range 4 {
		ts.dial()
	}
	ts.until("all places are taken", func() bool { return ts.sum().Connections == 16 })
	for admitted := 0; admitted < 4; {
		c := ts.dial()
		// A client that is refused may see that only by an error.
		_, _ = io.WriteString(c, "auth good\r\n")
		if line, err := c.r.ReadString('\n'); line == "AUTHENTICATED\r\n" {
			admitted++
		} else if err == nil && line != "OUT_OF_MEMORY\r\n" {
			t.Fatalf("got %q", line)
		}
	}
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from string, to net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial(to.Network(), to.String())
	if err != nil {
		t.Skipf("this machine has no address %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWhoeverFloodsFromOneAddressPushesOutNobodyElseBeforeTheToken(t *testing.T) {
	t.Parallel()
	ts, _ := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops, c.MaxConnections = newDoorkeeper(), 1, 64 })
	good := newClient(t, dialFrom(t, "127.0.0.2", ts.addr))
	ts.until("it is there", func() bool { return ts.sum().Connections == 1 })
	for range 100 {
		ts.dial()
	}
	ts.until("all have come", func() bool { return ts.Stats().Accepted == 101 })
	good.do("auth good\r\n", "AUTHENTICATED\r\n")
}
