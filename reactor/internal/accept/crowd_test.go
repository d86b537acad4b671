package accept

import (
	"cmp"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
)

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

func TestWhoeverFloodsFromOneAddressPushesOutNobodyElseBeforeTheHandshake(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serve(t, h, func(c *Config) { c.MaxConnections = 64 })
		addr := ts.serveTLS(serverTLS())
		quiet := dialFrom(t, "127.0.0.2", addr)
		ts.until("it is there", func() bool { return ts.Handshakes().Pending == 1 })
		connectAll(t, addr, 100, nil)
		ts.until("all have come", func() bool { return ts.Handshakes().count(HandshakeCrowded) == 101-16 })
		good := tls.Client(quiet, addr.client)
		if err := good.Handshake(); err != nil {
			t.Fatal(err)
		}
		newClient(t, good).do("use a\r\n", "USING a\r\n")
	})
}

func TestASourceIsAnAddressOrWhatOneMachineCanHave(t *testing.T) {
	of := func(s string) Source { return sourceOf(netip.MustParseAddr(s)) }
	same := [][2]string{{"192.0.2.1", "::ffff:192.0.2.1"}, {"2001:db8:0:1::1", "2001:db8:0:1:ffff::2"}}
	for _, a := range same {
		if of(a[0]) != of(a[1]) {
			t.Errorf("%s and %s are two sources", a[0], a[1])
		}
	}
	other := [][2]string{
		{"192.0.2.1", "192.0.2.2"}, {"2001:db8:0:1::1", "2001:db8:0:2::1"}, {"192.0.2.1", "2001:db8:0:1::1"},
	}
	for _, a := range other {
		if of(a[0]) == of(a[1]) {
			t.Errorf("%s and %s are one source", a[0], a[1])
		}
	}
}

func TestOfACrowdTheOldestOfTheLargestSourceLeaves(t *testing.T) {
	const places, lines, from = 12, 2, 6
	type client struct {
		number, line int
		from         Source
	}
	crowd := NewCrowd[*client](places, lines)
	var all []*client // as they have come
	at := map[*client]*Place[*client]{}
	leave := func(c *client) {
		crowd.Leave(at[c])
		delete(at, c)
		all = slices.DeleteFunc(all, func(other *client) bool { return other == c })
	}
	// check compares Oldest with what a look at all clients finds.
	check := func(line int, eligible func(*client) bool) {
		t.Helper()
		var counts [from]int
		var first [from]*client // of those that count
		var oldest *client
		for _, c := range all {
			counts[c.from]++
			if c.line == line && (eligible == nil || eligible(c)) {
				first[c.from] = cmp.Or(first[c.from], c)
				oldest = cmp.Or(oldest, c)
			}
		}
		got := crowd.Oldest(line, eligible)
		largest := slices.Max(counts[:])
		right := largest <= places/4 && got == oldest
		for source, n := range counts {
			right = right || n == largest && largest > places/4 && got == first[source]
		}
		if !right {
			t.Fatalf("%+v is to leave; sources %v, their first %v, the oldest %+v", got, counts, first, oldest)
		}
	}
	for number := range 20000 {
		if crowd.Full() {
			c := crowd.Oldest(rand.IntN(lines), nil)
			leave(cmp.Or(c, all[rand.IntN(len(all))]))
		}
		c := &client{number: number, line: rand.IntN(lines), from: Source(rand.IntN(from))}
		all = append(all, c)
		at[c] = crowd.Enter(c.line, c, c.from)
		if c := all[rand.IntN(len(all))]; rand.IntN(4) == 0 {
			c.from = Source(rand.IntN(from))
			crowd.move(at[c], c.from)
		}
		if crowd.Size() != len(all) || crowd.Full() != (len(all) == places) {
			t.Fatalf("%d of %d places are taken, want %d", crowd.Size(), places, len(all))
		}
		for line := range lines {
			check(line, nil)
			check(line, func(c *client) bool { return c.number%2 == 1 })
		}
	}
}

func TestTheHeaviestSourceIsKnownAfterAnyComingAndGoing(t *testing.T) {
	s := NewCrowd[int](16, 1)
	counts := map[Source]int{}
	for range 20000 {
		from := Source(rand.IntN(8))
		if counts[from] > 0 && rand.IntN(2) == 0 {
			s.remove(from)
			counts[from]--
		} else {
			s.add(from)
			counts[from]++
		}
		most := 0
		for _, n := range counts {
			most = max(most, n)
		}
		heaviest, ok := s.heaviest()
		if ok != (most > 4) || ok && counts[heaviest] != most {
			t.Fatalf("%v: %d, %t", counts, heaviest, ok)
		}
	}
	for from, n := range counts {
		for range n {
			s.remove(from)
		}
	}
	if len(s.counts)+len(s.heavy) != 0 {
		t.Errorf("left over: %+v", s)
	}
}
