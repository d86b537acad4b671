package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

func TestMessagesArriveInTheOrderOfTheirLane(t *testing.T) {
	ns := nodes(t, 3, setup{timing: patient})
	meet(t, ns...)
	const rounds = 300
	for i := range uint64(rounds) {
		for _, to := range ns[1:] {
			ns[0].tr.Send(appendOf(ns[0], to, i, int(i%3)*3000, 5))
			hb := message(raftpb.MsgHeartbeat, ns[0], to)
			hb.Commit = new(i)
			ns[0].tr.Send(hb)
		}
	}
	for _, to := range ns[1:] {
		eventually(t, "all messages arrive", func() bool { return to.count() == 2*rounds })
		var appends, beats uint64
		for _, m := range to.received() {
			if m.GetType() == raftpb.MsgApp {
				if want := appendOf(ns[0], to, appends, int(appends%3)*3000, 5); !sameMessage(m, want) {
					t.Fatalf("append %d is %v", appends, m)
				}
				appends++
			} else {
				if m.GetCommit() != beats {
					t.Fatalf("heartbeat %d is %v", beats, m)
				}
				beats++
			}
		}
	}
	if ns[0].lost(ns[1].self.ID)+ns[0].lost(ns[2].self.ID) > 0 {
		t.Error("messages were said to be lost, and none was")
	}
}

func TestLargeMessagesDoNotHoldUpVotes(t *testing.T) {
	release := make(chan struct{})
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, n *node, cfg *Config) {
		if i == 1 {
			cfg.Handler = &heldAppends{n, release}
		}
	}})
	meet(t, ns...)
	for i := range uint64(8) {
		ns[0].tr.Send(appendOf(ns[0], ns[1], i, 1<<20))
	}
	ns[0].tr.Send(message(raftpb.MsgVote, ns[0], ns[1]))
	eventually(t, "the vote arrives", func() bool { return ns[1].count() > 0 })
	if k := ns[1].received()[0].GetType(); k != raftpb.MsgVote {
		t.Errorf("a %s came first", k)
	}
	close(release)
	eventually(t, "all arrive", func() bool { return ns[1].count() == 9 })
}

// heldAppends is a node that takes no appends for a while, as if they were on their way.
type heldAppends struct {
	*node
	release chan struct{}
}

func (h *heldAppends) Message(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgApp {
		<-h.release
	}
	h.node.Message(m)
}

func TestWhatDoesNotCrossIsNotSent(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	for k := range raftpb.MessageType_name {
		if !crosses(raftpb.MessageType(k)) {
			ns[0].tr.Send(message(raftpb.MessageType(k), ns[0], ns[1]))
		}
	}
	for _, p := range []raftpb.MessageType{raftpb.MsgHeartbeat, raftpb.MsgApp} {
		ns[0].tr.Send(message(p, ns[0], ns[1]))
	}
	eventually(t, "both messages arrive", func() bool { return ns[1].count() == 2 })
	if !ns[0].connected(ns[1].self.ID) || ns[0].lost(ns[1].self.ID) > 0 {
		t.Error("the connection was ended")
	}
}

func TestSendDropsAndSaysSo(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	stranger := message(raftpb.MsgHeartbeat, ns[0], ns[1])
	stranger.To = new(uint64(999))
	ns[0].tr.Send(stranger)
	eventually(t, "the loss is told", func() bool { return ns[0].lost(999) == 1 })
	_ = ns[1].tr.Close()
	eventually(t, "the end is noticed", func() bool { return !ns[0].connected(ns[1].self.ID) })
	eventually(t, "the loss of the lanes is told", func() bool { return ns[0].lost(ns[1].self.ID) > 0 })
	eventually(t, "the loss is told again and again", func() bool {
		ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
		return ns[0].lost(ns[1].self.ID) > 5
	})
}

// A message that no frame can hold is dropped; the connection goes on.
func TestATooLargeMessageIsDropped(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	ns[0].tr.Send(appendOf(ns[0], ns[1], 1, MaxMessage))
	eventually(t, "the loss is told", func() bool { return ns[0].lost(ns[1].self.ID) == 1 })
	ns[0].tr.Send(appendOf(ns[0], ns[1], 2, 5))
	eventually(t, "the next message arrives", func() bool { return ns[1].count() == 1 })
	ns[0].logs("at most 41943040 are possible")
}

