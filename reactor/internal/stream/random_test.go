package stream

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// model is a loop with its streams, of which it knows what their clients are to get. It is the streams' Owner and
// Poller, and the Line of their trunk.
type model struct {
	t       *testing.T
	choose  func(n int) int // a number below n
	ss      *Streams
	engine  *engine.Engine
	session engine.Session
	trunk   Trunk
	room    int // in the trunk
	clients []*modelClient
	all     map[*Stream]*modelClient // also those that are closed
	open    int                      // descriptors
}

// modelClient is what is known of a client.
type modelClient struct {
	Stream
	channel Channel
	peer    int    // the client's end of the socket
	want    []byte // all replies, without those that were dropped
	got     []byte // those of them that the client has
	firm    int    // how many bytes of want may leave, while something waits for a commit
	waits   journal.Pos
	paused  bool
	awaited bool // the poller is to say when it takes output
	ending  bool // replies were dropped: none may follow
	ended   bool
	given   int // bytes of credit
}

func (m *model) NewPending() *Pending             { return new(Pending) }
func (m *model) TLS(*Stream) *TLS                 { panic("no stream has TLS") }
func (m *model) Channel(s *Stream) *Channel       { return &m.of(s).channel }
func (m *model) Took(*Stream)                     {}
func (m *model) OwedMore()                        {}
func (m *model) DescriptorFreed()                 { m.open-- }
func (m *model) Pause(fd int) error               { m.at(fd).paused = true; return nil }
func (m *model) Resume(fd int) error              { m.at(fd).paused = false; return nil }
func (m *model) AwaitOutput(fd int, _ bool) error { m.at(fd).awaited = true; return nil }
func (m *model) ForgetOutput(fd int)              { m.at(fd).awaited = false }
func (m *model) Close(fd int)                     { m.closeFD(fd) }

// Wake and Alarm implement engine.Waker: no session waits.
func (m *model) Wake()             {}
func (m *model) Alarm(engine.Time) {}

func (m *model) Duplicate(fd int) (int, error) {
	m.open++
	return unix.Dup(fd)
}

func (m *model) closeFD(fd int) {
	m.open--
	if err := unix.Close(fd); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) of(s *Stream) *modelClient { return m.all[s] }

func (m *model) at(fd int) *modelClient {
	return m.clients[slices.IndexFunc(m.clients, func(c *modelClient) bool { return c.FD() == fd })]
}

func (m *model) Room() int { return m.room }

// Replies implements Line.
func (m *model) Replies(s *Stream, data []byte, last bool) {
	c := m.of(s)
	c.got = append(c.got, data...)
	m.room -= len(data)
	c.given -= len(data)
	if len(data) == 0 || len(data) > trunk.MaxData || m.room < 0 || c.given < 0 || last != (len(c.got) == len(c.want)) {
		m.t.Fatalf("an item of %d bytes, the last: %t, leaves room for %d and credit for %d",
			len(data), last, m.room, c.given)
	}
	m.checkTaken(c, len(c.got))
}

// End implements Line.
func (m *model) End(*Stream, bool) {}

// checkTaken checks that a client, who has got so many bytes, or the system in its place, could get them.
func (m *model) checkTaken(c *modelClient, taken int) {
	m.t.Helper()
	if taken > len(c.want) || c.waits != 0 && taken > c.firm || !bytes.HasPrefix(c.want, c.got) {
		m.t.Fatalf("%d bytes have left of %d, of which %d wait for a commit at %d", taken, len(c.want), c.firm, c.waits)
	}
}

// lacks reports whether the client has to get more.
func (c *modelClient) lacks() bool { return len(c.got) < len(c.want) }

const modelOutput = 2 << 20 // more than the model gives one client at a time

