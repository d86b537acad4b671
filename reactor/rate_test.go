package reactor

import (
	"fmt"
	"strings"
	"testing"

	"trellis/engine"
	"trellis/engine/account"
)

// tenants is a server with an account, to which clients with the token "good" belong. Time does
// not pass: what an account may do is what it may at once.
func tenants(t *testing.T, network string, limits account.Limits, change func(*doorkeeper, *Config)) (*testServer, *account.Account) {
	t.Helper()
	acme := account.New("acme", limits)
	accounts := new(account.Accounts)
	accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"acme*"}}})
	e := engine.New(engine.Config{MaxJobSize: maxJob, Accounts: accounts})
	d := newDoorkeeper()
	d.all.In("acme")
	ts, _ := serveStopped(t, network, hooks{}, nil, func(c *Config) {
		c.Engine = e
		c.Access, c.Extensions = d, true
		change(d, c)
	})
	ts.engine = e
	return ts, acme
}

func unchanged(*doorkeeper, *Config) {}

func TestAConnectionBeyondItsAccountsLimitIsToldAndClosed(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "tls", "unix"} {
		ts, acme := tenants(t, network, account.Limits{Connections: 1}, unchanged)
		c := ts.dial()
		c.do("auth good\r\n", "AUTHENTICATED\r\n")
		for _, line := range []string{"auth good\r\n", "use auth/good\r\n", "auth good\r\nput 0 0 9 1\r\nx\r\n"} {
			d := ts.dial()
			d.do(line, "OUT_OF_MEMORY\r\n")
			d.expectEOF()
		}
		ts.dial().do("auth other\r\nuse a\r\n", "AUTHENTICATED\r\nUSING a\r\n") // of no account
		c.do("list-tube-used\r\n", "USING default\r\n")
		c.Close()
		ts.until("its place is free", func() bool { return ts.engine.Accounts().Snapshots()[0].Holds.Connections == 0 })
		ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
		acme.SetLimits(account.Limits{})
		ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
		if n := ts.engine.Accounts().Snapshots()[0].RefusedConnections; n != 3 || ts.Stats().Loops[0].Refused != 0 {
			t.Errorf("%d refusals are counted", n)
		}
	}
}

func TestAKnownUserBeyondTheAccountsLimitIsToldAndClosed(t *testing.T) {
	t.Parallel()
	ts, _ := tenants(t, "unix", account.Limits{Connections: 1}, func(d *doorkeeper, _ *Config) { d.users = true })
	c := ts.dial()
	c.do("list-tube-used\r\n", "USING default\r\n")
	d := ts.dial()
	d.expect("OUT_OF_MEMORY\r\n")
	d.expectEOF()
}

// To connect again and again is no way around the rate: those that are too many are told so
// when their turn has come.
func TestConnectionsBeyondTheLimitAreRefusedAtTheAccountsRate(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "tls"} {
		ts, acme := tenants(t, network, account.Limits{Connections: 1, Rate: 1}, unchanged)
		ts.dial().do("auth good\r\n", "AUTHENTICATED\r\n")
		var refused []*client
		for range 20 {
			c := ts.dial()
			c.send("auth good\r\nlist-tube-used\r\n")
			refused = append(refused, c)
		}
		ts.until("all wait", func() bool { return ts.engine.Accounts().Snapshots()[0].Waits >= 20 })
		refused[0].send("list-tube-used\r\n")
		ts.dial().do("auth other\r\nuse a\r\n", "AUTHENTICATED\r\nUSING a\r\n")
		acme.SetLimits(account.Limits{Connections: 1})
		ts.LimitsChanged()
		for _, c := range refused {
			c.expect("OUT_OF_MEMORY\r\n")
			c.expectEOF()
		}
	}
}

