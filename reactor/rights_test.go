package reactor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor/internal/trunk"
)

// deeds are those of which an audit was told.
type deeds struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (d *deeds) tell(x engine.Deed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, fmt.Sprintf("%s@%s %v %s %s %d denied=%v: %s", x.Client, x.Peer(), x.Op, x.Tube, x.To, x.ID, x.Denied, x.Result))
}

func (d *deeds) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.all, "\n")
}

// serveThrough starts a leader, and a gateway of it with access control, which tell of deeds.
func serveThrough(t *testing.T, network string, access *doorkeeper, accounts *account.Accounts) (gateway *testServer, told, toldLeader *deeds) {
	t.Helper()
	told, toldLeader = new(deeds), new(deeds)
	e := engine.New(engine.Config{MaxJobSize: maxJob, Audit: toldLeader.tell, Accounts: accounts})
	leader := serveConfig(t, "unix", hooks{}, nil, func(c *Config) { c.Engine, c.Extensions = e, true })
	t.Cleanup(e.Discard)
	gateway = serveConfig(t, network, hooks{}, nil, func(c *Config) {
		c.Engine, c.Access, c.Audit, c.Extensions = nil, access, told.tell, true
	})
	gateway.Forward(func(_ context.Context, loop int) (TrunkConn, error) {
		here, there, err := socketPair()
		if err != nil {
			return TrunkConn{}, err
		}
		number := uint32(testNumber + loop)
		return TrunkConn{Conn: there, Number: number}, leader.AcceptTrunk(TrunkConn{Conn: here, Peer: "n2", Number: number})
	})
	return gateway, told, toldLeader
}

func TestAGatewayKnowsItsClientsAndTheLeaderWhatTheyMayDo(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		gateway, told, toldLeader := serveThrough(t, network, newDoorkeeper(), nil)
		c := gateway.dial()
		c.send("auth other\r\nuse a\r\nput 0 0 9 1\r\nx\r\npause-tube a 0\r\npause-tube b 0\r\nmove-tube a ready b 1\r\n")
		c.expect("AUTHENTICATED\r\nUSING a\r\nINSERTED 1\r\nPAUSED\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\n")
		peer := "unix"
		if network != "unix" {
			peer = c.LocalAddr().String()
		}
		want := "some@" + peer + " pause-tube b  0 denied=true: UNKNOWN_COMMAND\nsome@" + peer + " move-tube a b 0 denied=true: UNKNOWN_COMMAND"
		gateway.until("the gateway has told of what was denied", func() bool { return told.said() == want })
		gateway.until("the leader has told of what was done", func() bool {
			return toldLeader.said() == "some@"+peer+" pause-tube a  0 denied=false: PAUSED"
		})
		c.send("use auth/other\r\n") // once too often
		c.expect("UNKNOWN_COMMAND\r\n")
		c.expectEOF()
		late := gateway.dial()
		late.send("use auth/good\r\n")
		late.expect("USING default\r\n")
		late.send("peek 1\r\nquit\r\n")
		late.expect("FOUND 1 1\r\nx\r\n")
		late.expectEOF()
		stranger := gateway.dial()
		stranger.send("auth wrong\r\nput 0 0 9 1\r\nx\r\n")
		stranger.expect("UNAUTHORIZED\r\n")
		stranger.expectEOF()
	})
}

func TestAClientWithAGrantThatIsRevokedIsEndedByItsGateway(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	gateway, _, _ := serveThrough(t, "tcp", d, nil)
	gone, stays := gateway.dial(), gateway.dial()
	gone.send("auth other\r\nuse a\r\nput 0 0 9 1\r\nx\r\nwatch a\r\nreserve\r\n")
	gone.expect("AUTHENTICATED\r\nUSING a\r\nINSERTED 1\r\nWATCHING 2\r\nRESERVED 1 1\r\nx\r\n")
	stays.send("auth good\r\nwatch a\r\nreserve\r\n")
	stays.expect("AUTHENTICATED\r\nWATCHING 2\r\n")
	gateway.Revoke(func(g *engine.Grant) bool { return g == d.some })
	gone.expectEOF()
	stays.expect("RESERVED 1 1\r\nx\r\n")
}

