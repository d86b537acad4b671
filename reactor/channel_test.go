package reactor

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"trellis/binlog/journal"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// testTrunks are the trunks of a gateway in memory, one to each loop of a server, and a listener for
// its clients.
type testTrunks struct {
	ts      *testServer
	clients net.Listener
	trunks  []*testTrunk
	running sync.WaitGroup
}

// testTrunk is a trunk in memory. What the leader's end says is taken out by a goroutine, and what the
// gateway says is posted to the loop.
type testTrunk struct {
	ts     *testServer
	loop   *loop
	number uint32
	end    *leaderEnd // belongs to the loop

	mu       sync.Mutex
	queue    []trunk.Item        // guarded by mu, as all that follows
	size     int                 // of queue
	full     bool                // the leader's end is to be told of room
	channels []*testChannel      // those that both sides have not closed, by number
	sessions uint64              // that were opened
	over     bool                // the server has ended, or the test
	more     *sync.Cond          // there is something in the queue, or it is over
	seen     func(it trunk.Item) // is told of each item that comes; may be nil
}

// listenTrunk returns the address of a gateway in memory.
func (ts *testServer) listenTrunk() net.Addr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	g := &testTrunks{ts: ts, clients: l}
	for i := range ts.loops {
		g.trunks = append(g.trunks, ts.newTrunk(ts.loops[i], uint32(i+1)))
	}
	g.running.Go(g.accept)
	g.running.Go(g.awaitEnd)
	for _, t := range g.trunks {
		g.running.Go(t.run)
	}
	ts.t.Cleanup(func() {
		_ = ts.Shutdown(ts.t.Context()) // of a test that has failed early
		g.running.Wait()
	})
	return l.Addr()
}

func (ts *testServer) newTrunk(l *loop, number uint32) *testTrunk {
	t := &testTrunk{ts: ts, loop: l, number: number, channels: make([]*testChannel, 1)}
	t.more = sync.NewCond(&t.mu)
	t.end = newLeaderEnd(l, t, "gateway", number)
	return t
}

func (g *testTrunks) accept() {
	for i := 0; ; i++ {
		nc, err := g.clients.Accept()
		if err != nil {
			return
		}
		g.trunks[i%len(g.trunks)].open(nc.(*net.TCPConn))
	}
}

// awaitEnd ends the gateway when the server has ended.
func (g *testTrunks) awaitEnd() {
	select {
	case <-g.ts.aborted:
	case <-g.ts.stopped:
	}
	g.clients.Close()
	for _, t := range g.trunks {
		t.mu.Lock()
		t.over = true
		t.more.Broadcast()
		t.mu.Unlock()
	}
}

// Send implements relay.Trunk.
func (t *testTrunk) Send(it *trunk.Item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := *it
	c.Data = slices.Clone(it.Data)
	t.queue = append(t.queue, c)
	t.size += trunk.ItemHead + len(c.Data)
	t.more.Broadcast()
}

// Room implements relay.Trunk.
func (t *testTrunk) Room() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = t.full || t.size >= relay.FewOutput
	return max(0, relay.MaxOutput-t.size)
}

// say has the leader's end take an item. t.mu is held.
func (t *testTrunk) say(it trunk.Item) {
	if t.over {
		return
	}
	t.loop.call(func(l *loop) {
		if err := t.end.TakeItem(l.server.now(), &it); err != nil && err != ErrClosed {
			t.ts.t.Errorf("the leader ends the trunk: %v", err)
		}
	})
}

// open has a client served.
func (t *testTrunk) open(nc *net.TCPConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := slices.Index(t.channels[1:], nil) + 1
	if n == 0 {
		n = len(t.channels)
		t.channels = append(t.channels, nil)
	}
	c := &testChannel{trunk: t, number: uint32(n), nc: nc, window: trunk.FirstCredit}
	c.ended, c.reset = t.over, t.over && t.ts.aborting.Load() // run may have ended those who were there
	c.change = sync.NewCond(&t.mu)
	t.channels[n] = c
	t.sessions++
	o := trunk.OpenOf(uint64(t.number)<<(64-journal.NumberBits)+t.sessions, netip.MustParseAddrPort(nc.RemoteAddr().String()))
	c.say(trunk.Item{Kind: trunk.KindOpen, Data: o.Append(nil)})
	go c.write()
	go c.read()
}

// run takes out what the leader says.
func (t *testTrunk) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(t.queue) == 0 && !t.over {
			t.more.Wait()
		}
		if len(t.queue) == 0 {
			break
		}
		it := t.queue[0]
		t.queue = t.queue[1:]
		t.size -= trunk.ItemHead + len(it.Data)
		if t.full && t.size < relay.FewOutput {
			t.full = false
			t.loop.call(func(l *loop) { t.end.HasRoom(l.server.now()) })
		}
		if t.seen != nil {
			t.seen(it)
		}
		t.take(it)
	}
	for _, c := range t.channels {
		if c != nil {
			c.ended, c.reset = true, c.reset || t.ts.aborting.Load()
			c.change.Broadcast()
		}
	}
}

