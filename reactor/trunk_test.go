package reactor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// recordedEnd is a link.End that keeps what it gets.
type recordedEnd struct {
	trunk *link.Link
	reply func(*trunk.Item) error // may be nil

	mu        sync.Mutex
	items     []trunk.Item
	writables int
	errs      []error // of ended
}

func (e *recordedEnd) TakeItem(_ time.Duration, it *trunk.Item) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := *it
	kept.Data = slices.Clone(it.Data)
	e.items = append(e.items, kept)
	if e.reply != nil {
		return e.reply(&kept)
	}
	return nil
}

func (e *recordedEnd) HasRoom(time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writables++
}

func (e *recordedEnd) Disconnect(_ time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *recordedEnd) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.items)
}

// err is with what the trunk has ended, nil if it has not.
func (e *recordedEnd) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.errs...)
}

// socket is a net.Conn that can be exchanged, and what has a tls.Conn above it.
type socket struct{ net.Conn }

// trunkPeer is the other side of a trunk.
type trunkPeer struct {
	net.Conn
	t      testing.TB
	writer trunk.Writer
	reader trunk.Reader
	rest   []byte
}

// layTest makes one side of a new connection a trunk of the server's first loop, and returns the other one.
func (ts *testServer) layTest(secure bool, e *recordedEnd, change func(*TrunkConn)) *trunkPeer {
	ts.t.Helper()
	there, here := tcpPair(ts.t)
	p := &trunkPeer{Conn: there, t: ts.t, reader: trunk.NewReader(trunk.Leader)}
	c := TrunkConn{Conn: here, Peer: "b"}
	if secure {
		s := &socket{here}
		c.TLS, c.Exchange = tls.Server(s, serverTLS()), func(c net.Conn) { s.Conn = c }
		shaken := make(chan error, 1)
		go func() { shaken <- c.TLS.Handshake() }()
		client := tls.Client(there, tlsClient())
		if err := errors.Join(client.Handshake(), <-shaken); err != nil {
			ts.t.Fatal(err)
		}
		p.Conn = client
	}
	if change != nil {
		change(&c)
	}
	if err := ts.layTrunk(ts.loops[0], c, trunk.Gateway, func(t *link.Link) link.End {
		e.trunk = t
		return e
	}); err != nil {
		ts.t.Fatal(err)
	}
	return p
}

// on runs f on the trunk's loop.
func (ts *testServer) on(f func()) {
	ts.onLoops(func(l *loop) {
		if l == ts.loops[0] {
			f()
		}
	})
}

// frames are items as they are sent.
func (p *trunkPeer) frames(items ...trunk.Item) []byte {
	for i := range items {
		p.writer.Add(&items[i])
	}
	b := slices.Clone(p.writer.Bytes())
	p.writer.Sent(len(b))
	return b
}

func (p *trunkPeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Error(err)
	}
}

// read returns the next item.
func (p *trunkPeer) read() (it trunk.Item, err error) {
	for {
		rest, ok, err := p.reader.Take(p.rest, &it)
		if p.rest = rest; ok || err != nil {
			return it, err
		}
		b := make([]byte, 8000)
		n, err := p.Conn.Read(b)
		if n == 0 {
			return it, err
		}
		p.rest = b[:n]
	}
}

func (p *trunkPeer) expect(want ...trunk.Item) {
	p.t.Helper()
	for i, w := range want {
		if got, err := p.read(); err != nil || !sameItem(got, w) {
			p.t.Fatalf("item %d is %+v, %v; want %+v", i, got, err, w)
		}
	}
}

func sameItem(a, b trunk.Item) bool {
	return a.Kind == b.Kind && a.Flags == b.Flags && a.Channel == b.Channel && a.Number == b.Number && bytes.Equal(a.Data, b.Data)
}

// secured runs a test without TLS and with it.
func secured(t *testing.T, f func(t *testing.T, secure bool)) {
	t.Run("plain", func(t *testing.T) { f(t, false) })
	t.Run("tls", func(t *testing.T) { f(t, true) })
}

// serveTrunk serves with a clock that stands still.
func serveTrunk(t testing.TB) (ts *testServer, put func(time.Duration)) {
	return serveStopped(t, "unix", hooks{}, nil, func(*Config) {})
}

