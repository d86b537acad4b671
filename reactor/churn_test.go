package reactor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// Connections come and go in every way while descriptors are used again and
// again. Every client uses names that nobody else uses, and so knows every byte
// that may reach it.
func TestNoByteReachesAnotherClient(t *testing.T) {
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 4, hooks{})
		addrs := []net.Addr{ts.addr, ts.listen("unix")}
		const clients = 16
		rounds := some(80)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for j := range rounds {
					churn(ts, addrs[r.IntN(2)], r, fmt.Sprintf("t%d-%d", i, j))
				}
			})
		}
		wg.Wait()
		ts.until("all connections are gone", func() bool { return ts.sum().Connections == 0 })
		if log := ts.log.String(); log != "" {
			t.Errorf("the server complains:\n%s", log)
		}
	})
}

// churn is the life of one client.
func churn(ts *testServer, addr net.Addr, r *rand.Rand, name string) {
	c := dial(ts.t, addr)
	body := strings.Repeat(name+" ", 1+r.IntN(1000))
	c.do(fmt.Sprintf("use %s\r\nwatch %s\r\nignore default\r\n", name, name),
		fmt.Sprintf("USING %s\r\nWATCHING 2\r\nWATCHING 1\r\n", name))
	id := c.put(body)
	c.do("reserve\r\n", reserved(id, body))
	switch r.IntN(7) {
	case 0: // it ends properly
		c.do(fmt.Sprintf("delete %d\r\nquit\r\n", id), "DELETED\r\n")
		c.expectEOF()
	case 1: // it vanishes while it waits, perhaps at the moment at which it is served
		c.send("reserve\r\n")
		d := dial(ts.t, addr)
		d.do("use "+name+"\r\n", "USING "+name+"\r\n")
		d.send("put 0 0 60 1\r\nx\r\n")
		c.vanish(r)
		d.line()
		d.Close()
	case 2: // it vanishes while replies are on their way
		peek := fmt.Sprintf("peek %d\r\n", id)
		_, _ = io.WriteString(c, strings.Repeat(peek, 200))
		found := []byte(strings.Replace(reserved(id, body), "RESERVED", "FOUND", 1))
		got := make([]byte, len(found))
		for range r.IntN(20) {
			if _, err := io.ReadFull(c.r, got); err != nil || !bytes.Equal(got, found) {
				ts.t.Errorf("%s got %.60q (%v)", name, got, err)
			}
		}
		c.vanish(r)
	case 3: // it half-closes and reads all
		peek := fmt.Sprintf("peek %d\r\n", id)
		c.send(strings.Repeat(peek, 100) + "reserve\r\n")
		c.closeWrite()
		c.expectMany(100, strings.Replace(reserved(id, body), "RESERVED", "FOUND", 1))
		c.expect("TIMED_OUT\r\n")
		c.expectEOF()
	case 4: // it half-closes while it waits and is served
		c.send("reserve\r\n")
		d := dial(ts.t, addr)
		d.do("use "+name+"\r\n", "USING "+name+"\r\n")
		var ending sync.WaitGroup
		ending.Go(c.closeWrite)
		d.send("put 0 0 60 1\r\nx\r\n")
		c.expectOneOf("TIMED_OUT\r\n", name)
		ending.Wait() // a server may be done when it has heard the TLS half of it
		d.line()
		d.Close()
	case 5: // it vanishes in a body
		c.send("put 0 0 60 100\r\n" + name)
		c.vanish(r)
	case 6: // it quits with replies pending, and goes on talking
		_, _ = io.WriteString(c, strings.Repeat("list-tube-used\r\n", 5000)+"quit\r\n"+strings.Repeat("use x\r\n", 1000))
		c.expectMany(5000, "USING "+name+"\r\n")
		c.expectEOF()
	}
	c.Close()
}

// expectOneOf reads all that comes: either want, or a reservation of the job x.
func (c *client) expectOneOf(want, name string) {
	b, err := io.ReadAll(c.r)
	if s := string(b); err != nil || s != want && !(strings.HasPrefix(s, "RESERVED ") && strings.HasSuffix(s, " 1\r\nx\r\n") && strings.Count(s, "\n") == 2) {
		c.t.Errorf("%s got %.60q (%v)", name, b, err)
	}
}

// vanish ends the connection in one of the ways that there are.
func (c *client) vanish(r *rand.Rand) {
	if tc, ok := c.Conn.(*net.TCPConn); ok && r.IntN(2) == 0 {
		_ = tc.SetLinger(0)
	}
	if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		c.t.Error(err)
	}
}
