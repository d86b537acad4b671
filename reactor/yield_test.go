package reactor

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"trellis/codec"
)

// manyDelayed puts n delayed jobs.
func manyDelayed(c *client, n int) {
	c.t.Helper()
	const batch = 1000
	for at := 0; at < n; at += batch {
		c.do(strings.Repeat("put 0 1000 60 1\r\nx\r\n", batch), inserted(at+1, batch))
	}
}

// inserted is what n puts are answered.
func inserted(first, n int) string {
	var b []byte
	for id := first; id < first+n; id++ {
		b = append(strconv.AppendInt(append(b, "INSERTED "...), int64(id), 10), "\r\n"...)
	}
	return string(b)
}

func TestCommandsBehindAKickThatYieldsAreExecutedAfterIt(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		const n = 30_000
		ts := serve(t, network, 1, hooks{})
		c, other := ts.dial(), ts.dial()
		manyDelayed(c, n)
		c.send("use before\r\nuse default\r\nkick 100000\r\nuse after\r\n")
		c.send("list-tube-used\r\n") // perhaps in a read of its own
		other.do("use other\r\n", "USING other\r\n")
		c.expect(fmt.Sprintf("USING before\r\nUSING default\r\nKICKED %d\r\nUSING after\r\nUSING after\r\n", n))
		ts.until("nothing is pending", func() bool { s := ts.sum(); return s.PendingInput+s.PendingOutput+s.Stalled == 0 })
		c.do("use default\r\npeek-delayed\r\n", "USING default\r\nNOT_FOUND\r\n")
	})
}

func TestAHalfClosedClientsKickIsFinished(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		const n = 30_000
		ts := serve(t, network, 1, hooks{})
		p, c := ts.dial(), ts.dial()
		manyDelayed(p, n)
		c.send("kick 100000\r\nuse after\r\nreserve\r\nreserve-with-timeout 9\r\n")
		c.closeWrite()
		c.expect(fmt.Sprintf("KICKED %d\r\nUSING after\r\n", n) + reserved(1, "x") + reserved(2, "x"))
		c.expectEOF()
		p.do("peek-delayed\r\n", "NOT_FOUND\r\n")
	})
}

func TestAClientThatVanishesInAKickIsForgotten(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	p := ts.dial()
	manyDelayed(p, 60_000)
	for range 3 {
		c := ts.dial()
		c.send("kick 20000\r\n")
		c.reset()
	}
	ts.until("they are gone", func() bool { return ts.sum().Connections == 1 })
	p.do("use a\r\n", "USING a\r\n")
}

func TestOthersHaveTheirTurnBesideAClientThatSendsManyCommands(t *testing.T) {
	t.Parallel()
	const n = 2 * roundSteps      // in one read
	var mine, before atomic.Int64 // commands of the client; how many came before the other's
	blocked, goOn := make(chan struct{}), make(chan struct{})
	ts := serve(t, "tcp", 1, hooks{command: func(_ *conn, cmd *codec.Command) {
		if cmd.Op != codec.OpPeekBuried {
			before.Store(mine.Load())
			return
		}
		if mine.Add(1) == 1 {
			close(blocked)
			<-goOn
		}
	}})
	c, other := ts.dial(), ts.dial()
	go io.WriteString(c, strings.Repeat("peek-buried\r\n", n))
	<-blocked
	other.send("list-tube-used\r\n")
	close(goOn)
	other.expect("USING default\r\n")
	c.expect(strings.Repeat("NOT_FOUND\r\n", n))
	// There is perhaps one poll before the one that finds the other's command.
	if got := before.Load(); got > 3*roundSteps {
		t.Errorf("the other client's command came after %d of %d", got, n)
	}
}