var (
	toLeader = []trunk.Item{
		{Kind: trunk.KindInput, Channel: 1, Data: []byte("use a\r\n")},
		{Kind: trunk.KindCredit, Channel: 2, Number: 77},
		{Kind: trunk.KindHalfClose, Channel: 1},
		{Kind: trunk.KindInput, Channel: 3, Data: bytes.Repeat([]byte("x"), 1000)},
		{Kind: trunk.KindPing, Number: 5},
	}
	toGateway = []trunk.Item{
		{Kind: trunk.KindReplies, Channel: 1, Number: 7, Data: []byte("USING a\r\n")},
		{Kind: trunk.KindReplies, Channel: 3, Flags: trunk.More, Data: bytes.Repeat([]byte("y"), trunk.MaxData)},
		{Kind: trunk.KindEnd, Channel: 2},
		{Kind: trunk.KindPong, Number: 5},
	}
)

func TestATrunkBringsItemsHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, secure bool) {
		ts, _ := serveTrunk(t)
		e := new(recordedEnd)
		p := ts.layTest(secure, e, nil)
		b := p.frames(toLeader...)
		for at := range b {
			p.send(b[at : at+1])
		}
		for cut := 1; cut < len(b); cut += 37 {
			p.send(b[:cut])
			p.send(b[cut:])
		}
		want := slices.Repeat(toLeader, 1+(len(b)+35)/37)
		ts.until("all has come", func() bool { return e.count() >= len(want) })
		if !slices.EqualFunc(e.items, want, sameItem) {
			t.Errorf("%d items came, and not those that were sent", e.count())
		}
		ts.on(func() {
			for i := range toGateway {
				e.trunk.Send(&toGateway[i])
			}
		})
		p.expect(toGateway...)
	})
}

// What was read too early is the trunk's, wherever it is.
func TestTheOtherEndOfATrunkIsAskedWhetherItIsThere(t *testing.T) {
	t.Parallel()
	ts, _ := serveStopped(t, "unix", hooks{}, nil, func(c *Config) { c.KeepAlive = time.Minute })
	e := new(recordedEnd)
	p := ts.layTest(false, e, nil)
	p.send(p.frames(toLeader[0]))
	ts.until("the trunk is there", func() bool { return e.count() == 1 })
	ts.on(func() {
		for name, want := range map[int]int{unix.TCP_KEEPINTVL: 10, unix.TCP_KEEPCNT: 3} {
			if n, err := unix.GetsockoptInt(e.trunk.FD(), unix.IPPROTO_TCP, name); err != nil || n != want {
				t.Errorf("option %d is %d, %v, want %d", name, n, err, want)
			}
		}
	})
}

func TestWhatCameBeforeTheTrunkBelongsToIt(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, secure bool) {
		ts, _ := serveTrunk(t)
		var p trunkPeer
		b := p.frames(toLeader...)
		for cut := 0; cut <= len(b); cut += 97 {
			e := new(recordedEnd)
			var before net.Conn
			peer := ts.layTest(secure, e, func(c *TrunkConn) {
				c.Rest = b[:cut]
				before = c.Conn
			})
			peer.send(b[cut:])
			ts.until("all has come", func() bool { return e.count() == len(toLeader) })
			if _, err := before.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the socket is still open: %v", err)
			}
		}
	})
}

// What TLS has read beyond what was asked of it stays in it.
func TestWhatTLSHasReadTooEarlyBelongsToTheTrunk(t *testing.T) {
	t.Parallel()
	ts, _ := serveTrunk(t)
	e := new(recordedEnd)
	var p trunkPeer
	b := p.frames(toLeader...)
	ready := make(chan *tls.Conn, 1)
	there, here := tcpPair(t)
	go func() {
		c := tls.Client(there, tlsClient())
		_, err := c.Write(append([]byte("hello"), b...))
		if err != nil {
			t.Error(err)
		}
		ready <- c
	}()
	s := &socket{here}
	c := tls.Server(s, serverTLS())
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	defer (<-ready).Close()
	if err := ts.layTrunk(ts.loops[0], TrunkConn{Conn: here, TLS: c, Exchange: func(c net.Conn) { s.Conn = c }}, trunk.Gateway,
		func(*link.Link) link.End { return e }); err != nil {
		t.Fatal(err)
	}
	ts.until("all has come", func() bool { return e.count() == len(toLeader) })
}

// tcpPair returns both ends of a connection.
func tcpPair(t testing.TB) (there, here net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if there, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	_ = there.SetDeadline(time.Now().Add(testTimeout))
	if here, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return there, here
}