// stuckPeer takes connections as a member does, and reads nothing of what comes.
func stuckPeer(t *testing.T, name string, reads bool) (member.Member, func() int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				if _, err := readHello(c, spoken()); err == nil {
					_, _ = c.Write(encodeReply(1, welcome, ""))
				}
				if reads {
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return member.Member{ID: 900, Incarnation: 9, Name: name, Addr: l.Addr().String()}, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	}
}

func TestSendNeverBlocksWhenThePeerDoesNotRead(t *testing.T) {
	p, _ := stuckPeer(t, "stuck", false)
	ns := nodes(t, 1, setup{timing: patient})
	ns[0].tr.SetPeers(1, []member.Member{p})
	eventually(t, "it is connected", func() bool { return ns[0].connected(p.ID) })
	to := &node{self: p}
	// Were Send to wait, this would never end: the peer never takes anything.
	for i := range uint64(400) {
		ns[0].tr.Send(appendOf(ns[0], to, i, 1<<20))
		ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], to))
	}
	eventually(t, "the loss is told", func() bool { return ns[0].lost(p.ID) > 0 })
	l := ns[0].tr.members.Load().peers[p.ID].lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > maxQueue || len(l.queue) > maxQueued || len(l.queue) == 0 {
		t.Errorf("%d bytes in %d messages wait", l.bytes, len(l.queue))
	}
}

func TestASingleMessageIsTakenWhateverItsSize(t *testing.T) {
	l := &lane{waker: make(chan struct{}, 1), up: true}
	if !l.put(appendOf(me, you, 1, maxQueue+1)) || l.put(appendOf(me, you, 2, 1)) {
		t.Error("want the first and not the second")
	}
	if n := len(l.take()); n != 1 || !l.put(appendOf(me, you, 2, 1)) {
		t.Error("there is no room after the first was taken")
	}
	l.take()
	for range maxQueued {
		if !l.put(message(raftpb.MsgHeartbeat, me, you)) {
			t.Fatal("there is no room")
		}
	}
	if l.put(message(raftpb.MsgHeartbeat, me, you)) {
		t.Error("there is no bound")
	}
}

// Neither a peer that takes nothing nor one that takes all and says nothing is believed
// to live.
func TestAPeerThatGivesNoSignOfLifeIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{false, true} {
		p, conns := stuckPeer(t, "silent", reads)
		ns := nodes(t, 1, setup{})
		ns[0].tr.SetPeers(1, []member.Member{p})
		eventually(t, "it connects again and again", func() bool { return conns() > 2*lanes })
		if ns[0].lost(p.ID) == 0 {
			t.Error("the loss was not told")
		}
	}
}

func TestAConnectionThatSaysNothingIsEnded(t *testing.T) {
	t.Parallel()
	ns := nodes(t, 2, setup{timing: patient.but(func(tm *timing) { tm.dead = time.Second })})
	_ = ns[0].tr.Close() // so that its place is free
	c, err := dialAs(t, ns[1], helloOf(purposeRest, ns[0], ns[1]))
	if err != nil {
		t.Fatal(err)
	}
	ended(t, c)
	ns[1].logs("nothing came on the lane of other messages for 1s")
}

func TestANewConnectionTakesThePlaceOfTheOldOne(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = nowhere
		}
	}})
	h := helloOf(purposeRest, ns[0], ns[1])
	first, err := dialAs(t, ns[1], h)
	if err != nil {
		t.Fatal(err)
	}
	send := func(c net.Conn) {
		f := newFrameWriter(c, bufSize)
		if err := f.message(message(raftpb.MsgHeartbeat, ns[0], ns[1])); err != nil {
			t.Fatal(err)
		}
		_ = f.w.Flush()
	}
	send(first)
	eventually(t, "a message arrives", func() bool { return ns[1].count() == 1 })
	second, err := dialAs(t, ns[1], h)
	if err != nil {
		t.Fatal(err)
	}
	ended(t, first)
	send(second)
	eventually(t, "a message arrives", func() bool { return ns[1].count() == 2 })
	other, err := dialAs(t, ns[1], helloOf(purposeAppends, ns[0], ns[1]))
	if err != nil {
		t.Fatal(err)
	}
	send(other)
	send(second)
	eventually(t, "messages of both lanes arrive", func() bool { return ns[1].count() == 4 })
	if log := ns[1].log.String(); strings.Contains(log, "ended") {
		t.Errorf("that is nothing to log:\n%s", log)
	}
}

