package reactor

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine"
)

// A lonely client under a clock of its own, which looks at deadlines as it passes.
func clocked(t *testing.T, change func(*Config)) (c *conn, send func(string), pass func(time.Duration)) {
	var clock atomic.Int64
	clock.Store(int64(12345 * time.Second))
	c, _ = loneConfig(t, nil, func(cfg *Config) {
		cfg.Now = func() engine.Time { return engine.Time(clock.Load()) }
		change(cfg)
	})
	c.decoder.Extensions = true
	send = func(s string) { c.traffic(time.Duration(clock.Load()), []byte(s)) }
	pass = func(d time.Duration) {
		now := time.Duration(clock.Add(int64(d)))
		c.loop.newRound()
		c.loop.serve(now)
	}
	return c, send, pass
}

func TestAConnectionEndsWhenNothingOfABodyComesForTooLong(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Second
	for name, begun := range map[string]string{
		"no byte of it":         "put 0 0 60 100\r\n",
		"half of it":            "put 0 0 60 100\r\nxxx",
		"all but its end":       "put 0 0 60 3\r\nxxx",
		"half of its end":       "put 0 0 60 3\r\nxxx\r",
		"one that is too big":   "put 0 0 60 4000000000\r\nxxx",
		"of a malformed put":    "put 0 0 60 4000 idp:@\r\nxxx",
		"of a client with jobs": "put 0 0 999999 1\r\nx\r\nreserve\r\nput 0 0 60 9\r\nxxx",
	} {
		for _, idle := range []time.Duration{0, 3 * timeout} {
			c, send, pass := clocked(t, func(cfg *Config) { cfg.BodyTimeout, cfg.IdleTimeout = timeout, idle })
			send(begun)
			pass(timeout - time.Second)
			if c.phase != serving {
				t.Fatalf("%s: it ended before its time", name)
			}
			if pass(time.Second); c.phase != ended {
				t.Errorf("%s: it has not ended", name)
			}
			if n := c.loop.counts.idle.Load(); n != 1 || len(c.loop.deadlines) != 0 {
				t.Errorf("%s: %d are counted, %d are still to be looked at", name, n, len(c.loop.deadlines))
			}
		}
	}
}

func TestAConnectionStaysWhileItsBodiesCome(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Second
	c, send, pass := clocked(t, func(cfg *Config) { cfg.BodyTimeout = timeout })
	look := func() {
		t.Helper()
		if pass(timeout * 9 / 10); c.phase == ended {
			t.Fatal("it was closed")
		}
	}
	for range 3 {
		send("put 0 0 60 20\r\n")
		for range 20 {
			look()
			send("x")
		}
		look()
		send("\r\n")
		for range 10 { // between two bodies it may do nothing
			look()
		}
		send("put 0 0 60 1\r\nx\r\nuse a")
		for range 10 {
			look()
		}
		send("\r\n")
	}
	// A body that the server does not read is not the client's to send.
	send("watch b\r\nignore default\r\nreserve\r\nput 0 0 60 20\r\nxxx")
	for range 10 {
		look()
	}
}

func TestWithoutABodyTimeoutNobodyHasADeadline(t *testing.T) {
	t.Parallel()
	c, send, pass := clocked(t, func(*Config) {})
	send("put 0 0 60 1000\r\n" + strings.Repeat("x", 500))
	if pass(time.Hour); c.phase != serving || c.deadline != nil {
		t.Errorf("phase %v, deadline %+v", c.phase, c.deadline)
	}
}
