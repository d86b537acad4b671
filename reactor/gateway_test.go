package reactor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// fakeLeader is at the other end of a gateway's trunks, and does what a test says.
type fakeLeader struct {
	t      testing.TB
	dialed chan *fakeTrunk
	number atomic.Uint32 // of the first loop
	closed chan struct{} // with the test
	pulses sync.WaitGroup
	until  context.Context // of the trunks; nil for ever
}

// serveForwarded starts a gateway with one loop, and its leader.
func serveForwarded(t testing.TB, network string, h hooks, change func(*Config)) (*testServer, *fakeLeader) {
	t.Helper()
	ts := serveConfig(t, network, h, nil, func(c *Config) {
		c.Engine = nil
		change(c)
	})
	return ts, forwardTo(ts)
}

func forwardTo(ts *testServer) *fakeLeader {
	f := &fakeLeader{t: ts.t, dialed: make(chan *fakeTrunk), closed: make(chan struct{})}
	f.number.Store(testNumber)
	ts.t.Cleanup(func() {
		close(f.closed)
		f.pulses.Wait()
	})
	ts.Forward(f.dial)
	return f
}

// dial makes a trunk that the test is waiting for.
func (f *fakeLeader) dial(ctx context.Context, loop int) (TrunkConn, error) {
	here, there, err := socketPair()
	if err != nil {
		return TrunkConn{}, err
	}
	k := &fakeTrunk{Conn: here, t: f.t, loop: loop, reader: trunk.NewReader(trunk.Gateway)}
	select {
	case f.dialed <- k:
		return TrunkConn{Conn: there, Number: f.number.Load() + uint32(loop), Until: f.until}, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-f.closed:
		err = errors.New("the test is over")
	}
	here.Close()
	there.Close()
	return TrunkConn{}, err
}

func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	conn := func(fd int) net.Conn {
		file := os.NewFile(uintptr(fd), "trunk")
		defer file.Close()
		c, e := net.FileConn(file)
		err = errors.Join(err, e)
		return c
	}
	return conn(fds[0]), conn(fds[1]), err
}

// accept returns the trunk that a gateway dials next. Its leader has not said anything.
func (f *fakeLeader) accept() *fakeTrunk {
	f.t.Helper()
	select {
	case k := <-f.dialed:
		f.t.Cleanup(func() { k.Close() })
		f.pulses.Go(func() { k.pulse(f.closed) })
		return k
	case <-time.After(testTimeout):
		f.t.Fatal("no trunk is dialled")
		return nil
	}
}

// welcome is accept, and the leader takes clients, whose sessions end with the trunk.
func (f *fakeLeader) welcome() *fakeTrunk {
	f.t.Helper()
	return f.welcomeAs(trunk.Welcome{Version: 1, Extensions: true, MaxJobSize: maxJob})
}

