package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

type contextT = context.Context

func quietLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func snapshotOf(from, to *node) *raftpb.Message {
	m := message(raftpb.MsgSnap, from, to)
	m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(8)), Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{101, 102}},
	}}
	return m
}

// taking starts two nodes of which the second takes snapshots by a function.
func taking(t *testing.T, s setup, take func(m *raftpb.Message, r io.Reader) error) []*node {
	t.Helper()
	s.change = func(_ int, n *node, _ *Config) { n.take = take }
	ns := nodes(t, 2, s)
	meet(t, ns...)
	return ns
}

func discard(_ *raftpb.Message, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// once checks that a transfer's end is told, and only once.
func once(t *testing.T, n *node, want bool) {
	t.Helper()
	if ok := <-n.sent; ok != want {
		t.Errorf("the transfer was told to be %v", ok)
	}
	_ = n.tr.Close() // after which nothing is told any more
	if len(n.sent) > 0 {
		t.Error("its end was told twice")
	}
}

func TestASnapshotArrivesWhole(t *testing.T) {
	for _, size := range []int{0, 1, maxChunk, 10<<20 + 3} {
		want := bytes.Repeat([]byte("snapshot"), size/8+1)[:size]
		var got []byte
		var gotMessage *raftpb.Message
		ns := taking(t, setup{timing: patient}, func(m *raftpb.Message, r io.Reader) (err error) {
			gotMessage = m
			got, err = io.ReadAll(r)
			return err
		})
		m := snapshotOf(ns[0], ns[1])
		ns[0].tr.SendSnapshot(m, func(w io.Writer, _ func() ([]byte, error)) error {
			for b := want; len(b) > 0; b = b[min(len(b), 100_000):] {
				if n, err := w.Write(b[:min(len(b), 100_000)]); err != nil || n != min(len(b), 100_000) {
					t.Errorf("%d, %v", n, err)
				}
			}
			return nil
		})
		once(t, ns[0], true)
		if !bytes.Equal(got, want) || !sameMessage(m, gotMessage) {
			t.Errorf("%d bytes came with %v, want %d with %v", len(got), gotMessage, len(want), m)
		}
	}
}

func TestASenderThatFailsLeavesTheReceiverWithoutAnEnd(t *testing.T) {
	took := make(chan error, 1)
	ns := taking(t, setup{timing: patient}, func(_ *raftpb.Message, r io.Reader) error {
		b, err := io.ReadAll(r)
		if string(b) != "some" {
			t.Errorf("%q came", b)
		}
		took <- err
		return err
	})
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, _ = w.Write([]byte("some"))
		return errors.New("the disk is broken")
	})
	if err := <-took; err == nil { // io.ErrUnexpectedEOF, or a reset if the sender had something unread
		t.Error("the receiver takes what came for the whole")
	}
	ns[0].logs("the disk is broken")
	once(t, ns[0], false)
}

func TestAReceiverThatFailsEndsTheTransferAndSaysWhy(t *testing.T) {
	for name, take := range map[string]func(*raftpb.Message, io.Reader) error{
		"the disk is full": func(*raftpb.Message, io.Reader) error { return errors.New("the disk is full") },
		"checksum of file 3": func(m *raftpb.Message, r io.Reader) error {
			_ = discard(m, io.LimitReader(r, 5<<20))
			return errors.New("checksum of file 3")
		},
		"was not read to its end":            func(*raftpb.Message, io.Reader) error { return nil },
		strings.Repeat("long ", maxText/5-1): func(*raftpb.Message, io.Reader) error { return errors.New(strings.Repeat("long ", 1000)) },
	} {
		ns := taking(t, setup{timing: patient}, take)
		ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
			for {
				if _, err := w.Write(make([]byte, 100_000)); err != nil {
					return err
				}
			}
		})
		ns[0].logs(name)
		once(t, ns[0], false)
	}
}

func TestATransferThroughACutIsReported(t *testing.T) {
	net := newTestNetwork(1)
	defer net.Close()
	ns := taking(t, setup{timing: patient, net: net}, discard)
	defer func() { _ = ns[1].tr.Close() }()
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write(make([]byte, 1<<20))
		net.Cut("n1", "n2")
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		return err
	})
	once(t, ns[0], false)
}