func nowhere(ctx contextT, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestARestartedPeerIsConnectedAgain(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	for range 5 {
		_ = ns[1].tr.Close()
		eventually(t, "the end is noticed", func() bool { return !ns[0].connected(ns[1].self.ID) })
		l, err := net.Listen("tcp", ns[1].self.Addr)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := start(Config{Self: ns[1].self, Cluster: testCluster, Listener: l, Handler: ns[1], Log: ns[1].tr.cfg.Log}, patient)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close() })
		ns[1].tr = tr
		tr.SetPeers(1, []member.Member{ns[0].self, ns[1].self})
		meet(t, ns...)
		before := ns[1].count()
		eventually(t, "a message arrives", func() bool { // the end of one of the lanes may not have been noticed yet
			ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
			return ns[1].count() > before
		})
	}
}

func TestHandshakesAreRefused(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = nowhere
		}
	}})
	for _, c := range []struct {
		name   string
		change func(h *hello)
		want   string
		s      status
	}{
		{"another cluster", func(h *hello) { h.cluster[0]++ }, "n2 belongs to cluster 01020300000000000000000000000000, not to 02020300000000000000000000000000", refused},
		{"no cluster", func(h *hello) { h.cluster = member.ClusterID{} }, "not to 00000000000000000000000000000000", refused},
		{"another member", func(h *hello) { h.to.id++ }, "this is n2, member 0000000000000066 in incarnation 00000000000003ea, not 0000000000000067 in", refused},
		{"another directory", func(h *hello) { h.to.incarnation++ }, "not 0000000000000066 in incarnation 00000000000003eb", refused},
		{"a stranger", func(h *hello) { h.from.ID = 7 }, "has no member 0000000000000007, as far as n2 knows", notMember},
		{"a wiped node", func(h *hello) { h.from.Incarnation++ }, "n1 is member 0000000000000065 in incarnation 00000000000003e9, not 00000000000003ea: was its directory replaced?", refused},
		{"itself", func(h *hello) { h.from = ns[1].self }, "has no member 0000000000000066", notMember},
		{"a later program", func(h *hello) { h.speaks = versions{3, 4} }, "the protocol between members is spoken here in versions 1 to 2, and there in versions 3 to 4", refused},
	} {
		for _, p := range []purpose{purposeAppends, purposeRest, purposeSnapshot, purposeTrunk} {
			h := helloOf(p, ns[0], ns[1])
			c.change(&h)
			conn, err := dialAs(t, ns[1], h)
			if r := (*refusal)(nil); !errors.As(err, &r) || !strings.Contains(r.reason, c.want) || r.status != c.s {
				t.Errorf("%s, %s: %v, want %q", c.name, p, err, c.want)
			}
			ended(t, conn)
		}
		ns[1].logs(c.want)
	}
	if ns[1].count() > 0 {
		t.Error("a message came through")
	}
}

func TestANodeWithoutAnIdentityServesControlOnly(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, n *node, cfg *Config) {
		n.control = echo
		if i == 1 {
			cfg.Self, cfg.Cluster = member.Member{}, member.ClusterID{}
		}
	}})
	ns[0].logs("this node belongs to no cluster yet")
	resp, err := Call(t.Context(), asks(nil), ns[1].self.Addr, []byte("{}"))
	if err != nil || string(resp) != "{}" {
		t.Fatalf("%q, %v", resp, err)
	}
	ns[1].tr.Identify(testCluster, ns[1].self)
	ns[1].tr.SetPeers(1, []member.Member{ns[0].self, ns[1].self})
	meet(t, ns...)
}

func TestAMemberThatIsUnknownElsewhereIsTold(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	ns[1].tr.SetPeers(2, []member.Member{ns[1].self})
	eventually(t, "the removed node is told", func() bool {
		ns[0].mu.Lock()
		defer ns[0].mu.Unlock()
		return ns[0].notMember[ns[1].self.ID] > 0
	})
	ns[1].tr.SetPeers(3, []member.Member{ns[0].self, ns[1].self})
	meet(t, ns...)
}