// welcomeAs is welcome by a leader that says what it is.
func (f *fakeLeader) welcomeAs(w trunk.Welcome) *fakeTrunk {
	f.t.Helper()
	k := f.accept()
	k.send(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
	return k
}

// fakeTrunk is the leader's end of a trunk.
type fakeTrunk struct {
	net.Conn
	t      testing.TB
	loop   int
	reader trunk.Reader
	rest   []byte
	buf    [64 << 10]byte
	silent atomic.Bool // pings are not answered

	mu     sync.Mutex
	writer trunk.Writer // guarded by mu
}

// pulse keeps the trunk alive.
func (k *fakeTrunk) pulse(until <-chan struct{}) {
	for k.write((*trunk.Writer).Pulse) == nil {
		select {
		case <-time.After(link.Tick / 2):
		case <-until:
			return
		}
	}
}

func (k *fakeTrunk) write(add func(*trunk.Writer)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	add(&k.writer)
	_, err := k.Write(k.writer.Bytes())
	k.writer = trunk.Writer{}
	return err
}

func (k *fakeTrunk) send(items ...trunk.Item) {
	k.t.Helper()
	err := k.write(func(w *trunk.Writer) {
		for i := range items {
			w.Add(&items[i])
		}
	})
	if err != nil {
		k.t.Errorf("sending to a gateway: %v", err)
	}
}

// next is the next item, whose data are valid until the next call.
func (k *fakeTrunk) next() (it trunk.Item, err error) {
	return k.nextUntil(time.Now().Add(testTimeout))
}

// nextKind is the kind of the next item.
func (k *fakeTrunk) nextKind() trunk.Kind {
	k.t.Helper()
	it, err := k.next()
	if err != nil {
		k.t.Fatal(err)
	}
	return it.Kind
}

func (k *fakeTrunk) nextUntil(end time.Time) (it trunk.Item, err error) {
	_ = k.SetReadDeadline(end)
	for {
		var ok bool
		if k.rest, ok, err = k.reader.Take(k.rest, &it); ok && it.Kind == trunk.KindPing {
			if !k.silent.Load() {
				k.send(trunk.Item{Kind: trunk.KindPong, Number: it.Number})
			}
			continue
		}
		if ok || err != nil {
			return it, err
		}
		n, err := k.Read(k.buf[:])
		if err != nil {
			return it, err
		}
		k.rest = k.buf[:n]
	}
}

// expect reads an item of a kind and a channel.
func (k *fakeTrunk) expect(kind trunk.Kind, channel uint32) trunk.Item {
	k.t.Helper()
	it, err := k.next()
	if err != nil || it.Kind != kind || it.Channel != channel {
		k.t.Fatalf("got %v of channel %d, %.100q, %v; want %v of %d", it.Kind, it.Channel, it.Data, err, kind, channel)
	}
	return it
}

// expectOpen reads that a client is there.
func (k *fakeTrunk) expectOpen(channel uint32) trunk.Open {
	k.t.Helper()
	o, err := trunk.ParseOpen(k.expect(trunk.KindOpen, channel).Data)
	if err != nil {
		k.t.Fatal(err)
	}
	return o
}

// expectInput reads what a client has sent, in however many items.
func (k *fakeTrunk) expectInput(channel uint32, want string) {
	k.t.Helper()
	var got strings.Builder
	for got.Len() < len(want) {
		got.Write(k.expect(trunk.KindInput, channel).Data)
	}
	if got.String() != want {
		k.t.Fatalf("channel %d has sent %.200q, want %.200q", channel, got.String(), want)
	}
}

// expectEnd waits until the gateway has ended the trunk.
func (k *fakeTrunk) expectEnd() {
	k.t.Helper()
	for {
		if it, err := k.next(); err == io.EOF || errors.Is(err, unix.ECONNRESET) {
			return
		} else if err != nil {
			k.t.Fatalf("the trunk goes on with %v, %v", it.Kind, err)
		}
	}
}

// sendUntilEnd repeats an item until the gateway has ended the trunk: the kernel may take a little more for a client
// that reads nothing, for which credit comes.
func (k *fakeTrunk) sendUntilEnd(it trunk.Item) {
	k.t.Helper()
	for range (64 << 20) / trunk.MaxData { // more than a kernel's buffers and all credit
		if k.write(func(w *trunk.Writer) { w.Add(&it) }) != nil {
			k.expectEnd()
			return
		}
	}
	k.t.Fatal("the gateway takes any number of them")
}

func TestAGatewayPassesOnWhatItsClientsAndTheLeaderSend(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		ts.until("it forwards", func() bool { n, _ := ts.Forwarding(); return n == 1 })
		for i := range 3 {
			c := ts.dial()
			o := k.expectOpen(1)
			if want := session(uint64(i + 1)); o.Session != want {
				t.Errorf("session %x, want %x", o.Session, want)
			}
			if network == "unix" && o.Network != trunk.NetworkUnix || network != "unix" && o.Client.String() != c.LocalAddr().String() {
				t.Errorf("the client is %+v", o)
			}
			c.send("put 0 0 1")
			k.expectInput(1, "put 0 0 1")
			c.send(" 1\r\nx\r\nquit\r\n")
			k.expectInput(1, " 1\r\nx\r\nquit\r\n")
			k.send(trunk.Item{Kind: trunk.KindState, Channel: 1, Data: []byte("default")}, replies(1, 12, 0, "INSERTED"), replies(1, 16, 0, " 1\r\n"))
			c.expect("INSERTED 1\r\n")
			k.send(endOf(1, 22))
			k.expect(trunk.KindClose, 1)
			c.expectEOF()
		}
	})
}

