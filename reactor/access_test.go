package reactor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine"
)

// doorkeeper is access control with two tokens.
type doorkeeper struct {
	all  *engine.Grant // of the token "good", and of users if there are any
	some *engine.Grant // of the token "other"

	users bool // whoever comes by a Unix socket is known

	tokens atomic.Int64 // that were looked at

	mu      sync.Mutex
	peers   []Peer    // guarded by mu; that were asked for
	refused []Refusal // guarded by mu
}

func newDoorkeeper() *doorkeeper {
	return &doorkeeper{
		all:  engine.NewGrant("all", engine.RightAll, []string{"*"}),
		some: engine.NewGrant("some", engine.RightAll, []string{"a"}),
	}
}

func (d *doorkeeper) note(p *Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers = append(d.peers, *p)
}

func (d *doorkeeper) Identify(p *Peer) *engine.Grant {
	d.note(p)
	if d.users {
		return d.all
	}
	return nil
}

func (d *doorkeeper) Authenticate(p *Peer, token []byte) *engine.Grant {
	d.note(p)
	d.tokens.Add(1)
	switch string(token) {
	case "good":
		return d.all
	case "other":
		return d.some
	case "dreadful":
		panic("of the test")
	}
	return nil
}

func (d *doorkeeper) Refused(p *Peer, why Refusal) {
	d.note(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, why)
}

func (d *doorkeeper) asked() []Peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.peers)
}

func (d *doorkeeper) refusals() []Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.refused)
}

// guarded serves with access control. The time to authenticate does not pass.
func guarded(t testing.TB, network string, h hooks, d *doorkeeper) *testServer {
	t.Helper()
	ts, _ := serveStopped(t, network, h, nil, func(c *Config) { c.Access, c.Extensions = d, true })
	return ts
}

func TestATokenInTheFirstLineOpensTheSession(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		ts := guarded(t, network, hooks{}, newDoorkeeper())
		for input, reply := range map[string]string{
			"auth good\r\n":     "AUTHENTICATED\r\n",
			"use auth/good\r\n": "USING default\r\n",
		} {
			c := ts.dial()
			c.do(input, reply)
			c.do("list-tube-used\r\n", "USING default\r\n")

			inOne := ts.dial()
			inOne.send(input + "put 0 0 60 1\r\nx\r\nreserve\r\n")
			inOne.expect(reply + "INSERTED ")
			id := inOne.line()
			inOne.do("", fmt.Sprintf("RESERVED %s 1\r\nx\r\n", id))
			inOne.do("delete "+id+"\r\n", "DELETED\r\n")

			slow := ts.dial()
			for i := range input {
				slow.send(input[i : i+1])
			}
			slow.do("", reply)
			slow.do("use a\r\n", "USING a\r\n")
		}
	}
}

// A command that waits is answered later, so that nothing of it concerns the next connection of
// its loop.
func TestAClientIsTurnedAwayWhileAnotherWaits(t *testing.T) {
	t.Parallel()
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops = newDoorkeeper(), 1 })
	c := ts.dial()
	c.do("auth good\r\n", "AUTHENTICATED\r\n")
	for range 2 { // a second time after it has been served
		c.send("reserve\r\n")
		ts.until("it waits", func() bool { return ts.engine.Snapshot(0).Waiting == 1 })
		for _, line := range []string{"auth bad\r\n", "stats\r\n"} {
			d := ts.dial()
			d.send(line)
			if got, err := io.ReadAll(d.r); err != nil || len(got) == 0 {
				t.Fatalf("%q is answered %q, %v", line, got, err)
			}
		}
		p := ts.dial()
		p.do("auth good\r\n", "AUTHENTICATED\r\n")
		id := p.put("x")
		c.expect(reserved(id, "x"))
	}
}