func newModel(t *testing.T, choose func(n int) int) *model {
	m := &model{t: t, choose: choose, all: make(map[*Stream]*modelClient)}
	m.engine = engine.New(engine.Config{MaxJobSize: 1 << 20})
	m.ss = New(Config{Owner: m, Poller: m, MaxOutput: modelOutput, MaxOutputTotal: 1})
	m.ss.Engine = m.engine.NewLoop(m)
	m.ss.Engine.Open(&m.session, 0)
	m.trunk.Init(m, 8<<10)
	for _, size := range []int{32 << 10, 70_000} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		m.execute(fmt.Appendf(nil, "put 0 0 60 %d\r\n%s\r\n", size, body), new(engine.Output))
	}
	return m
}

// execute executes a command that the engine answers at once.
func (m *model) execute(line []byte, out *engine.Output) {
	d := codec.Decoder{MaxJobSize: 1 << 20}
	var cmd codec.Command
	if n, ok := d.Next(line, &cmd); !ok || n != len(line) || m.session.Execute(0, &cmd, out) != engine.Done {
		m.t.Fatalf("%.20q was not answered", line)
	}
}

func (m *model) connect() {
	c := &modelClient{peer: -1}
	m.clients = append(m.clients, c)
	m.all[&c.Stream] = c
	if m.choose(2) == 0 {
		c.Init(-1, OnTrunk)
		c.given = m.choose(100_000)
		c.channel.Init(&m.trunk, c.given)
		return
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.SetNonblock(fd, true)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 20_000)
	}
	m.open += 2
	c.peer = fds[1]
	c.Init(fds[0], OnSocket)
	m.ss.Begin(&c.Stream)
}

// step does one thing with a client, and what the loop does behind each.
func (m *model) step(c *modelClient) {
	ss, s := m.ss, &c.Stream
	switch what := m.choose(16); {
	case what < 4 && !c.ending && c.Owed() < 300_000:
		m.send(c)
	case what == 4 && !c.ending:
		p := bytes.Repeat([]byte{byte(len(c.want))}, 1+m.choose(9000))
		c.want = append(c.want, p...)
		if !ss.Deliver(s, p) {
			m.t.Fatal("the client is gone")
		}
	case what == 5:
		m.take(c, 1+m.choose(60_000))
	case what == 6 && c.waits != 0:
		c.waits = 0
		s.Committed()
	case what == 7 && c.waits != 0 && m.choose(4) == 0:
		ss.DiscardUncommitted(s)
		c.want, c.waits, c.ending = c.want[:c.firm], 0, true
	case what == 8 && c.waits == 0:
		s.Unpin()
	case what == 9 && c.FD() >= 0 && !c.ended && !c.paused:
		ss.Keep(s, make([]byte, 1+m.choose(ReadSize)))
	case what == 10 && s.InputLen() > 0:
		s.Pending().In.KeepLast(m.choose(s.InputLen()+1), &ss.Counts)
	case what == 11 && s.Pending() != nil && !ss.HasWritable():
		if _, ok := ss.SendPending(s); !ok {
			m.t.Fatal("the client is gone")
		}
	case what == 12 && m.choose(8) == 0 && !c.ended && c.FD() >= 0:
		m.detach(c)
	case what == 13 && m.choose(8) == 0:
		m.close(c)
		return
	}
	m.conclude(c)
	m.turns()
}

// send sends some replies, of which some are large and some wait for a commit.
func (m *model) send(c *modelClient) {
	var out engine.Output
	var want []byte
	for range 1 + m.choose(3) {
		if id := m.choose(4); id == 1 || id == 2 {
			m.execute(fmt.Appendf(nil, "peek %d\r\n", id), &out)
		} else {
			out.Buf = fmt.Appendf(out.Buf, "NOT_FOUND %d\r\n", len(c.want)+len(out.Buf))
		}
	}
	at := 0
	for _, b := range out.Bodies {
		want = append(append(want, out.Buf[at:b.At]...), b.Bytes...)
		at = b.At
	}
	want = append(want, out.Buf[at:]...)
	size := Size(&out)
	if size != len(want) {
		m.t.Fatalf("replies of %d bytes are said to be %d", len(want), size)
	}
	out.Pos = journal.Pos(1 + m.choose(1000))
	waits := m.choose(3) == 0
	if waits && c.waits == 0 {
		c.firm = len(c.want)
	}
	if waits || c.waits != 0 {
		c.waits = max(c.waits, out.Pos)
	}
	c.want = append(c.want, want...)
	sending := m.ss.Send(&c.Stream, &out, size, waits)
	waitsNow, sent := c.waits != 0, c.Owed() == 0
	if (sending == Waits) != waitsNow || (sending == Sent) != sent || sending == Lost {
		m.t.Fatalf("what was sent has become %d, and %d bytes are owed, which wait: %t",
			sending, c.Owed(), waitsNow)
	}
	if len(out.Buf)+len(out.Bodies) > 0 {
		m.t.Fatal("something is left of replies that were sent")
	}
}

