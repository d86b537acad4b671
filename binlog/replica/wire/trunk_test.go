package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire/wiretest"
)

// trunks is the end of a leader: it keeps what it is given.
type trunks struct {
	taken chan *Trunk
	fail  error
}

func (l *trunks) Trunk(member.Member, TrunkHello) (func(*Trunk), error) {
	if l.fail != nil {
		return nil, l.fail
	}
	return func(k *Trunk) { l.taken <- k }, nil
}

// trunkNodes are a leader, which is the first, and members that dial it.
func trunkNodes(t *testing.T, n int, s setup) ([]*node, *trunks) {
	l := &trunks{taken: make(chan *Trunk, 16)}
	change := s.change
	s.timing = patient
	s.change = func(i int, n *node, cfg *Config) {
		n.trunk = l.Trunk
		if change != nil {
			change(i, n, cfg)
		}
	}
	return nodes(t, n, s), l
}

func (n *node) dialTrunk(to *node, h TrunkHello) (*Trunk, error) {
	return n.tr.DialTrunk(n.t.Context(), to.self.ID, h)
}

// conn is what a trunk's bytes go through while nobody has taken the socket.
func (k *Trunk) conn() net.Conn {
	if k.TLS != nil {
		return k.TLS
	}
	return k.Socket
}

// finish is what who has a trunk does with it in the end.
func (k *Trunk) finish() {
	_ = k.Socket.Close()
	k.End(nil)
}

// begin begins a trunk of a loop, and returns both ends.
func (l *trunks) begin(from, to *node, h TrunkHello) (gateway, leader *Trunk) {
	from.t.Helper()
	gateway, err := from.dialTrunk(to, h)
	if err != nil {
		from.t.Fatal(err)
	}
	leader = <-l.taken
	from.t.Cleanup(gateway.finish)
	from.t.Cleanup(leader.finish)
	return gateway, leader
}