func TestAnythingButATokenInTheFirstLineEndsTheConnection(t *testing.T) {
	t.Parallel()
	const unknown = "UNKNOWN_COMMAND\r\n"
	for _, network := range []string{"tcp", "unix"} {
		d := newDoorkeeper()
		ts := guarded(t, network, hooks{}, d)
		tries := 0
		for input, reply := range map[string]string{
			"auth bad\r\n":                 "UNAUTHORIZED\r\n",
			"use auth/bad\r\n":             unknown,
			"use auth/\r\n":                unknown,
			"use auth\r\n":                 unknown,
			"use default\r\n":              unknown,
			"watch auth/good\r\n":          unknown,
			"auth\r\n":                     unknown,
			"auth \r\n":                    unknown,
			"auth good \r\n":               unknown,
			"auth  good\r\n":               unknown,
			"AUTH good\r\n":                unknown,
			"\r\n":                         unknown,
			"stats\r\n":                    unknown,
			"reserve\r\n":                  unknown,
			"quit\r\n":                     unknown,
			"put 0 0 60 1\r\nx\r\n":        unknown,
			"put 0 0 60 1000\r\n":          unknown,
			"put 0 0 60 99999999\r\n":      unknown,
			"GET / HTTP/1.1\r\n":           unknown,
			"use auth/good HTTP/1.1\r\n":   unknown,
			strings.Repeat("x", 300):       unknown, // it is not waited for the end
			"put 0 0 60 9 idp:@\r\n":       unknown, // nor for that of the body
			"\x16\x03\x01\x02\x00\x01\r\n": unknown,
		} {
			for _, behind := range []string{"", "auth good\r\nput 0 0 60 1\r\nx\r\n"} {
				if behind != "" && !strings.HasSuffix(input, "\r\n") {
					continue
				}
				tries++
				c := ts.dial()
				c.send(input + behind)
				c.expect(reply)
				c.expectEOF()
				c.Close()
			}
		}
		ts.until("all are gone", func() bool { return ts.sum().Connections == 0 })
		if n := ts.engine.Snapshot(0); n.Opened != 0 || n.Puts != 0 || slices.Max(n.Commands[:]) != 0 {
			t.Errorf("%s: the engine has heard of it: %+v", network, n)
		}
		if n := ts.sum().Refused; n != uint64(tries) {
			t.Errorf("%s: %d are counted as refused, not %d", network, n, tries)
		}
		if got := d.refusals(); len(got) != tries-4 || slices.Max(got) != RefusedUnauthenticated { // 4 had tokens
			t.Errorf("%s: told of %v, want %d", network, got, tries-4)
		}
	}
}

func TestAClientThatDoesNotAuthenticateInTimeIsClosed(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		d := newDoorkeeper()
		ts, put := serveStopped(t, network, hooks{}, nil, func(c *Config) { c.Access = d })
		silent, slow, known := ts.dial(), ts.dial(), ts.dial()
		slow.send("auth ")
		known.do("auth good\r\n", "AUTHENTICATED\r\n")
		ts.until("all are there", func() bool { return ts.sum().Connections == 3 })
		put(authTimeout / 2)
		slow.send("go") // which does not make its time longer
		known.do("use a\r\n", "USING a\r\n")
		if n := len(d.refusals()); n != 0 {
			t.Errorf("%d are refused after half of the time", n)
		}
		put(authTimeout/2 + time.Second)
		silent.expectEOF()
		slow.expectEOF()
		known.do("use b\r\n", "USING b\r\n")
		ts.until("both are told", func() bool { return len(d.refusals()) == 2 })
		if got := d.refusals(); got[0] != RefusedSilent || got[1] != RefusedSilent {
			t.Errorf("told %v", got)
		}
		if n := ts.sum(); n.Refused != 2 || n.Idle != 0 {
			t.Errorf("%d are counted as refused, %d as idle", n.Refused, n.Idle)
		}
		if n := ts.engine.Snapshot(0).Opened; n != 1 {
			t.Errorf("the engine has heard of %d connections", n)
		}
	}
}