// take has a client take up to so many bytes.
func (m *model) take(c *modelClient, n int) {
	if c.FD() < 0 {
		m.room = min(m.room+n, 100_000)
		c.given += n
		m.ss.AddCredit(&c.Stream, n)
		m.trunk.Next(m.ss)
		return
	}
	p := make([]byte, n)
	for len(p) > 0 {
		k, err := unix.Read(c.peer, p)
		if err != nil {
			break // nothing is there
		}
		c.got = append(c.got, p[:k]...)
		p = p[k:]
	}
	if c.awaited {
		c.awaited = false
		m.ss.Writable(c.FD())
	}
}

// turns gives all their turns who take output again.
func (m *model) turns() {
	for turns := 0; ; turns++ {
		s := m.ss.NextWritable()
		if s == nil {
			return
		}
		if turns > 1000 {
			m.t.Fatal("turns do not end")
		}
		if s.Pending() != nil {
			m.ss.BeginTurn(s)
			if _, ok := m.ss.SendPending(s); !ok {
				m.t.Fatal("the client is gone")
			}
			m.conclude(m.of(s))
		}
		m.ss.EndTurn(s)
	}
}

func (m *model) conclude(c *modelClient) {
	if c.Pending() == nil {
		return
	}
	if err := m.ss.Supervise(&c.Stream, ReadBounded); err != nil {
		m.t.Fatal(err)
	}
	full := c.Pending().In.New() >= KeepInput
	if c.Polled() && c.paused != (c.Stalled() || full) {
		m.t.Fatalf("not read: %t; stalled: %t, with %d bytes of input", c.paused, c.Stalled(), c.InputLen())
	}
	if c.Stalled() != m.ss.Sendable(&c.Stream) || c.Stalled() && !c.Pending().armed {
		m.t.Fatalf("stalled: %t, and the loop hears of it: %t", c.Stalled(), c.Pending().armed)
	}
	if c.InputLen() > KeepInput+ReadSize {
		m.t.Fatalf("%d bytes of input wait", c.InputLen())
	}
	if c.Idle() {
		c.SetPending(nil)
	}
}

// detach has the client send its last.
func (m *model) detach(c *modelClient) {
	c.ended, c.awaited = true, false
	m.ss.End(&c.Stream)
	fd := c.FD()
	c.LeavePoller()
	if err := m.ss.Detach(&c.Stream); err != nil {
		m.t.Fatal(err)
	}
	m.closeFD(fd)
	for c.Pending() != nil && c.Pending().In.Rest {
		if !m.ss.ReadRest(&c.Stream) {
			m.t.Fatal("the client is gone")
		}
	}
}

func (m *model) close(c *modelClient) {
	m.ss.Discard(&c.Stream)
	m.ss.Close(&c.Stream, false)
	if c.peer >= 0 {
		p := make([]byte, 1<<20) // more than the system keeps
		_, _ = unix.Read(c.peer, p)
		if _, err := unix.Read(c.peer, p); err == unix.EAGAIN {
			m.t.Fatal("the socket is open yet")
		}
		m.closeFD(c.peer)
	}
	if c.Owes() || c.HasInput() || c.awaited {
		m.t.Fatal("something is left of a stream that is closed")
	}
	c.SetPending(nil)
	m.clients = slices.DeleteFunc(m.clients, func(x *modelClient) bool { return x == c })
}