// hasTo waits until a trunk has to end, and returns why.
func hasTo(t *testing.T, k *Trunk) error {
	t.Helper()
	select {
	case <-k.Context.Done():
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	return context.Cause(k.Context)
}

func loop(number uint32, count uint64) TrunkHello {
	return TrunkHello{Version: 1, Number: number, Nonce: 9, Count: count}
}

// What comes behind the handshake is for who takes the trunk, to the byte, also where that lies
// under TLS.
func TestATrunkBeginsBehindItsHandshake(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "TLS"}[secure], func(t *testing.T) {
			s := setup{}
			if secure {
				ours := wiretest.NewAuthority(t, "ours")
				cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
				s.tls = func(int) *Credentials { return cfg }
			}
			ns, l := trunkNodes(t, 2, s)
			first := strings.Repeat("at once ", 100)
			ns[0].trunk = func(from member.Member, h TrunkHello) (func(*Trunk), error) {
				if from != ns[1].self || h != loop(7, 3) {
					t.Errorf("%v, %+v", from, h)
				}
				return func(k *Trunk) {
					if _, err := io.WriteString(k.conn(), first); err != nil {
						t.Error(err)
					}
					l.taken <- k
				}, nil
			}
			gateway, leader := l.begin(ns[1], ns[0], loop(7, 3))
			if gateway.Peer != ns[0].self || leader.Peer != ns[1].self || (gateway.TLS != nil) != secure || (leader.TLS != nil) != secure {
				t.Errorf("%+v, %+v", gateway, leader)
			}
			got := make([]byte, len(first))
			if _, err := io.ReadFull(gateway.conn(), got); err != nil || string(got) != first {
				t.Fatalf("%q, %v", got, err)
			}
			if !secure {
				return
			}
			memory := &memory{Conn: gateway.Socket}
			gateway.Swap(memory)
			if _, err := io.WriteString(gateway.TLS, "over memory"); err != nil {
				t.Fatal(err)
			}
			if memory.b.Len() == 0 {
				t.Fatal("it went to the socket")
			}
			_, _ = gateway.Socket.Write(memory.b.Bytes())
			got = make([]byte, len("over memory"))
			if _, err := io.ReadFull(leader.TLS, got); err != nil || string(got) != "over memory" {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

// memory keeps what is written.
type memory struct {
	net.Conn
	b bytes.Buffer
}

func (m *memory) Write(b []byte) (int, error) { return m.b.Write(b) }

// The gateway is told in words why there is no trunk.
func TestATrunkIsRefused(t *testing.T) {
	ns, l := trunkNodes(t, 3, setup{change: func(i int, _ *node, cfg *Config) {
		if i == 2 {
			cfg.speaks = versions{1, 1}
		}
	}})
	refused := func(from, to *node, h TrunkHello, want string) {
		t.Helper()
		if _, err := from.dialTrunk(to, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(ns[1], ns[2], loop(1, 1), "the protocol between members is spoken here in version 1, and there in version 2")
	l.fail = errors.New("this node does not lead")
	refused(ns[1], ns[0], loop(1, 1), "this node does not lead")
	l.fail = nil
	_, leader := l.begin(ns[1], ns[0], loop(1, 5))
	for _, count := range []uint64{4, 5} {
		refused(ns[1], ns[0], loop(1, count), "the loop has dialled later than that")
	}
	if leader.Context.Err() != nil {
		t.Error("an older dial has ended the trunk")
	}
	leader.finish()
	refused(ns[1], ns[0], loop(1, 5), "the loop has dialled later than that") // though its trunk is gone
	if _, err := ns[1].tr.DialTrunk(t.Context(), 77, loop(1, 1)); !errors.Is(err, errNoMember) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ns[1].tr.DialTrunk(ended, ns[0].self.ID, loop(1, 9)); err == nil {
		t.Error("it is dialled though nobody wants it")
	}
}

// A newer dial of the loop ends its trunk, and begins when that has ended; those of other loops,
// and of other members, go on.
func TestANewerDialEndsTheTrunk(t *testing.T) {
	ns, l := trunkNodes(t, 3, setup{})
	_, old := l.begin(ns[1], ns[0], loop(1, 1))
	_, other := l.begin(ns[1], ns[0], loop(2, 1))
	_, another := l.begin(ns[2], ns[0], loop(1, 1))
	dialled := make(chan *Trunk)
	dial := func(h TrunkHello) {
		k, err := ns[1].dialTrunk(ns[0], h)
		if err != nil {
			t.Error(err)
		} else {
			t.Cleanup(k.finish)
		}
		dialled <- k
	}
	go dial(loop(1, 2))
	if err := hasTo(t, old); err != errNewerDial {
		t.Error(err)
	}
	select {
	case <-dialled:
		t.Error("the new one begins beside the old one")
	case <-l.taken:
		t.Error("the new one begins beside the old one")
	default:
	}
	old.finish()
	<-dialled
	k := <-l.taken
	t.Cleanup(k.finish)
	for _, o := range []*Trunk{other, another, k} {
		if o.Context.Err() != nil {
			t.Error(context.Cause(o.Context))
		}
	}
	// Another process of the member ends all of the one before.
	go dial(TrunkHello{Version: 1, Number: 3, Nonce: 10, Count: 1})
	for _, o := range []*Trunk{other, k} {
		if err := hasTo(t, o); err != errNewProcess {
			t.Error(err)
		}
		o.finish()
	}
	<-dialled
	t.Cleanup((<-l.taken).finish)
	if another.Context.Err() != nil {
		t.Error(context.Cause(another.Context))
	}
}

// Numbers of a process before are gone when its trunks have ended, and not only have to.
func TestTrunksOfAProcessBeforeEnd(t *testing.T) {
	ns, l := trunkNodes(t, 2, setup{})
	_, k := l.begin(ns[1], ns[0], loop(1, 1))
	if err := ns[0].tr.EndTrunks(t.Context(), ns[1].self.ID, 9); err != nil || k.Context.Err() != nil {
		t.Errorf("a process ends its own trunks: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ns[0].tr.EndTrunks(ctx, ns[1].self.ID, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("a trunk that is still used has ended: %v", err)
	}
	if err := hasTo(t, k); err != errNewProcess {
		t.Error(err)
	}
	k.finish()
	if err := ns[0].tr.EndTrunks(t.Context(), ns[1].self.ID, 10); err != nil {
		t.Error(err)
	}
}

// Both ends have to end when the other member is removed, and when the transport is closed.
func TestATrunkEndsWithTheMemberAndWithTheTransport(t *testing.T) {
	ns, l := trunkNodes(t, 3, setup{})
	gateway, leader := l.begin(ns[1], ns[0], loop(1, 1))
	third, thirds := l.begin(ns[2], ns[0], loop(1, 1))
	ns[0].tr.SetPeers(2, []member.Member{ns[0].self, ns[2].self})
	if err := hasTo(t, leader); err != errNoMember {
		t.Error(err)
	}
	ns[1].tr.SetPeers(2, []member.Member{ns[1].self, ns[2].self})
	if err := hasTo(t, gateway); err != errNoMember {
		t.Error(err)
	}
	gateway.finish()
	leader.finish()
	eventually(t, "nothing is kept of the member", func() bool {
		ns[0].tr.mu.Lock()
		defer ns[0].tr.mu.Unlock()
		return ns[0].tr.gateways[ns[1].self.ID] == nil
	})
	var closing sync.WaitGroup
	for i, k := range map[int]*Trunk{0: thirds, 2: third} {
		closing.Go(func() { _ = ns[i].tr.Close() })
		_ = hasTo(t, k)
		k.finish()
	}
	closing.Wait()
}

func TestATrunkEndsWithItsAuthority(t *testing.T) {
	ours, next := wiretest.NewAuthority(t, "ours"), wiretest.NewAuthority(t, "next")
	cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
	ns, l := trunkNodes(t, 2, setup{tls: func(int) *Credentials { return cfg }})
	gateway, leader := l.begin(ns[1], ns[0], loop(1, 1))
	trust(t, ours, authorities(t, next))
	for _, k := range []*Trunk{gateway, leader} {
		if err := hasTo(t, k); !strings.Contains(fmt.Sprint(err), "the authorities have changed") {
			t.Error(err)
		}
	}
}

func TestAMemberHasSoManyTrunksAndNoMore(t *testing.T) {
	ns, l := trunkNodes(t, 2, setup{})
	for range maxTrunks {
		if _, r := ns[0].tr.acquireTrunk(ns[1].self.ID); r != nil {
			t.Fatal(r)
		}
	}
	if _, err := ns[1].dialTrunk(ns[0], loop(1, 1)); err == nil || !strings.Contains(err.Error(), "are all that a member may have") {
		t.Error(err)
	}
	if len(l.taken) > 0 {
		t.Error("it was taken")
	}
}

// Whatever a member sends instead of the beginning of a trunk ends the connection, and nothing else.
func TestTheBeginningOfATrunkIsChecked(t *testing.T) {
	ns, l := trunkNodes(t, 2, setup{})
	good := loop(1, 1)
	frame := func(k kind, payload []byte) []byte {
		w := &bytes.Buffer{}
		_ = newFrameWriter(w, bufSize).frame(k, payload)
		return w.Bytes()
	}
	with := func(i int, v byte) []byte {
		b := good.encode()
		b[i] = v
		return b
	}
	for name, b := range map[string][]byte{
		"another kind":  frame(kindRequest, good.encode()),
		"too short":     frame(kindTrunk, good.encode()[:20]),
		"no version":    frame(kindTrunk, with(0, 0)),
		"what is zero":  frame(kindTrunk, with(2, 1)),
		"no number":     frame(kindTrunk, with(4, 0)),
		"no nonce":      frame(kindTrunk, with(8, 0)),
		"no count":      frame(kindTrunk, with(16, 0)),
		"a bad sum":     append(frame(kindTrunk, good.encode())[:frameHead+trunkHelloSize], 1, 2, 3, 4),
		"half a frame":  frame(kindTrunk, good.encode())[:20],
		"bytes of HTTP": []byte("GET / HTTP/1.1\r\nHost: of the leader, where nobody is asked\r\n\r\n"),
	} {
		c, err := dialAs(t, ns[0], helloOf(purposeTrunk, ns[1], ns[0]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		ended(t, c)
	}
	if len(l.taken) > 0 {
		t.Error("one was taken")
	}
	l.begin(ns[1], ns[0], good)
}