func TestAClientThatLeavesBeforeItAuthenticatesLeavesNothing(t *testing.T) {
	t.Parallel()
	ts := guarded(t, "tcp", hooks{}, newDoorkeeper())
	for _, begun := range []string{"", "auth go", "put 0 0"} {
		c := ts.dial()
		c.send(begun)
		c.Close()
		c = ts.dial()
		c.send(begun)
		c.closeWrite()
		c.expectEOF()
		c = ts.dial()
		c.send(begun)
		ts.until("it is there", func() bool { return ts.sum().Connections > 0 })
		c.reset()
	}
	c := ts.dial()
	c.send("auth good\r\nuse a\r\n")
	c.closeWrite()
	c.expect("AUTHENTICATED\r\nUSING a\r\n")
	c.expectEOF()
	ts.until("all are gone", func() bool { return ts.sum().Connections == 0 })
	ts.onLoops(func(l *loop) {
		if len(l.granted) != 0 || len(l.deadlines) != 0 {
			t.Errorf("%d clients and %d deadlines are left", len(l.granted), len(l.deadlines))
		}
	})
}

func TestAUserOnAUnixSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	d.users = true
	ts := guarded(t, "unix", hooks{}, d)
	c := ts.dial()
	c.do("put 0 0 60 1\r\nx\r\n", "INSERTED 1\r\n")
	c.do("auth good\r\n", "UNKNOWN_COMMAND\r\n")
	if got := d.asked(); len(got) != 1 || got[0].Addr != "unix" || got[0].UID < 0 {
		t.Errorf("asked for %+v", got)
	}
	// By TCP, nobody is asked for whom nothing is known.
	d = newDoorkeeper()
	d.users = true
	ts = guarded(t, "tcp", hooks{}, d)
	c = ts.dial()
	c.do("auth bad\r\n", "UNAUTHORIZED\r\n")
	if got := d.asked(); len(got) != 1 || got[0].Addr != c.LocalAddr().String() || got[0].UID != -1 {
		t.Errorf("asked for %+v", got)
	}
}

func TestARevokedClientIsClosedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 3} {
		d := newDoorkeeper()
		ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops = d, loops })
		as := func(token string) *client {
			c := ts.dial()
			c.do("auth "+token+"\r\n", "AUTHENTICATED\r\n")
			return c
		}
		keeper := as("good")
		keeper.do("use a\r\nput 0 0 60 1\r\nx\r\n", "USING a\r\nINSERTED 1\r\n")
		idle, holder, waiting, half := as("other"), as("other"), as("other"), as("other")
		holder.do("watch a\r\nreserve\r\n", "WATCHING 2\r\nRESERVED 1 1\r\nx\r\n")
		waiting.send("watch a\r\nreserve\r\nuse a\r\n")
		waiting.expect("WATCHING 2\r\n")
		half.send("use a\r\nput 0 0 60 1000\r\nxxx")
		half.expect("USING a\r\n")
		ts.until("one waits", func() bool { return ts.engine.Snapshot(0).Waiting == 1 })

		ts.Revoke(func(g *engine.Grant) bool { return g == d.some })
		for _, c := range []*client{idle, holder, half} {
			c.expectEOF()
			c.Close()
		}
		// It may have got what the holder has given back.
		if got, err := io.ReadAll(waiting.r); err != nil || !strings.HasPrefix(reserved(1, "x")+"USING a\r\n", string(got)) {
			t.Errorf("who waits got %q, %v", got, err)
		}
		keeper.do("watch a\r\nreserve\r\n", "WATCHING 2\r\nRESERVED 1 1\r\nx\r\n")
		ts.until("only one is left", func() bool { return ts.sum().Connections == 1 })
		ts.Revoke(func(g *engine.Grant) bool { return g == d.some })
		keeper.do("use a\r\n", "USING a\r\n")
	}
}