// check checks what holds between two steps.
func (m *model) check() {
	t, owed, bodies, input, stalled, most := m.t, 0, 0, 0, 0, 0
	for _, c := range m.clients {
		m.checkTaken(c, len(c.want)-c.Owed())
		if c.DependsOn() != c.waits || len(c.got) > len(c.want)-c.Owed() {
			t.Fatalf("it waits for a commit at %d, want %d; %d bytes have come", c.DependsOn(), c.waits, len(c.got))
		}
		owed += c.Owed()
		input += c.InputLen()
		if c.Pending() != nil {
			bodies += len(c.pending.out.bodies)
		}
		if c.Stalled() {
			most = max(most, c.Owed())
			stalled++
		}
	}
	n := &m.ss.Counts
	counted := [3]int{int(n.PendingOutput.Load()), int(n.PendingInput.Load()), int(n.Stalled.Load())}
	if want := [3]int{owed, input, stalled}; counted != want {
		t.Fatalf("%d bytes of output, of input, and streams that are stalled are counted, want %d", counted, want)
	}
	if pinned := m.pinned(); pinned != bodies {
		t.Fatalf("the engine keeps %d bodies, of which %d are pending", pinned, bodies)
	}
	if len(m.ss.owed) != stalled || m.ss.MostOwed.Load() != int64(most) {
		t.Fatalf("%d of %d are in the heap, where the most is %d, want %d",
			len(m.ss.owed), stalled, m.ss.MostOwed.Load(), most)
	}
	for i, s := range m.ss.owed {
		if x := s.pending; int(x.owedAt) != i || x.owed != s.Owed() || x.owed > m.ss.owed[max(0, i-1)/2].pending.owed {
			t.Fatalf("at %d of the heap is one for %d with %d, which is owed %d", x.owedAt, i, x.owed, s.Owed())
		}
	}
}

// pinned is how many references replies have to bodies in the engine.
func (m *model) pinned() (n int) {
	shards := reflect.ValueOf(m.engine).Elem().FieldByName("shards")
	for i := range shards.Len() {
		for pins := reflect.Indirect(shards.Index(i)).FieldByName("pins").MapRange(); pins.Next(); {
			n += int(reflect.Indirect(pins.Value()).FieldByName("count").Int())
		}
	}
	return n
}

// run does so many steps. Then all take what they are owed, if it is not dropped, and nothing is left.
func (m *model) run(steps int) {
	for range steps {
		if len(m.clients) < 6 {
			m.connect()
		}
		m.step(m.clients[m.choose(len(m.clients))])
		m.check()
	}
	for rounds := 0; rounds < 200 && slices.ContainsFunc(m.clients, (*modelClient).lacks); rounds++ {
		for _, c := range m.clients {
			if c.waits != 0 {
				c.waits = 0
				c.Committed()
			}
			m.conclude(c)
			m.take(c, 20_000)
			m.turns()
		}
		m.check()
	}
	for len(m.clients) > 0 {
		c := m.clients[0]
		if c.Owed() > 0 || !bytes.Equal(c.got, c.want) {
			m.t.Fatalf("a client has got %d bytes of %d, and is owed %d", len(c.got), len(c.want), c.Owed())
		}
		m.close(c)
		m.check()
	}
	if m.open != 0 {
		m.t.Fatalf("%d descriptors are left", m.open)
	}
}

// Whatever happens in whatever order, replies leave once and in order, and none before it may.
func TestStreamsDoWhatAModelSays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		newModel(t, r.IntN).run(300)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzStreams has the input choose what happens.
func FuzzStreams(f *testing.F) {
	f.Add([]byte("\x01\x00\x02\x01\x03\x00\x01\x07\x00\x05\xff\xff\x06"))
	f.Fuzz(func(t *testing.T, in []byte) {
		newModel(t, func(n int) int {
			x := 0
			for i := range min(3, len(in)) {
				x = x<<8 | int(in[i])
				if n <= 256 {
					in = in[i+1:]
					return x % n
				}
			}
			in = in[min(3, len(in)):]
			return x % n
		}).run(min(200, len(in)/2))
	})
}