// A client does not wait on a loop without a trunk while another one has one.
func TestClientsComeToALoopWithATrunk(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(c *Config) { c.Loops = 3 })
		k := leader.welcome()
		ts.until("it forwards", func() bool { n, _ := ts.Forwarding(); return n == 1 })
		for i := range uint32(5) {
			ts.dial()
			k.expectOpen(i + 1)
		}
	})
}

func TestAGatewayTellsOfClientsThatHalfCloseAndThatGo(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		half := ts.dial()
		k.expectOpen(1)
		gone := ts.dial()
		k.expectOpen(2)
		half.send("reserve\r\n")
		k.expectInput(1, "reserve\r\n")
		half.closeWrite()
		if it := k.expect(trunk.KindHalfClose, 1); it.Flags != 0 {
			t.Errorf("the flags are %d", it.Flags)
		}
		if network == "unix" {
			gone.Close()
			k.expect(trunk.KindHalfClose, 2)
			k.send(endOf(2, 0))
		} else {
			gone.reset()
		}
		k.expect(trunk.KindClose, 2)
		if network != "unix" { // the number is not free before the leader has said so
			ts.dial()
			k.expectOpen(3)
		}
		k.send(replies(1, 9, 0, "TIMED_OUT\r\n"), endOf(1, 9))
		half.expect("TIMED_OUT\r\n")
		half.expectEOF()
		k.expect(trunk.KindClose, 1)
		ts.dial()
		k.expectOpen(1)
	})
}

func TestAGatewayReadsAClientAsFarAsTheLeaderTakesItsInput(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		c := ts.dial()
		k.expectOpen(1)
		other := ts.dial()
		k.expectOpen(2)
		body := strings.Repeat("0123456789abcdef", 1<<20/16)
		var sent sync.WaitGroup
		sent.Go(func() { c.send(body) })
		took, room := 0, trunk.FirstCredit
		for {
			n := min(room, len(body)-took)
			k.expectInput(1, body[took:took+n])
			took += n
			room -= n
			if took == len(body) {
				break
			}
			// Behind that comes nothing, but what others send.
			other.send("use a\r\n")
			k.expectInput(2, "use a\r\n")
			k.send(credit(2, 7))
			if in, _ := ts.peaks(); in > 2*stream.ReadSize+32<<10 {
				t.Fatalf("%d bytes were kept", in)
			}
			more := min(5000+took, 128<<10)
			k.send(credit(1, more))
			room += more
		}
		sent.Wait()
	})
}

// The leader hears that no more comes before it takes all that has come: a reserve might wait for ever otherwise.
func TestAGatewayTellsOfAHalfCloseAheadOfInput(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		c := ts.dial()
		k.expectOpen(1)
		body := strings.Repeat("0123456789abcdef", 2*trunk.FirstCredit/16)
		c.send(body)
		k.expectInput(1, body[:trunk.FirstCredit])
		c.closeWrite()
		if it := k.expect(trunk.KindHalfClose, 1); it.Flags != trunk.Ahead {
			t.Errorf("the flags are %d", it.Flags)
		}
		k.send(credit(1, 1000))
		k.expectInput(1, body[trunk.FirstCredit:][:1000])
		k.send(credit(1, trunk.FirstCredit))
		k.expectInput(1, body[trunk.FirstCredit+1000:])
		if it := k.expect(trunk.KindHalfClose, 1); it.Flags != 0 {
			t.Errorf("the flags of the last one are %d", it.Flags)
		}
	})
}

// flood sends replies, as credit allows, until the client takes no more. It returns how many bytes it has sent,
// and the greatest credit that there was.
func (k *fakeTrunk) flood(ts *testServer, channel uint32, reply string) (sent, most int) {
	k.t.Helper()
	for may := trunk.FirstCredit; ; {
		most = max(most, may)
		for may > 0 {
			n := min(may, len(reply), trunk.MaxData)
			k.send(replies(channel, 0, 0, reply[:n]))
			may, sent = may-n, sent+n
		}
		for may == 0 {
			if it, ok := k.poll(); ok {
				may = int(it.Number)
			} else if ts.sum().Stalled > 0 {
				return sent, most
			}
		}
	}
}