// Who is owed much when his token is taken away gets it, as after a quit.
func TestARevokedClientIsSentWhatItIsOwed(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	ts := guarded(t, "tcp", hooks{}, d)
	c := ts.dial()
	body := strings.Repeat("x", maxJob)
	c.do("auth good\r\n", "AUTHENTICATED\r\n")
	c.put(body)
	const n = 20
	for range n {
		c.send("peek 1\r\n")
	}
	ts.until("it is owed something", func() bool { return ts.sum().Stalled == 1 })
	ts.Revoke(func(*engine.Grant) bool { return true })
	got, err := io.ReadAll(c.r)
	whole := fmt.Sprintf("FOUND 1 %d\r\n%s\r\n", len(body), body)
	if err != nil || len(got) == 0 || len(got)%len(whole) != 0 || string(got[:len(whole)]) != whole {
		t.Errorf("it got %d bytes, not whole replies: %v", len(got), err)
	}
}

// To take a token opens a session, which is not done while nothing is executed; nor is what the client
// is told then for anybody else.
func TestTokensWaitWhileTheServerIsHeld(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		d := newDoorkeeper()
		ts, _ := serveStopped(t, network, hooks{}, j, func(c *Config) { c.Access = d })
		known := ts.dial()
		known.do("auth good\r\n", "AUTHENTICATED\r\n")
		known.send("put 0 0 9 1\r\na\r\n")
		j.untilRecorded(ts, 1)
		read := ts.sum().BytesIn
		silent, half := ts.dial(), ts.dial()
		half.send("auth ")
		ts.until("both were taken in", func() bool { return ts.sum().Connections == 3 })
		ts.untilRead(read + 5)
		ts.Hold(true)
		tokens := d.tokens.Load()
		unauthenticated := []struct{ sends, told, thenTold string }{
			{"auth good\r\n", "AUTHENTICATED\r\n", ""},
			{"auth good\r\nuse a\r\n", "AUTHENTICATED\r\n", "USING a\r\n"},
			{"use auth/good\r\n", "USING default\r\n", ""},
			{"use auth/good\r\nuse a\r\n", "USING default\r\n", "USING a\r\n"},
		}
		var clients []*client
		for _, g := range unauthenticated {
			c := ts.dial()
			c.send(g.sends)
			clients = append(clients, c)
		}
		read = ts.sum().BytesIn
		silent.send("auth good\r\nuse a\r\n")
		half.send("good\r\nuse a\r\n")
		ts.untilRead(read + 30)
		ts.Hold(true) // a loop is through with what it was doing

		j.commit(ts, 1)
		known.expect("INSERTED 1\r\n")
		known.closeWrite()
		stranger := ts.dial()
		stranger.send("auth bad\r\n")
		for _, c := range append(clients, silent, half) {
			if p := c.pending(); p != "" {
				t.Errorf("%q was executed", p)
			}
		}
		if n := d.tokens.Load(); n != tokens {
			t.Errorf("%d tokens were looked at", n-tokens)
		}
		ts.Hold(false)
		known.expectEOF()
		stranger.expect("UNAUTHORIZED\r\n")
		stranger.expectEOF()
		silent.expect("AUTHENTICATED\r\nUSING a\r\n")
		half.expect("AUTHENTICATED\r\nUSING a\r\n")
		for i, c := range clients {
			c.expect(unauthenticated[i].told + unauthenticated[i].thenTold)
			c.do("list-tubes-watched\r\n", "OK 14\r\n---\n- default\n\r\n")
			c.closeWrite()
			c.expectEOF()
		}
	})
}

// A file of tokens may change whenever it likes.
func TestRevokingReturnsAlsoWhenTheServerHasEnded(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ts *testServer){
		"abort":    func(ts *testServer) { ts.Abort() },
		"shutdown": func(ts *testServer) { _ = ts.Shutdown(context.Background()) },
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.Loops = newDoorkeeper(), 2 })
			ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
			var revoked atomic.Int64
			var ended atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				for left := 3; left > 0; revoked.Add(1) {
					if ended.Load() {
						left--
					}
					ts.Revoke(func(*engine.Grant) bool { return false })
				}
			}()
			ts.until("it revokes", func() bool { return revoked.Load() > 10 })
			end(ts)
			ended.Store(true)
			select {
			case <-done:
			case <-time.After(testTimeout):
				t.Error("it waits")
			}
		})
	}
}