// expectEnd makes sure that the trunk ends, once, with an error that names its peer.
func (ts *testServer) expectEnd(e *recordedEnd, want error) {
	ts.t.Helper()
	ts.until("the trunk ends", func() bool { return e.err() != nil })
	ts.on(func() {
		e.trunk.Send(&toGateway[0])
		if l := ts.loops[0]; slices.Contains(l.links.All(), e.trunk) || l.links.HasOutput() {
			ts.t.Error("the loop still has the trunk")
		}
	})
	if err := e.err(); len(e.errs) != 1 || !errors.Is(err, want) || !strings.Contains(err.Error(), "the trunk with b has ended: ") {
		ts.t.Errorf("ended %d times, with %v; want %v", len(e.errs), err, want)
	}
}

// over waits for the end of a connection, whatever comes before.
func (p *trunkPeer) over() error {
	_, err := io.Copy(io.Discard, p.Conn)
	return err
}

func TestATrunkEnds(t *testing.T) {
	t.Parallel()
	refusal := errors.New("this is not for me")
	cause := errors.New("it was removed")
	for name, test := range map[string]struct {
		want error
		end  func(ts *testServer, e *recordedEnd, p *trunkPeer)
	}{
		"with the other side": {link.ErrOtherSide, func(_ *testServer, _ *recordedEnd, p *trunkPeer) { p.Close() }},
		"within a frame": {link.ErrOtherSide, func(_ *testServer, _ *recordedEnd, p *trunkPeer) {
			p.send(p.frames(toLeader...)[:100])
			p.Close()
		}},
		"with garbage": {trunk.ErrFormat, func(_ *testServer, _ *recordedEnd, p *trunkPeer) {
			p.send(bytes.Repeat([]byte("garbage "), 10))
		}},
		"with a changed frame": {trunk.ErrFormat, func(_ *testServer, _ *recordedEnd, p *trunkPeer) {
			b := p.frames(toLeader...)
			b[100]++
			p.send(b)
		}},
		"with what is not for a leader": {trunk.ErrFormat, func(_ *testServer, _ *recordedEnd, p *trunkPeer) {
			p.send(p.frames(toGateway[0]))
		}},
		"with what its end refuses": {refusal, func(ts *testServer, e *recordedEnd, p *trunkPeer) {
			ts.on(func() { e.reply = func(*trunk.Item) error { return refusal } })
			p.send(p.frames(toLeader...))
		}},
		"with a shutdown": {ErrClosed, func(ts *testServer, e *recordedEnd, _ *trunkPeer) {
			ts.on(func() { e.trunk.Send(&toGateway[0]) })
			if err := ts.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}},
		"with an abort":      {errAborted, func(ts *testServer, _ *recordedEnd, _ *trunkPeer) { ts.Abort() }},
		"when it is told to": {cause, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secured(t, func(t *testing.T, secure bool) {
				ts, _ := serveTrunk(t)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				e := new(recordedEnd)
				told := make(chan error, 2)
				p := ts.layTest(secure, e, func(c *TrunkConn) { c.Until, c.Ended = ctx, func(err error) { told <- err } })
				ts.on(func() {})
				if test.end == nil {
					cancel(cause)
				} else {
					test.end(ts, e, p)
				}
				if ts.aborting.Load() || test.want == ErrClosed {
					if err := e.err(); len(e.errs) != 1 || !errors.Is(err, test.want) {
						t.Errorf("ended %d times, with %v; want %v", len(e.errs), err, test.want)
					}
				} else {
					ts.expectEnd(e, test.want)
				}
				if err := <-told; !errors.Is(err, test.want) || len(told) > 0 {
					t.Errorf("who has brought it is told %v; want %v, once", err, test.want)
				}
				switch test.want {
				case ErrClosed:
					p.expect(toGateway[0])
				case errAborted:
					if err := p.over(); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("the other side was not reset: %v", err)
					}
				default:
					_ = p.over()
				}
			})
		})
	}
}

func TestAServerThatIsShutDownTakesNoTrunk(t *testing.T) {
	t.Parallel()
	ts, _ := serveTrunk(t)
	if err := ts.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	there, here := tcpPair(t)
	var told error
	if err := ts.layTrunk(ts.loops[0], TrunkConn{Conn: here, Ended: func(err error) { told = err }}, trunk.Leader, nil); err != ErrClosed || told != err {
		t.Error(err, told)
	}
	if n, err := there.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		t.Error(n, err)
	}
}