func TestConnectionsOfMembersThatAreGoneEnd(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	before := ns[1].count()
	ns[0].tr.SetPeers(2, nil)
	if ns[0].connected(ns[1].self.ID) {
		t.Error("it is connected to a stranger")
	}
	eventually(t, "the lanes to it end", func() bool { return !ns[1].connected(ns[0].self.ID) })
	ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
	eventually(t, "the loss is told", func() bool { return ns[0].lost(ns[1].self.ID) > 0 })
	if ns[1].count() != before {
		t.Error("a message came through")
	}
}

// The last commit that a member hears of may be that of its removal.
func TestWhatWasSentToAMemberBeforeItsRemovalArrives(t *testing.T) {
	for range 20 {
		ns := nodes(t, 2, setup{timing: patient.but(func(tm *timing) { tm.farewell = time.Minute })})
		meet(t, ns...)
		before := ns[1].count()
		ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
		ns[0].tr.SetPeers(2, []member.Member{ns[0].self})
		eventually(t, "the message arrives", func() bool { return ns[1].count() > before })
	}
}

func TestFramesThatDoNotFitTheConnectionEndIt(t *testing.T) {
	ns := nodes(t, 3, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = nowhere
		}
	}})
	whole := func(m *raftpb.Message) []byte { return encodeFrame(kindMessage, encodeMessage(t, m)) }
	hb := func(from, to *node) []byte { return whole(message(raftpb.MsgHeartbeat, from, to)) }
	kindOf := func(k raftpb.MessageType) []byte {
		p := encodeMessage(t, message(raftpb.MsgHeartbeat, ns[0], ns[1]))
		p[0] = byte(k)
		return encodeFrame(kindMessage, p)
	}
	snap := message(raftpb.MsgSnap, ns[0], ns[1])
	snap.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(8)), Term: new(uint64(3))}}
	long := encodeFrame(kindMessage, nil)
	le.PutUint32(long, MaxMessage+1)
	changed := hb(ns[0], ns[1])
	changed[20] ^= 1
	good := hb(ns[0], ns[1])
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"from another member", hb(ns[2], ns[1]), "a message from 0000000000000067 to 0000000000000066, on a connection from 0000000000000065"},
		{"to another member", hb(ns[0], ns[2]), "a message from 0000000000000065 to 0000000000000067, on a connection from"},
		{"a proposal", kindOf(raftpb.MsgProp), "members do not send: MsgProp"},
		{"a read", kindOf(raftpb.MsgReadIndex), "members do not send: MsgReadIndex"},
		{"a message within a node", kindOf(raftpb.MsgStorageAppendResp), "members do not send: MsgStorageAppendResp"},
		{"a snapshot", whole(snap), "a MsgSnap on a lane"},
		{"a chunk", encodeFrame(kindChunk, []byte("x")), "kind 3 is not expected here"},
		{"too long", long, "41943041 bytes for kind 1"},
		{"changed", changed, "its checksum is wrong"},
		{"torn", good[:len(good)-1], "the connection ended within a frame"},
		{"garbage", bytes.Repeat([]byte("garbage "), 100), "kind 543516513 is not expected here"},
	} {
		before := ns[1].count()
		conn, err := dialAs(t, ns[1], helloOf(purposeRest, ns[0], ns[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(append(slices.Clone(good), c.b...)); err != nil {
			t.Fatal(err)
		}
		if c.name == "torn" {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		ended(t, conn)
		ns[1].logs(c.want)
		if ns[1].count() != before+1 {
			t.Errorf("%s: %d messages came through, want the one before it", c.name, ns[1].count()-before)
		}
	}
}

func TestGarbageInsteadOfAHandshakeEndsTheConnection(t *testing.T) {
	ns := nodes(t, 1, setup{timing: patient})
	for _, b := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		bytes.Repeat([]byte{0}, 1<<20),
		[]byte("TRELPEER" + strings.Repeat("x", 100)),
		{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
	} {
		c, err := net.Dial("tcp", ns[0].self.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(b)
		ended(t, c)
		_ = c.Close()
	}
	eventually(t, "it logs why", func() bool { return strings.Contains(ns[0].log.String(), "not a connection of this protocol") })
	c, err := net.Dial("tcp", ns[0].self.Addr) // as a health check does
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// Many connections that say nothing cost a bounded number of places, and members connect
// all the same.
func TestAFloodOfConnectionsIsBoundedAndKeepsNobodyOut(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	meet(t, ns...)
	var flood []net.Conn
	for i := range 5 * maxGreeting {
		c, err := net.Dial("tcp", ns[0].self.Addr)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, c)
		t.Cleanup(func() { _ = c.Close() })
		if i%2 == 0 {
			_, _ = c.Write([]byte("TRELPE"))
		}
	}
	ended(t, flood[0])
	ns[0].tr.mu.Lock()
	if n := len(ns[0].tr.greeting); n > maxGreeting {
		t.Errorf("%d connections are in their handshake", n)
	}
	ns[0].tr.mu.Unlock()
	for range 3 {
		p := ns[0].tr.members.Load().peers[ns[1].self.ID]
		ns[0].tr.SetPeers(1, []member.Member{ns[0].self})
		ns[0].tr.SetPeers(1, []member.Member{ns[0].self, p.Member})
		meet(t, ns...)
	}
	ns[0].logs(`peer=127.0.0.1 error="no handshake while many others came"`) // a member may have been among them
}

func TestAHandshakeThatIsNotGoneOnWithIsEnded(t *testing.T) {
	ns := nodes(t, 1, setup{timing: timing{greet: 50 * time.Millisecond, pulse: time.Second, dead: time.Minute, retry: time.Second, retries: time.Second}})
	for _, b := range []string{"", "TREL", "TRELPEER1234"} {
		c, err := net.Dial("tcp", ns[0].self.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(b))
		ended(t, c)
		_ = c.Close()
	}
	ns[0].logs("no handshake in time")
}

func TestPlainConnectionsAreForLoopbackOnly(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		"10.0.0.1:1": false, "0.0.0.0:1": false, "[::]:1": false, "host:1": false, "localhost.example:1": false, "[fe80::1]:1": false,
	} {
		if err := CheckPlain("127.0.0.1:9", addr); (err == nil) != ok || (err != nil && !errors.Is(err, ErrPlain)) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if CheckPlain("nonsense") == nil {
		t.Error("nonsense is on loopback")
	}
	l := foreign{}
	if _, err := New(Config{Listener: l}); !errors.Is(err, ErrPlain) {
		t.Errorf("a transport off loopback without TLS: %v", err)
	}
	ns := nodes(t, 1, setup{timing: patient})
	ns[0].tr.SetPeers(1, []member.Member{{ID: 5, Incarnation: 5, Name: "far", Addr: "192.0.2.1:1"}})
	ns[0].logs("192.0.2.1:1: connections between members need TLS off loopback")
}

type foreign struct{ net.Listener }

func (foreign) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// What a listener cannot take, for lack of descriptors above all, does not end it.
func TestAcceptGoesOnAfterAnError(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		if i == 1 {
			cfg.Listener = &failing{Listener: cfg.Listener, left: 5}
		}
	}})
	meet(t, ns...)
	ns[1].logs("too many open files")
}

type failing struct {
	net.Listener
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestTheLogIsBounded(t *testing.T) {
	b := &lockedBuffer{}
	l := &limitedLog{log: quietLog(b)}
	for i := range 10_000 {
		l.warn("refused", fmt.Sprint(i%1000), errors.New("why\nand more"))
	}
	if n := strings.Count(b.String(), "\n"); n != maxSaid {
		t.Errorf("%d lines", n)
	}
	err := fmt.Errorf("the connection ended: %w", &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 1}, Addr: &net.TCPAddr{Port: 2}, Err: errors.New("connection reset by peer"),
	})
	if got := line(err); got != "the connection ended: read: connection reset by peer" {
		t.Errorf("%q", got)
	}
}