func TestAPanicOfAccessControlCostsOneClient(t *testing.T) {
	t.Parallel()
	ts := guarded(t, "tcp", hooks{fatal: func() { t.Error("the process would have ended") }}, newDoorkeeper())
	c, other := ts.dial(), ts.dial()
	c.send("auth dreadful\r\n")
	c.expectEOF()
	other.do("auth good\r\n", "AUTHENTICATED\r\n")
	if n := ts.sum().Panics; n != 1 {
		t.Errorf("%d panics", n)
	}
}

func TestAnAuthenticatedClientMayBeIdleForAsLongAsOthers(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{0, time.Hour} {
		ts, put := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.Access, c.IdleTimeout = newDoorkeeper(), idle })
		c := ts.dial()
		c.do("auth good\r\n", "AUTHENTICATED\r\n")
		put(59 * time.Minute)
		c.do("use a\r\n", "USING a\r\n")
		put(2 * time.Hour)
		if idle == 0 {
			c.do("use b\r\n", "USING b\r\n")
			continue
		}
		c.expectEOF()
		if n := ts.sum().Idle; n != 1 {
			t.Errorf("%d are counted as idle", n)
		}
	}
}

func TestAServerStopsWhileClientsHaveNotAuthenticated(t *testing.T) {
	t.Parallel()
	ts := guarded(t, "tcp", hooks{}, newDoorkeeper())
	silent, begun := ts.dial(), ts.dial()
	begun.send("auth go")
	ts.until("both are there", func() bool { return ts.sum().Connections == 2 })
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	silent.expectEOF()
	if b, _ := io.ReadAll(begun.r); len(b) > 0 {
		t.Errorf("it was told %q", b)
	}
}

func FuzzFirstLine(f *testing.F) {
	for _, s := range []string{"auth good\r\nuse a\r\n", "use auth/good\r\nput 0 0 60 1\r\nx\r\n", "put 0 0 60 1\r\nx\r\n", "auth bad\r\nauth good\r\n", "\r\nauth good\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, input []byte, cut uint8) {
		if len(input) > 2000 {
			t.Skip("longer inputs show nothing new")
		}
		ts := guarded(t, "unix", hooks{}, newDoorkeeper())
		c := dial(t, ts.addr)
		at := min(int(cut), len(input))
		_, _ = c.Write(input[:at])
		_, _ = c.Write(input[at:])
		c.closeWrite()
		got, _ := io.ReadAll(c.r)
		c.Close()
		ts.until("it is gone", func() bool { return ts.sum().Connections == 0 })
		line, _, whole := strings.Cut(string(input), "\r\n")
		token := whole && slices.Contains([]string{"auth good", "use auth/good", "auth other", "use auth/other"}, line)
		n := ts.engine.Snapshot(0)
		if opened := n.Opened > 0; opened != token {
			t.Errorf("%q: the engine has heard of it: %t", input, opened)
		}
		if !token && (slices.Max(n.Commands[:]) > 0 || !slices.Contains([]string{"", "UNKNOWN_COMMAND\r\n", "UNAUTHORIZED\r\n"}, string(got))) {
			t.Errorf("%q is answered %q", input, got)
		}
	})
}

func TestConnectionsOfClientsWithGrantsAreCountedByTheirListener(t *testing.T) {
	t.Parallel()
	ts := guarded(t, "tcp", hooks{}, newDoorkeeper())
	count := func() int64 { return ts.Stats().Listeners[0].Connections }
	known, unknown := ts.dial(), ts.dial()
	known.do("auth good\r\n", "AUTHENTICATED\r\n")
	ts.until("both are counted", func() bool { return count() == 2 })
	known.Close()
	unknown.Close()
	ts.until("none is left", func() bool { return ts.sum().Connections == 0 })
	if n := count(); n != 0 {
		t.Errorf("%d connections are counted after all have ended", n)
	}
}