// Neither side waits for the other without end: not for bytes, and not for the last word.
func TestATransferThatStandsStillIsReported(t *testing.T) {
	t.Parallel()
	for name, direction := range map[string][2]string{"towards the receiver": {"n1", "n2"}, "towards the sender": {"n2", "n1"}} {
		net := newTestNetwork(1)
		begun, took := make(chan struct{}, 1), make(chan error, 10)
		ns := taking(t, setup{net: net, timing: patient.but(func(tm *timing) { tm.stall, tm.dead = 2*time.Second, 2*time.Second })},
			func(m *raftpb.Message, r io.Reader) error {
				select {
				case begun <- struct{}{}:
				default:
				}
				err := discard(m, r)
				took <- err
				return err
			})
		send := func() {
			ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
				for {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return err
					}
				}
			})
		}
		for begins := false; !begins; {
			send()
			select {
			case <-begun:
				begins = true
			case <-ns[0].sent: // the machine stood still before it could begin
			}
		}
		net.Block(direction[0], direction[1])
		if ok := <-ns[0].sent; ok {
			t.Errorf("%s: it was told to have arrived", name)
		}
		if err := <-took; err == nil {
			t.Errorf("%s: the receiver saw an end", name)
		}
		_ = ns[0].tr.Close()
		_ = ns[1].tr.Close()
		net.Close()
	}
}

func TestASenderThatDoesNotGoOnIsGivenUp(t *testing.T) {
	t.Parallel()
	ns := taking(t, setup{timing: patient.but(func(tm *timing) { tm.stall = 2 * time.Second })}, discard)
	gone := make(chan struct{})
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write([]byte("some"))
		<-gone
		return err
	})
	ns[1].logs("the sender of the snapshot does not go on")
	close(gone)
	once(t, ns[0], false)
}

func TestAReceiverThatDoesNotFinishIsGivenUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	ns := taking(t, setup{timing: patient.but(func(tm *timing) { tm.finish = time.Second })}, func(m *raftpb.Message, r io.Reader) error {
		err := discard(m, r)
		<-release // its disk hangs
		return err
	})
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(io.Writer, func() ([]byte, error)) error { return nil })
	ns[0].logs("the member did not finish in time")
	once(t, ns[0], false)
	close(release)
}

// renewed is a connection that counts how often its time without a byte begins anew.
type renewed struct {
	net.Conn
	times atomic.Int64
}

func (c *renewed) SetReadDeadline(at time.Time) error {
	c.times.Add(1)
	return c.Conn.SetReadDeadline(at)
}

// A receiver that has everything and goes on working gives signs of life.
func TestAReceiverThatTakesLongIsWaitedFor(t *testing.T) {
	var last atomic.Pointer[renewed] // of the sender's connections
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, n *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = func(ctx contextT, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				if err != nil {
					return nil, err
				}
				r := &renewed{Conn: c}
				last.Store(r)
				return r, nil
			}
		}
		n.take = func(m *raftpb.Message, r io.Reader) error {
			err := discard(m, r)
			c := last.Load()
			few := c.times.Load() + 5
			for end := time.Now().Add(time.Minute); c.times.Load() < few && err == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					err = errors.New("the sender has heard nothing")
				}
			}
			return err
		}
	}})
	meet(t, ns...)
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(io.Writer, func() ([]byte, error)) error { return nil })
	once(t, ns[0], true)
}

func TestALaterTransferEndsTheEarlierOneWithoutAWord(t *testing.T) {
	var mu sync.Mutex
	running := 0
	ns := taking(t, setup{timing: patient}, func(m *raftpb.Message, r io.Reader) error {
		mu.Lock()
		if running++; running > 1 {
			t.Error("two snapshots are taken at a time")
		}
		mu.Unlock()
		err := discard(m, r)
		mu.Lock()
		running--
		mu.Unlock()
		return err
	})
	endless := func(w io.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				return err
			}
		}
	}
	for range maxStreams - 1 { // a transfer that has ended may still have its place at the receiver
		begun := make(chan struct{})
		ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
			_, _ = w.Write([]byte("some"))
			close(begun)
			return endless(w)
		})
		<-begun
	}
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write([]byte("the last one"))
		return err
	})
	once(t, ns[0], true)
}