// take takes what the leader says. t.mu is held.
func (t *testTrunk) take(it trunk.Item) {
	c := t.channels[it.Channel]
	if c == nil || c.ended {
		t.ts.t.Errorf("%v for channel %d, which has ended", it.Kind, it.Channel)
		return
	}
	switch it.Kind {
	case trunk.KindReplies:
		if c.credit += len(it.Data); c.credit > trunk.FirstCredit {
			t.ts.t.Errorf("%d bytes of replies are sent beyond the credit", c.credit-trunk.FirstCredit)
		}
		c.out = append(c.out, it.Data...)
	case trunk.KindCredit:
		c.window += int(it.Number)
	case trunk.KindEnd:
		c.ended, c.reset = true, it.Flags&trunk.Reset != 0
		if c.closed {
			t.channels[it.Channel] = nil
		}
	case trunk.KindState:
	default:
		t.ts.t.Errorf("got %v", it.Kind)
	}
	c.change.Broadcast()
}

// testChannel is a client of a testTrunk.
type testChannel struct {
	trunk  *testTrunk
	number uint32
	nc     *net.TCPConn
	change *sync.Cond // something of what follows has changed, which trunk.mu guards

	window int    // bytes of input that may be sent
	out    []byte // what the client is to get
	credit int    // bytes of replies that were sent and for which no credit was given
	ended  bool   // the leader has sent its last
	reset  bool
	closed bool // and so has the gateway
}

// say says something of the client. c.trunk.mu is held.
func (c *testChannel) say(it trunk.Item) {
	if c.closed {
		return
	}
	it.Channel = c.number
	c.trunk.say(it)
	if it.Kind == trunk.KindClose {
		c.closed = true
		if c.ended && !c.trunk.over {
			c.trunk.channels[c.number] = nil
		}
	}
}

// read passes on what the client sends.
func (c *testChannel) read() {
	defer c.nc.Close()
	t := c.trunk
	buf := make([]byte, trunk.MaxData)
	for {
		t.mu.Lock()
		for c.window == 0 && !c.ended && !c.closed {
			c.change.Wait()
		}
		most := len(buf)
		if !c.ended && !c.closed {
			most = min(most, c.window)
		}
		t.mu.Unlock()
		n, err := c.nc.Read(buf[:most])
		t.mu.Lock()
		if n > 0 && !c.ended {
			c.window -= n
			c.say(trunk.Item{Kind: trunk.KindInput, Data: slices.Clone(buf[:n])})
		}
		if err == nil {
			t.mu.Unlock()
			continue
		}
		if errors.Is(err, io.EOF) {
			if !c.ended {
				c.say(trunk.Item{Kind: trunk.KindHalfClose})
			}
			for !c.closed { // by write
				c.change.Wait()
			}
		} else {
			c.say(trunk.Item{Kind: trunk.KindClose})
			c.change.Broadcast()
		}
		t.mu.Unlock()
		return
	}
}

// write passes on what the leader sends.
func (c *testChannel) write() {
	t := c.trunk
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(c.out) == 0 && !c.ended && !c.closed {
			c.change.Wait()
		}
		if len(c.out) == 0 || c.reset || c.closed {
			break
		}
		out := c.out
		c.out = nil
		t.mu.Unlock()
		_, err := c.nc.Write(out)
		t.mu.Lock()
		if err != nil {
			break
		}
		c.credit -= len(out)
		if !c.ended {
			c.say(trunk.Item{Kind: trunk.KindCredit, Number: uint32(len(out))})
		}
	}
	if c.reset {
		_ = c.nc.SetLinger(0)
		c.nc.Close()
	}
	_ = c.nc.CloseWrite() // what the client sends is thrown away until it closes
	c.say(trunk.Item{Kind: trunk.KindClose})
	c.closed = true
	c.change.Broadcast()
}

// holdingJournal is a fakeJournal of several servers.
type holdingJournal struct {
	*fakeJournal

	mu     sync.Mutex
	holds  []journal.Hold // guarded by mu, as what follows
	closed []uint64       // sessions
}

func (j *holdingJournal) RecordsHolds() bool { return true }

func (j *holdingJournal) RecordsAll() bool { return true }

func (j *holdingJournal) RecordsLinger() bool { return true }

func (j *holdingJournal) Hold(h *journal.Hold) (journal.Pos, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.holds = append(j.holds, *h)
	return j.next(), nil
}

func (j *holdingJournal) EndHold(*journal.Record) (journal.Pos, error) { return j.next(), nil }

func (j *holdingJournal) Close(session uint64) (journal.Pos, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = append(j.closed, session)
	return j.next(), nil
}

func (j *holdingJournal) Numbers(*journal.Numbers) (journal.Pos, error) { return j.next(), nil }

func (j *holdingJournal) DeleteFor(uint64, journal.Former, journal.Origin) (journal.Pos, error) {
	return j.next(), nil
}