func TestConnectionsOfAnAccountCountAtTheLeader(t *testing.T) {
	t.Parallel()
	accounts := new(account.Accounts)
	accounts.Set([]account.Tubes{{Account: account.New("acme", account.Limits{Connections: 1}), Tubes: []string{"*"}}})
	d := newDoorkeeper()
	d.all.In("acme")
	gateway, _, _ := serveThrough(t, "tcp", d, accounts)
	first, second := gateway.dial(), gateway.dial()
	first.send("auth good\r\nuse a\r\n")
	first.expect("AUTHENTICATED\r\nUSING a\r\n")
	second.send("auth good\r\nuse a\r\n")
	second.expect("AUTHENTICATED\r\nOUT_OF_MEMORY\r\n")
	second.expectEOF()
}

// grants takes the grants that come before a client, and returns the number of the last one and its tubes.
func (k *fakeTrunk) grants(channel uint32) (number uint32, tubes []string, items int) {
	k.t.Helper()
	for {
		it, err := k.next()
		if err != nil {
			k.t.Fatal(err)
		}
		if it.Kind == trunk.KindOpen && it.Channel == channel {
			return it.Number, tubes, items
		}
		g, err := trunk.ParseGrant(it.Data)
		if err != nil || it.Kind != trunk.KindGrant {
			k.t.Fatalf("%v, %v", it.Kind, err)
		}
		tubes = append(tubes, g.Tubes...)
		items++
	}
}

func TestAGrantIsToldOnceATrunk(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("tube-%030d", i))
	}
	d.some = engine.NewGrant("some", engine.RightAll, many)
	ts, leader := serveForwarded(t, "tcp", hooks{}, func(c *Config) { c.Access, c.Extensions = d, true })
	client := func(token string) *client {
		c := ts.dial()
		c.send("auth " + token + "\r\n")
		c.expect("AUTHENTICATED\r\n")
		return c
	}
	k := leader.welcome()
	for i, want := range []struct {
		token        string
		number       uint32
		items, tubes int
	}{{"other", 1, 3, 1000}, {"other", 1, 0, 0}, {"good", 2, 1, 1}, {"other", 1, 0, 0}} {
		client(want.token)
		if n, tubes, items := k.grants(uint32(i + 1)); n != want.number || items != want.items || len(tubes) != want.tubes {
			t.Errorf("client %d: grant %d, of which %d items with %d tubes came", i, n, items, len(tubes))
		}
	}
	k.Close()
	k = leader.welcome()
	told := map[uint32]bool{}
	for range 4 {
		it, err := k.next()
		for ; err == nil && it.Kind == trunk.KindGrant; it, err = k.next() {
			told[it.Number] = true
		}
		if err != nil || it.Kind != trunk.KindOpen || !told[it.Number] {
			t.Fatalf("%v of grant %d, %v", it.Kind, it.Number, err)
		}
	}
}

// Clients that have authenticated take no places of those that have not.
func TestAGatewayHasPlacesForThoseWhoHaveToAuthenticate(t *testing.T) {
	t.Parallel()
	gateway, _, _ := serveThrough(t, "tcp", newDoorkeeper(), nil)
	for range 3 {
		gateway.dial().do("auth other\r\n", "AUTHENTICATED\r\n")
	}
	gateway.onLoops(func(l *loop) {
		if n := l.unauthenticated.Size(); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}

// A client whose grant no leader takes is disconnected, whatever it sends behind its token.
func TestAGatewayRefusesAClientWithTooLargeAGrant(t *testing.T) {
	t.Parallel()
	access := newDoorkeeper()
	access.some = engine.NewGrant("some", engine.RightAll, strings.Fields(strings.Repeat("tube ", 64<<10)))
	gateway, _, _ := serveThrough(t, "tcp", access, nil)
	gateway.until("it forwards", func() bool { n, _ := gateway.Forwarding(); return n == len(gateway.loops) })
	c := gateway.dial()
	c.send("auth other\r\nuse a\r\n")
	c.expectReset("a client that is refused")
	gateway.until("it has gone", func() bool { return gateway.sum().Connections == 0 })
	if n := gateway.sum().Panics; n != 0 {
		t.Errorf("%d panics", n)
	}
}