// poll is next for an item that need not come.
func (k *fakeTrunk) poll() (it trunk.Item, ok bool) {
	it, err := k.nextUntil(time.Now().Add(time.Millisecond))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Fatal(err)
	}
	return it, err == nil
}

// What waits here for a client that takes nothing is bounded by its credit, which grows as long as it takes all.
func TestAGatewayKeepsAsMuchForAClientAsItHasGivenCreditFor(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		for _, memory := range []int64{20 << 10, 0} {
			ts, leader := serveForwarded(t, network, hooks{}, func(c *Config) { c.GatewayMemory = memory })
			k := leader.welcome()
			want := relay.MaxWindow
			if memory > 0 {
				want = 2 * trunk.FirstCredit
			}
			for range 2 { // what one has used another may use when it has gone
				c := ts.dial()
				k.expectOpen(1)
				reply := strings.Repeat("r", trunk.MaxData)
				sent, _ := k.flood(ts, 1, reply)
				_, kept := ts.peaks() // the kernel may have taken the rest by now
				if n := ts.sum().PendingOutput; n > int64(want) || kept > int64(want) || kept == 0 {
					t.Errorf("%d bytes wait, and %d did; want at most %d", n, kept, want)
				}
				got := make([]byte, sent)
				c.allowRead()
				if _, err := io.ReadFull(c.r, got); err != nil || strings.Trim(string(got), "r") != "" {
					t.Fatalf("after %d bytes: %v", sent, err)
				}
				ts.until("all is taken", func() bool { return ts.sum().Stalled == 0 })
				if n := int(ts.gatewayMemory.Load()); n > want-trunk.FirstCredit {
					t.Errorf("windows were raised by %d", n)
				}
				c.Close()
				for k.nextKind() != trunk.KindHalfClose {
				}
				k.send(endOf(1, 0))
				k.expect(trunk.KindClose, 1)
				ts.until("it has gone", func() bool { return ts.gatewayMemory.Load() == 0 })
			}
		}
	})
}

// serveForwardedStopped is serveForwarded with a clock that stands still until it is put ahead.
func serveForwardedStopped(t testing.TB, network string) (ts *testServer, leader *fakeLeader, put func(time.Duration)) {
	ts, put = serveStopped(t, network, hooks{}, nil, func(c *Config) { c.Engine = nil })
	return ts, forwardTo(ts), put
}

func TestClientsWaitForATrunkForAWhile(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader, put := serveForwardedStopped(t, network)
		old, half := ts.dial(), ts.dial()
		old.send("use a\r\n")
		half.send("use b\r\n")
		half.closeWrite()
		ts.until("they are there", func() bool { n := ts.sum(); return n.PendingInput == 14 && n.Ending == 1 })
		put(LeaderPatience - 2)
		young := ts.dial()
		young.send("use ")
		ts.until("a third is there", func() bool { return ts.sum().PendingInput == 18 })
		put(1)
		silent := ts.dial()
		ts.until("a fourth is there", func() bool { return ts.sum().Connections == 4 })
		if n := ts.sum(); n.Unserved != 0 {
			t.Errorf("%d were not served", n.Unserved)
		}
		put(1)
		old.expectReset("who has waited for long")
		half.expectReset("who has waited for long, and sends no more")
		ts.until("the others are left", func() bool { n := ts.sum(); return n.Unserved == 2 && n.Connections == 2 })
		if n, without := ts.Forwarding(); n != 0 || without < LeaderPatience {
			t.Errorf("it forwards on %d trunks, and does not since %v", n, without)
		}

		k := leader.accept()
		put(LeaderPatience / 2)
		w := trunk.Welcome{Version: 1}
		k.send(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
		k.expectOpen(1)
		k.expectOpen(2)
		k.expectInput(1, "use ")
		put(time.Hour)
		if n, without := ts.Forwarding(); n != 1 || without != 0 {
			t.Errorf("it forwards on %d trunks, and does not since %v", n, without)
		}
		young.send("c\r\n")
		k.expectInput(1, "c\r\n")
		k.send(replies(1, 7, 0, "USING c\r\n"))
		young.expect("USING c\r\n")
		silent.send("quit\r\n")
		k.expectInput(2, "quit\r\n")
	})
}