func TestASnapshotOfAnEarlierTermDoesNotEndOneOfALaterTerm(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	ns := nodes(t, 3, setup{timing: patient, change: func(_ int, n *node, _ *Config) {
		n.take = func(m *raftpb.Message, r io.Reader) error {
			close(begun)
			<-release
			return discard(m, r)
		}
	}})
	meet(t, ns...)
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(io.Writer, func() ([]byte, error)) error { return nil })
	<-begun
	old := snapshotOf(ns[2], ns[1])
	old.Term = new(uint64(4))
	ns[2].tr.SendSnapshot(old, func(io.Writer, func() ([]byte, error)) error { return nil })
	once(t, ns[2], false)
	ns[2].logs("a snapshot of a later term comes in")
	close(release)
	once(t, ns[0], true)
}

func TestATransferToAStrangerIsReported(t *testing.T) {
	ns := taking(t, setup{timing: patient}, discard)
	m := snapshotOf(ns[0], ns[1])
	m.To = new(uint64(999))
	ns[0].tr.SendSnapshot(m, nil)
	once(t, ns[0], false)
}

func TestATransferToAMemberThatIsRemovedIsReported(t *testing.T) {
	ns := taking(t, setup{timing: patient}, discard)
	begun := make(chan struct{})
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write([]byte("some"))
		close(begun)
		for err == nil {
			_, err = w.Write(make([]byte, 1000))
		}
		return err
	})
	<-begun
	ns[0].tr.SetPeers(2, nil)
	once(t, ns[0], false)
}