// An account that has had as many commands executed as it may is read later. Others are not
// kept waiting, on the same loop.
func TestAnAccountBeyondItsRateWaitsAndOthersDoNot(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "tls"} {
		const commands = 2000 // at ten a second
		ts, acme := tenants(t, network, account.Limits{Rate: 10}, unchanged)
		var busy []*client
		for range 3 {
			c := ts.dial()
			c.do("auth good\r\n", "AUTHENTICATED\r\n")
			c.send(strings.Repeat("list-tube-used\r\n", commands))
			busy = append(busy, c)
		}
		other := ts.dial()
		other.do("auth other\r\nuse a\r\n", "AUTHENTICATED\r\nUSING a\r\n")
		for n := range 300 {
			other.do("put 0 0 9 1\r\nx\r\n", fmt.Sprintf("INSERTED %d\r\n", n+1))
		}
		var waits uint64
		ts.until("somebody waits", func() bool { waits = ts.engine.Accounts().Snapshots()[0].Waits; return waits > 0 })
		if n := ts.sum().PendingInput; n == 0 {
			t.Error("all commands of the account were executed")
		}
		// More than is kept of what a client sends: it is not read.
		flood := ts.dial()
		flood.do("auth good\r\n", "AUTHENTICATED\r\n")
		go flood.Conn.Write([]byte(strings.Repeat("list-tube-used\r\n", 1<<18)))
		other.do("list-tube-used\r\n", "USING a\r\n")
		acme.SetLimits(account.Limits{})
		ts.LimitsChanged()
		for _, c := range busy {
			c.expectMany(commands, "USING default\r\n")
		}
		flood.expectMany(1<<18, "USING default\r\n")
		ts.until("nothing is left", func() bool { return ts.sum().PendingInput == 0 })
	}
}

// A long command is done bit by bit as the rate allows, and holds up its own account only.
func TestALongCommandIsDoneAsTheRateAllows(t *testing.T) {
	t.Parallel()
	ts, acme := tenants(t, "tcp", account.Limits{}, unchanged)
	const jobs = 50_000
	c := ts.dial()
	c.do("auth good\r\nuse acme\r\n", "AUTHENTICATED\r\nUSING acme\r\n")
	go c.Conn.Write([]byte(strings.Repeat("put 0 0 9 1\r\nx\r\n", jobs)))
	for range jobs {
		c.line()
	}
	acme.SetLimits(account.Limits{Rate: 1})
	c.send("flush-tube acme\r\n")
	ts.until("it waits", func() bool { return ts.engine.Accounts().Snapshots()[0].Waits > 0 })
	if n := ts.engine.Accounts().Snapshots()[0].Holds.Jobs; n == 0 {
		t.Error("it was done at once")
	}
	acme.SetLimits(account.Limits{})
	ts.LimitsChanged()
	c.expect(fmt.Sprintf("FLUSHED %d\r\n", jobs))
}

// A server that shuts down does not wait until the rate of an account allows what a client has sent last.
func TestShutdownEndsAlthoughAnAccountIsBeyondItsRate(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "tls"} {
		ts, acme := tenants(t, network, account.Limits{}, unchanged)
		c := ts.dial()
		c.do("auth good\r\n", "AUTHENTICATED\r\n")
		slow := ts.dial()
		slow.do("auth other\r\nuse a\r\n", "AUTHENTICATED\r\nUSING a\r\n")
		const n = 1800
		send, reply := floodReplies(slow, n)
		slow.send(send)
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		done := ts.shutDown(t.Context())
		ts.until("clients are read once more", func() bool {
			draining := make(chan bool, 1)
			ts.onLoops(func(l *loop) { draining <- l.draining }) // there is one loop
			return <-draining
		})
		c.do("list-tube-used\r\n", "USING default\r\n")
		ts.onLoops(func(*loop) {}) // it is not read any more
		acme.SetLimits(account.Limits{Rate: 1})
		c.send("list-tube-used\r\nlist-tube-used\r\n")
		slow.expectMany(n, reply)
		c.expect("USING default\r\n")
		c.expectEOF()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Clients that have gone are not kept because they stood in line.
func TestClientsThatHaveGoneLeaveTheLine(t *testing.T) {
	t.Parallel()
	ts, acme := tenants(t, "tcp", account.Limits{Rate: 1}, unchanged)
	for n := range 100 {
		c := ts.dial()
		c.do("auth good\r\n", "AUTHENTICATED\r\n")
		c.send(strings.Repeat("list-tube-used\r\n", 3))
		ts.until("it waits", func() bool { return ts.engine.Accounts().Snapshots()[0].Waits > uint64(n) })
	}
	ts.Revoke(func(*engine.Grant) bool { return true })
	ts.until("they are closed", func() bool { return ts.sum().Connections == 0 })
	inLine := func() (n int) {
		counted := make(chan int, 1)
		ts.onLoops(func(l *loop) {
			n := 0
			for _, line := range l.throttled.lines {
				n += line.conns.Len()
			}
			counted <- n
		})
		return <-counted
	}
	if n := inLine(); n > 40 {
		t.Errorf("%d connections stand in line, and all have gone", n)
	}
	acme.SetLimits(account.Limits{})
	ts.LimitsChanged()
	ts.until("the line has gone", func() bool { return inLine() == 0 })
	c := ts.dial()
	c.do("auth good\r\nlist-tube-used\r\n", "AUTHENTICATED\r\nUSING default\r\n")
}