// Nobody knows what has become of commands without an answer. Who has sent nothing does not notice.
func TestClientsEndWithTheirTrunk(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		end  func(*testServer, *fakeTrunk)
	}{
		{"closed", func(_ *testServer, k *fakeTrunk) { k.Close() }},
		{"retired", func(_ *testServer, k *fakeTrunk) { k.send(trunk.Item{Kind: trunk.KindRetire}); k.expectEnd() }},
		{"no item", func(_ *testServer, k *fakeTrunk) { _, _ = k.Write(make([]byte, 100)); k.expectEnd() }},
		{"a second welcome", func(_ *testServer, k *fakeTrunk) {
			w := trunk.Welcome{Version: 1}
			k.send(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
			k.expectEnd()
		}},
		{"more replies than credit", func(ts *testServer, k *fakeTrunk) {
			k.flood(ts, 1, strings.Repeat("r", trunk.MaxData))
			k.sendUntilEnd(replies(1, 0, 0, strings.Repeat("x", trunk.MaxData)))
		}},
		{"an answer to what was not sent", func(_ *testServer, k *fakeTrunk) { k.send(replies(1, 8, 0, "x")); k.expectEnd() }},
		{"a channel that is not open", func(_ *testServer, k *fakeTrunk) { k.send(replies(9, 0, 0, "x")); k.expectEnd() }},
		{"more credit than anybody has", func(_ *testServer, k *fakeTrunk) { k.send(credit(1, trunk.MaxCredit)); k.expectEnd() }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			ts, leader := serveForwarded(t, "tcp", hooks{}, func(*Config) {})
			k := leader.welcome()
			sender := ts.dial()
			k.expectOpen(1)
			silent := ts.dial()
			first := k.expectOpen(2)
			leaving := ts.dial()
			k.expectOpen(3)
			answered := ts.dial()
			k.expectOpen(4)
			answered.send("use a\r\n")
			k.expectInput(4, "use a\r\n")
			k.send(replies(4, 7, 0, "USING a\r\n"))
			sender.send("use a\r\n")
			k.expectInput(1, "use a\r\n")
			leaving.send("quit\r\n")
			k.expectInput(3, "quit\r\n")
			k.send(replies(3, 0, 0, "bye"), endOf(3, 6))
			k.expect(trunk.KindClose, 3)
			leaving.expect("bye")
			x.end(ts, k)
			sender.allowRead()
			if _, err := io.Copy(io.Discard, sender.r); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the sender's end came with %v", err)
			}
			leaving.expectEOF()
			answered.expect("USING a\r\n")
			answered.expectEOF()
			k = leader.welcome()
			if o := k.expectOpen(1); o.Session <= first.Session {
				t.Errorf("session %d follows %d", o.Session, first.Session)
			}
			silent.send("use b\r\n")
			k.expectInput(1, "use b\r\n")
			k.send(replies(1, 7, 0, "USING b\r\n"))
			silent.expect("USING b\r\n")
			if n := ts.sum(); n.TrunkLost+n.NoContact+n.Unrepeated != 2 {
				t.Errorf("%d, %d and %d were ended", n.TrunkLost, n.NoContact, n.Unrepeated)
			}
		})
	}
}

func TestALeaderThatSpeaksAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	ts, leader := serveForwarded(t, "tcp", hooks{}, func(*Config) {})
	k := leader.accept()
	w := trunk.Welcome{Version: trunk.Version + 1}
	k.send(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
	k.expectEnd()
	if n, _ := ts.Forwarding(); n != 0 {
		t.Errorf("it forwards on %d trunks", n)
	}
	leader.welcome()
	ts.until("it forwards", func() bool { n, _ := ts.Forwarding(); return n == 1 })
}