func TestCloseEndsWhateverGoesOn(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(_ int, n *node, _ *Config) {
		n.take = func(_ *raftpb.Message, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		n.control = func(ctx contextT, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}})
	meet(t, ns...)
	begun := make(chan struct{})
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write([]byte("some"))
		close(begun)
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		return err
	})
	<-begun
	called := make(chan error, 1)
	go func() {
		_, err := Call(t.Context(), asks(nil), ns[0].self.Addr, nil)
		called <- err
	}()
	_ = ns[0].tr.Close()
	if err := <-called; err == nil {
		t.Error("a request was answered by a node that was closed")
	}
	_ = ns[0].tr.Close()
	ns[0].tr.SetPeers(1, []member.Member{ns[1].self})
	ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), nil)
}

// The network breaks in all ways, and is whole again: the nodes talk again by themselves,
// and never take a message for another.
func TestConnectionsComeBackWhenTheNetworkDoes(t *testing.T) {
	for seed := range uint64(3) {
		net := newTestNetwork(seed)
		ns := nodes(t, 3, setup{net: net})
		breaks := []func(a, b string){
			net.Cut, net.Block, net.Reset,
			func(a, b string) { net.Block(a, b); net.Block(b, a) },
			func(a, b string) { net.Delay(a, b, 10*time.Millisecond, 10*time.Millisecond) },
			func(a, b string) { net.Repeat(a, b, 0.5) },
			func(a, b string) { net.Lose(a, b, 0.5) },
		}
		for i := range uint64(21) {
			meet(t, ns...)
			breaks[(i+seed)%uint64(len(breaks))](ns[i%3].self.Name, ns[(i+1)%3].self.Name)
			for k := range uint64(20) {
				ns[i%3].tr.Send(appendOf(ns[i%3], ns[(i+1)%3], 100*i+k, 1000))
			}
			net.Heal()
		}
		for _, from := range ns {
			for _, to := range ns {
				if from == to {
					continue
				}
				last := uint64(1 << 40)
				eventually(t, "a message arrives", func() bool {
					from.tr.Send(appendOf(from, to, last, 10))
					to.mu.Lock()
					defer to.mu.Unlock()
					return slices.ContainsFunc(to.messages, func(m *raftpb.Message) bool {
						return m.GetIndex() == last && m.GetFrom() == uint64(from.self.ID)
					})
				})
			}
		}
		for _, n := range ns {
			_ = n.tr.Close()
			for _, m := range n.received() {
				for _, e := range m.Entries {
					if len(e.Data) > 0 && e.Data[0] != byte(e.GetIndex()) {
						t.Fatalf("entry %d has the data of another", e.GetIndex())
					}
				}
			}
		}
		net.Close()
	}
}