func TestSnapshotStreamsThatNoMemberSendsAreRefused(t *testing.T) {
	ns := taking(t, setup{timing: patient}, func(*raftpb.Message, io.Reader) error {
		t.Error("it reached the handler")
		return nil
	})
	wrong := snapshotOf(ns[1], ns[1])
	for name, b := range map[string][]byte{
		"without its message":        encodeFrame(kindChunk, []byte("x")),
		"begins with a MsgHeartbeat": encodeFrame(kindMessage, encodeMessage(t, message(raftpb.MsgHeartbeat, ns[0], ns[1]))),
		"on a connection from":       encodeFrame(kindMessage, encodeMessage(t, wrong)),
		"kind 6 is not expected":     encodeFrame(kindRequest, nil),
	} {
		c, err := dialAs(t, ns[1], helloOf(purposeSnapshot, ns[0], ns[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := readDone(c, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
		_ = c.Close()
		ns[1].logs(name)
	}
}

func TestSnapshotStreamsAreBounded(t *testing.T) {
	release := make(chan struct{})
	ns := taking(t, setup{timing: patient}, func(m *raftpb.Message, r io.Reader) error {
		<-release
		return discard(m, r)
	})
	var last error
	for range maxStreams + 1 {
		_, last = dialAs(t, ns[1], helloOf(purposeSnapshot, ns[0], ns[1]))
	}
	if last == nil || last.Error() != "4 connections for snapshot are all that this node serves" {
		t.Errorf("%v", last)
	}
	close(release)
}

func echo(_ context.Context, req []byte) ([]byte, error) { return req, nil }

// asked starts a node that answers control requests by a function.
func asked(t *testing.T, tm timing, control func(context.Context, []byte) ([]byte, error)) *node {
	t.Helper()
	return nodes(t, 1, setup{timing: tm, change: func(_ int, n *node, _ *Config) { n.control = control }})[0]
}

func TestControlRequestsAreAnswered(t *testing.T) {
	n := asked(t, patient, echo)
	for _, size := range []int{0, 2, 5000, MaxControl} {
		req := bytes.Repeat([]byte("r"), size)
		resp, err := Call(t.Context(), asks(nil), n.self.Addr, req)
		if err != nil || !bytes.Equal(resp, req) {
			t.Errorf("%d bytes, %v; want %d", len(resp), err, size)
		}
	}
	if _, err := Call(t.Context(), asks(nil), n.self.Addr, make([]byte, MaxControl+1)); err == nil {
		t.Error("a request over the limit was sent")
	}
}

func TestAControlResponseMayFollowAStream(t *testing.T) {
	n := asked(t, patient, echo)
	var end error
	n.streams = func(req []byte, stream io.Writer) ([]byte, error) {
		time.Sleep(3 * patient.pulse) // some pulses come first
		for range 100 {
			if _, err := stream.Write(req); err != nil {
				return nil, err
			}
		}
		return []byte("whole"), end
	}
	req := bytes.Repeat([]byte("r"), 100_000)
	var got bytes.Buffer
	resp, err := Fetch(t.Context(), asks(nil), n.self.Addr, req, &got)
	if err != nil || string(resp) != "whole" || !bytes.Equal(got.Bytes(), bytes.Repeat(req, 100)) {
		t.Errorf("%d bytes and %q, %v", got.Len(), resp, err)
	}
	if _, err := Call(t.Context(), asks(nil), n.self.Addr, req); err == nil {
		t.Error("a stream that nobody expects was taken")
	}
	full := errors.New("the disk is full")
	if _, err := Fetch(t.Context(), asks(nil), n.self.Addr, req, brokenWriter{full}); !errors.Is(err, full) {
		t.Errorf("%v, want what the writer says", err)
	}
	end = errors.New("it cannot be read")
	if _, err := Fetch(t.Context(), asks(nil), n.self.Addr, req, io.Discard); err == nil || err.Error() != end.Error() {
		t.Errorf("%v, want %v", err, end)
	}
}

// brokenWriter is a writer that fails.
type brokenWriter struct{ err error }

func (f brokenWriter) Write([]byte) (int, error) { return 0, f.err }

func TestControlErrorsAreTold(t *testing.T) {
	for text, control := range map[string]func(context.Context, []byte) ([]byte, error){
		"n3 is no member":              func(context.Context, []byte) ([]byte, error) { return nil, errors.New("n3 is no member") },
		"a response of 1048577 bytes":  func(context.Context, []byte) ([]byte, error) { return make([]byte, MaxControl+1), nil },
		strings.Repeat("x", maxText-1): func(context.Context, []byte) ([]byte, error) { return nil, errors.New(strings.Repeat("x", 10_000)) },
	} {
		n := asked(t, patient, control)
		_, err := Call(t.Context(), asks(nil), n.self.Addr, nil)
		if r := (*RemoteError)(nil); !errors.As(err, &r) || !strings.Contains(r.Text, text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

func TestCallEndsWithItsContextAndTheHandlersEndsWithIt(t *testing.T) {
	begun, over := make(chan struct{}), make(chan struct{})
	n := asked(t, patient, func(ctx context.Context, _ []byte) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		close(over)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := Call(ctx, asks(nil), n.self.Addr, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-over
}

func TestControlRequestsAreBounded(t *testing.T) {
	release := make(chan struct{})
	var begun sync.WaitGroup
	begun.Add(maxControl)
	n := asked(t, patient, func(context.Context, []byte) ([]byte, error) {
		begun.Done()
		<-release
		return nil, nil
	})
	var all sync.WaitGroup
	for range maxControl {
		all.Go(func() {
			if _, err := Call(t.Context(), asks(nil), n.self.Addr, nil); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	if _, err := Call(t.Context(), asks(nil), n.self.Addr, nil); err == nil || err.Error() != "16 connections for control are all that this node serves" {
		t.Errorf("%v", err)
	}
	close(release)
	all.Wait()
}

func TestControlConnectionsThatDoNotAskAreEnded(t *testing.T) {
	t.Parallel()
	n := asked(t, patient.but(func(tm *timing) { tm.stall = time.Second / 2 }), func(context.Context, []byte) ([]byte, error) {
		t.Error("it reached the handler")
		return nil, nil
	})
	half := encodeFrame(kindRequest, make([]byte, 1000))[:500]
	changed := encodeFrame(kindRequest, []byte("{}"))
	changed[9] ^= 1
	for _, b := range [][]byte{nil, half, changed, encodeFrame(kindMessage, make([]byte, 72)), bytes.Repeat([]byte("x"), 100)} {
		c, err := dialAs(t, n, hello{speaks: spoken(), purpose: purposeControl})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		ended(t, c)
	}
}

func TestCallToWhatIsNoNodeFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer func() { _ = l.Close() }()
	answers := []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n", string(encodeReply(1, welcome, "")), string(encodeReply(1, welcome, "")) + strings.Repeat("x", 50)}
	all.Go(func() {
		for _, a := range answers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, helloHead))
			_, _ = c.Write([]byte(a))
			_ = c.Close()
		}
	})
	for _, a := range answers {
		if resp, err := Call(t.Context(), asks(nil), l.Addr().String(), nil); err == nil {
			t.Errorf("%q was taken for the response %q", a, resp)
		}
	}
	if _, err := Call(t.Context(), asks(nil), "192.0.2.1:1", nil); !errors.Is(err, ErrPlain) {
		t.Errorf("off loopback without TLS: %v", err)
	}
}

// A sender whose message has a context is told what the receiver has before it writes.
func TestASenderIsToldWhatTheReceiverHas(t *testing.T) {
	for _, size := range []int{1, maxChunk + 1, 3 << 20} {
		want := bytes.Repeat([]byte("has"), size/3+1)[:size]
		var sent, got []byte
		ns := taking(t, setup{timing: patient}, func(_ *raftpb.Message, r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		ns[1].has = want
		m := snapshotOf(ns[0], ns[1])
		m.Context = []byte("bodies")
		ns[0].tr.SendSnapshot(m, func(w io.Writer, told func() ([]byte, error)) (err error) {
			if sent, err = told(); err == nil {
				_, err = w.Write([]byte("the rest"))
			}
			return err
		})
		once(t, ns[0], true)
		if !bytes.Equal(sent, want) || string(got) != "the rest" {
			t.Errorf("%d bytes are told of %d, and %q comes", len(sent), size, got)
		}
	}
}

// A receiver that cannot tell what it has says why, and one that tells it twice or tells too much is not heard.
func TestASenderThatIsToldNothingEndsTheTransfer(t *testing.T) {
	ns := taking(t, setup{timing: patient}, func(*raftpb.Message, io.Reader) error { return errors.New("the queue serves") })
	m := snapshotOf(ns[0], ns[1])
	m.Context = []byte("bodies")
	ns[0].tr.SendSnapshot(m, func(_ io.Writer, told func() ([]byte, error)) error {
		_, err := told()
		return err
	})
	ns[0].logs("the queue serves")
	once(t, ns[0], false)

	part, end := encodeFrame(kindHas, make([]byte, maxChunk)), encodeFrame(kindEnd, nil)
	for what, b := range map[string][]byte{
		"twice":    bytes.Join([][]byte{part, end, part, end}, nil),
		"too much": bytes.Repeat(part, MaxHas/maxChunk+1),
	} {
		if err := readDone(bytes.NewReader(b), make(chan []byte, 1)); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := readDone(bytes.NewReader(part), nil); !errors.Is(err, errFrame) {
		t.Errorf("without being asked: %v", err)
	}
}

// A receiver lives for the sender when it has told what it has, as before.
func TestAReceiverPulsesWhenItHasTold(t *testing.T) {
	done := make(chan struct{})
	ns := taking(t, setup{timing: patient}, func(*raftpb.Message, io.Reader) error {
		<-done
		return errors.New("that was all")
	})
	ns[1].has = make([]byte, 2*maxChunk)
	c, err := dialAs(t, ns[1], helloOf(purposeSnapshot, ns[0], ns[1]))
	if err != nil {
		t.Fatal(err)
	}
	m := snapshotOf(ns[0], ns[1])
	w := newFrameWriter(c, bufSize)
	if err := errors.Join(w.message(m), w.w.Flush()); err != nil {
		t.Fatal(err)
	}
	r := newFrameReader(c, bufSize, kindDone, kindPulse, kindHas, kindEnd)
	for want := []kind{kindHas, kindHas, kindEnd, kindPulse, kindPulse, kindDone}; len(want) > 0; {
		k, _, err := r.next()
		switch {
		case err != nil || k != want[0] && k != kindPulse:
			t.Fatalf("kind %d, not %d, %v", k, want[0], err)
		case k == want[0]:
			want = want[1:]
		}
		if len(want) == 1 && k == kindPulse {
			select {
			case <-done:
			default:
				close(done)
			}
		}
	}
}