func TestAGatewayThatIsShutDownPassesOnWhatHasComeAndWaitsForTheAnswers(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		var clients []*client
		for i := range 3 {
			clients = append(clients, ts.dial())
			k.expectOpen(uint32(i + 1))
		}
		silent, waits, sends := clients[0], clients[1], clients[2]
		waits.send("reserve\r\n")
		k.expectInput(2, "reserve\r\n")
		big := strings.Repeat("b", trunk.FirstCredit)
		sends.send(big)
		k.expectInput(3, big)
		sends.send("more")
		ts.until("it is read", func() bool { return ts.sum().PendingInput == 4 })
		k.send(credit(3, 3))
		k.expectInput(3, "mor")
		shut := ts.shutDown(t.Context())
		got := make(map[uint32]string)
		for ended := 0; ended < 3; {
			if ended == 2 {
				k.send(credit(3, 1))
			}
			it, err := k.next()
			if err != nil {
				t.Fatal(err)
			}
			switch it.Kind {
			case trunk.KindInput:
				got[it.Channel] += string(it.Data)
			case trunk.KindHalfClose:
				if it.Flags != trunk.Leaves {
					t.Errorf("the flags are %d", it.Flags)
				}
				ended++
			default:
				t.Errorf("got %v", it.Kind)
			}
		}
		if len(got) != 1 || got[3] != "e" {
			t.Errorf("got %v", got)
		}
		k.send(endOf(1, 0), endOf(2, 9), replies(3, len(big)+4, 0, "INSERTED 1\r\n"))
		silent.expectEOF()
		waits.expectEOF()
		k.expect(trunk.KindClose, 1)
		k.expect(trunk.KindClose, 2)
		k.send(endOf(3, len(big)+4))
		k.expect(trunk.KindClose, 3)
		sends.expect("INSERTED 1\r\n")
		sends.expectEOF()
		if err := <-shut; err != nil {
			t.Error(err)
		}
		k.expect(trunk.KindLeave, 0)
		k.expectEnd()
	})
}

func TestAGatewayWithoutALeaderIsShutDownAtOnce(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, _ := serveForwarded(t, network, hooks{}, func(*Config) {})
		c := ts.dial()
		c.send("use a\r\n")
		ts.until("it is there", func() bool { return ts.sum().PendingInput > 0 })
		if err := <-ts.shutDown(t.Context()); err != nil {
			t.Error(err)
		}
		c.expectReset("who was not served")
	})
}

func TestAGatewayThatIsAbortedResetsItsClients(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveForwarded(t, network, hooks{}, func(*Config) {})
		k := leader.welcome()
		a := ts.dial()
		k.expectOpen(1)
		b := ts.dial()
		k.expectOpen(2)
		a.send("use a\r\n")
		k.expectInput(1, "use a\r\n")
		b.closeWrite()
		k.expect(trunk.KindHalfClose, 2)
		ts.Abort()
		a.expectReset("who has sent something")
		b.expectReset("who sends no more")
		k.expectEnd()
	})
}

func TestTheConsoleOfAGatewayIsForwarded(t *testing.T) {
	t.Parallel()
	ts, leader := serveForwarded(t, "tcp", hooks{}, func(c *Config) { c.MaxConnections = 1 })
	k := leader.welcome()
	ts.dial()
	k.expectOpen(1)
	c := ts.connect()
	if o := k.expectOpen(2); o.Network != trunk.NetworkOwn {
		t.Errorf("it is %+v", o)
	}
	c.send("stats\r\n")
	k.expectInput(2, "stats\r\n")
	k.send(replies(2, 7, 0, "OK 0\r\n\r\n"))
	c.expect("OK 0\r\n\r\n")
	ts.dial().expect("OUT_OF_MEMORY\r\n")
}