// What a node has sent twice arrives twice: the test network's own behaviour.
func TestTheTestNetworkRepeatsAndLoses(t *testing.T) {
	net := newTestNetwork(1)
	defer net.Close()
	ns := nodes(t, 2, setup{timing: patient, net: net})
	defer func() { _ = ns[0].tr.Close(); _ = ns[1].tr.Close() }()
	meet(t, ns...)
	net.Repeat("n1", "n2", 1)
	ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
	eventually(t, "it arrives twice", func() bool { return ns[1].count() == 2 })
	net.Lose("n1", "n2", 1)
	ns[0].tr.Send(message(raftpb.MsgVote, ns[0], ns[1]))
	ns[1].tr.Send(message(raftpb.MsgHeartbeatResp, ns[1], ns[0]))
	eventually(t, "the other direction works", func() bool { return ns[0].count() == 1 })
	eventually(t, "the vote is lost", func() bool { return net.Lost("n1", "n2") == 1 })
	ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
	eventually(t, "the heartbeat is lost too", func() bool { return net.Lost("n1", "n2") == 2 })
	net.Lose("n1", "n2", 0)
	net.Repeat("n1", "n2", 0)
	eventually(t, "the next message arrives", func() bool {
		ns[0].tr.Send(message(raftpb.MsgPreVote, ns[0], ns[1]))
		return ns[1].count() > 2
	})
	for _, m := range ns[1].received()[2:] {
		if m.GetType() != raftpb.MsgPreVote {
			t.Errorf("a lost message came: %v", m)
		}
	}
	net.Block("n1", "n2")
	net.Delay("n2", "n1", time.Millisecond, time.Millisecond)
	ns[1].tr.Send(message(raftpb.MsgHeartbeatResp, ns[1], ns[0]))
	eventually(t, "the open direction works", func() bool { return ns[0].count() == 2 })
}