// Both sides send a pulse each second, and end a trunk on which nothing has come for three.
func TestATrunkOfASilentSideEnds(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, secure bool) {
		ts, put := serveTrunk(t)
		e := new(recordedEnd)
		p := ts.layTest(secure, e, nil)
		one := p.frames(toLeader[0])
		for i := range 10 {
			p.send(one)
			ts.until("it has come", func() bool { return e.count() == i+1 })
			put(link.Tick)
			p.pulse()
		}
		for range link.Patience - 1 {
			put(10 * link.Tick) // a server that was stopped meanwhile has seen one tick
			p.pulse()
		}
		if err := e.err(); err != nil {
			t.Fatalf("ended too early, with %v", err)
		}
		put(link.Tick)
		ts.expectEnd(e, link.ErrSilence)
	})
}

// pulse reads one pulse.
func (p *trunkPeer) pulse() {
	p.t.Helper()
	var w trunk.Writer
	w.Pulse()
	b := make([]byte, len(w.Bytes()))
	if _, err := io.ReadFull(p.Conn, b); err != nil || !bytes.Equal(b, w.Bytes()) {
		p.t.Fatalf("%x came, %v", b, err)
	}
}

func TestATrunkIsServedWhileNothingExecutes(t *testing.T) {
	t.Parallel()
	ts, _ := serveTrunk(t)
	e := new(recordedEnd)
	p := ts.layTest(false, e, nil)
	ts.Hold(true)
	ts.on(func() {
		e.reply = func(*trunk.Item) error {
			e.trunk.Send(&toGateway[0])
			return nil
		}
	})
	p.send(p.frames(toLeader[0]))
	p.expect(toGateway[0])
	ts.Hold(false)
}

// fill sends on the trunk until there is no room, and returns how many items it has sent.
func (ts *testServer) fill(e *recordedEnd, from uint32) (sent uint32) {
	item := trunk.Item{Kind: trunk.KindReplies, Channel: 1, Data: bytes.Repeat([]byte("x"), trunk.MaxData)}
	ts.on(func() {
		for e.trunk.Room() > 0 && e.err() == nil {
			sent++
			item.Number = from + sent
			e.trunk.Send(&item)
		}
	})
	return sent
}

// A side that takes nothing is not sent more than may wait, and later all of it. Others are served meanwhile.
func TestATrunkThatIsNotReadWaits(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, secure bool) {
		ts, _ := serveTrunk(t)
		e := new(recordedEnd)
		p := ts.layTest(secure, e, nil)
		sent := uint32(0)
		ts.until("the socket takes nothing", func() (full bool) {
			sent += ts.fill(e, sent)
			ts.on(func() {
				full = e.trunk.Pending() > 0 // behind the end of a round
				if n := e.trunk.Pending(); n > relay.MaxOutput+2*trunk.MaxData {
					t.Fatalf("%d bytes wait", n)
				}
			})
			return full
		})
		ts.dial().do("use a\r\n", "USING a\r\n")
		for n := range sent {
			it, err := p.read()
			if err != nil || it.Number != n+1 || len(it.Data) != trunk.MaxData {
				t.Fatalf("item %d, %v; want %d of %d", it.Number, err, n+1, sent)
			}
		}
		ts.until("it is told that there is room", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.writables > 0
		})
	})
}

// Whoever lives and reads nothing keeps nobody's output.
func TestATrunkThatIsNeverReadEnds(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, secure bool) {
		ts, put := serveTrunk(t)
		e := new(recordedEnd)
		p := ts.layTest(secure, e, nil)
		came := 0
		ts.until("the trunk ends", func() bool {
			ts.fill(e, 0)
			p.send(p.frames(toLeader[0]))
			came++
			ts.until("it has come", func() bool { return e.count() == came })
			put(link.Tick)
			return e.err() != nil
		})
		ts.expectEnd(e, link.ErrBlocked)
	})
}

// All that a round has to say leaves in one frame.
func TestARoundSaysAllAtOnce(t *testing.T) {
	t.Parallel()
	ts, _ := serveTrunk(t)
	e := new(recordedEnd)
	p := ts.layTest(false, e, nil)
	const n = 100
	ts.on(func() {
		e.reply = func(*trunk.Item) error {
			e.trunk.Send(&toGateway[0])
			return nil
		}
	})
	p.send(p.frames(slices.Repeat(toLeader[:1], n)...))
	want := 12 + n*(trunk.ItemHead+len(toGateway[0].Data))
	b := make([]byte, 2*want)
	got, err := io.ReadAtLeast(p.Conn, b, want)
	if err != nil || got != want {
		t.Fatalf("%d bytes, %v; want one frame of %d", got, err, want)
	}
}