// What a client sends that waits for the trunk goes in pieces, in turn with that of others. Who sends little does
// not wait for them.
func TestBodiesTakeTurnsAndKeepNobodyElseFromTheTrunk(t *testing.T) {
	t.Parallel()
	g := newLoneGateway(t, 5)
	l, now := g.loop, g.loop.server.now()
	var sent []byte // what the leader gets
	flush := func() {
		l.serve(now)
		l.EndRound()
		b := make([]byte, relay.MaxOutput)
		n, _ := unix.Read(g.leader, b)
		sent = append(sent, b[:max(0, n)]...)
	}
	flush() // they are opened
	reader := trunk.NewReader(trunk.Gateway)
	next := func() (list []trunk.Item) {
		p, err := sent, error(nil)
		for more := true; more && err == nil; {
			var it trunk.Item
			if p, more, err = reader.Take(p, &it); more {
				list = append(list, it)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		sent = nil
		return list
	}
	if n := len(next()); n != 5 {
		t.Fatalf("%d clients are there", n)
	}
	const body = 128 << 10
	for n := range uint32(5) {
		if err := g.TakeItem(now, &trunk.Item{Kind: trunk.KindCredit, Channel: n + 1, Number: body - trunk.FirstCredit}); err != nil {
			t.Fatal(err)
		}
	}
	l.Round(false)
	for _, c := range g.conns[:4] {
		c.traffic(now, []byte(strings.Repeat("b", body)))
	}
	flush()
	if n := len(sent); n < relay.FewOutput || n > relay.FewOutput+2*trunk.MaxData {
		t.Errorf("%d bytes are sent without a pause", n)
	}
	var bytes [6]int
	for i, it := range next() {
		bytes[it.Channel] += len(it.Data)
		if it.Channel != uint32(i%4+1) || len(it.Data) != trunk.MaxData {
			t.Fatalf("item %d is %d bytes of channel %d", i, len(it.Data), it.Channel)
		}
	}
	g.conns[4].traffic(now, []byte("stats\r\n"))
	flush()
	list := next()
	if list[0].Channel != 5 || len(list) < 2 {
		t.Errorf("the first of %d items is of channel %d", len(list), list[0].Channel)
	}
	for range 20 {
		l.Round(false)
		flush()
	}
	for _, it := range append(list, next()...) {
		bytes[it.Channel] += len(it.Data)
	}
	for i, c := range g.conns[:4] {
		if bytes[i+1] != body || c.InputLen() != 0 {
			t.Errorf("of client %d, %d bytes were sent", i, bytes[i+1])
		}
	}
}

// A gateway does not know what its clients have reserved, and ends them when the grace is over.
func TestAGatewayEndsClientsOfARemovedAuthority(t *testing.T) {
	t.Parallel()
	ts, leader := serveForwarded(t, "tcp", hooks{retire: time.Millisecond}, func(c *Config) { c.Grace = time.Millisecond })
	addr := ts.serveTLS(mutualTLS())
	k := leader.welcome()
	c := dial(t, tlsAddr{addr.Addr, addr.as(pki().ca.Issue("bad", nil))})
	k.expectOpen(1)
	other := ts.dial()
	k.expectOpen(2)
	ts.Reverify(func(all []string) map[string]error { return map[string]error{all[0]: errors.New("of the test")} })
	k.expect(trunk.KindClose, 1)
	k.send(endOf(1, 0))
	c.expectEOF()
	other.send("use a\r\n")
	k.expectInput(2, "use a\r\n")
	ts.until("it is counted", func() bool { return ts.sum().Unverified == 1 })
}

// What a gateway does for a command allocates nothing.
func TestForwardingAllocatesNothing(t *testing.T) {
	g := newLoneGateway(t, 10)
	l, now := g.loop, g.loop.server.now()
	in, out := []byte("delete 1\r\n"), []byte("DELETED\r\n")
	buf := make([]byte, 64<<10)
	var w trunk.Writer
	if n := testing.AllocsPerRun(100, func() {
		l.Round(false)
		for i := range g.conns {
			g.traffic(i, now, in)
			g.answer(i, &w, out)
		}
		l.serve(now)
		l.EndRound()
		drain(g.leader, buf)
		g.line.Received(now, w.Bytes())
		w.Sent(w.Len())
		l.serve(now)
		for _, fd := range g.clients {
			drain(fd, buf)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
