package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

const (
	testNumber = 7
	maxJob     = 1 << 16
)

// rig drives a gateway, and writes down what it does.
type rig struct {
	*Gateway
	t      testing.TB
	now    time.Duration // also the boot time
	room   int           // in the trunk
	width  int           // the room when the trunk is empty
	taken  int           // bytes of memory
	most   int           // that may be taken
	term   uint64
	awaits uint64 // an index of the log
	conns  []*testConn
	said   []string     // what was said and done
	items  []trunk.Item // what was said to the leader
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, width: MaxOutput, most: 1 << 30, awaits: NoIndex}
	r.Gateway = NewGateway(r, trunk.Version, 0)
	return r
}

func (r *rig) note(format string, args ...any) { r.said = append(r.said, fmt.Sprintf(format, args...)) }

// Send implements Trunk.
func (r *rig) Send(it *trunk.Item) {
	c := *it
	c.Data = slices.Clone(it.Data)
	r.items = append(r.items, c)
	r.room -= trunk.ItemHead + len(it.Data)
	if it.Kind != trunk.KindPing {
		r.note("-> %s", show(c))
	}
}

// Room implements Trunk.
func (r *rig) Room() int { return max(0, r.room) }

// show is an item as text.
func show(it trunk.Item) string {
	s := it.Kind.String()
	if it.Channel > 0 {
		s += fmt.Sprint(" ", it.Channel)
	}
	switch it.Kind {
	case trunk.KindOpen:
		o, err := trunk.ParseOpen(it.Data)
		return s + fmt.Sprintf(" session %d %v", o.Session&(1<<40-1), err)
	case trunk.KindResume:
		x, err := trunk.ParseResume(it.Data)
		return s + fmt.Sprintf(" session %d answered %d partial %d unanswered %v age %v uses %s watches %v %v",
			x.Session&(1<<40-1), x.Answered, x.Partial, x.Unanswered, x.Age, x.Used, x.Watched, err)
	case trunk.KindEffects:
		list, err := trunk.AppendEffects(nil, 1, it.Data)
		for _, e := range list {
			s += fmt.Sprintf(" %d at %d", e.ID, e.Offset)
		}
		return s + fmt.Sprint(" last ", it.Flags == trunk.Last, " ", err)
	}
	if it.Number > 0 {
		s += fmt.Sprint(" ", it.Number)
	}
	if it.Flags > 0 {
		s += fmt.Sprintf(" flags %d", it.Flags)
	}
	if len(it.Data) > 0 {
		s += fmt.Sprintf(" %.40q", it.Data)
		if len(it.Data) > 40 {
			s += fmt.Sprint(" of ", len(it.Data))
		}
	}
	return s
}

// BootTime implements Host, as do the methods that follow.
func (r *rig) BootTime() time.Duration { return r.now }

func (r *rig) Leads(term uint64) bool {
	leads := term >= r.term
	r.term = max(r.term, term)
	return leads
}

func (r *rig) TakeMemory(n int) bool {
	if r.taken+n > r.most {
		return false
	}
	r.taken += n
	return true
}

func (r *rig) GiveMemory(n int)                              { r.taken -= n }
func (r *rig) AwaitApplied(index uint64)                     { r.awaits = index }
func (r *rig) LeaderReady(_ *trunk.Welcome, d time.Duration) { r.note("a leader is ready after %v", d) }

func (r *rig) LeaderLost(at time.Duration)               { r.note("the leader is lost; contact was at %v", at) }
func (r *rig) InContact(time.Duration)                   {}
func (r *rig) Denied(Conn, *engine.Grant, *trunk.Denied) { r.note("something is denied") }

// connect makes a trunk whose leader welcomes the gateway.
func (r *rig) connect(w trunk.Welcome) {
	r.t.Helper()
	r.room = r.width
	r.Connect(r, testNumber)
	r.tell(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
}

// welcome is what a leader says that resumes sessions.
func welcome(term, fence uint64) trunk.Welcome {
	return trunk.Welcome{Version: trunk.ResumesSince, Extensions: true, MaxJobSize: maxJob, Term: term, Fence: fence}
}

// tell takes what the leader says.
func (r *rig) tell(items ...trunk.Item) {
	r.t.Helper()
	for i := range items {
		w, err := r.Item(r.now, &items[i])
		r.fulfil(w)
		if err != nil {
			r.note("the trunk fails: %v", err)
			r.Disconnected(r.now, err)
		}
	}
}

// run does all that can be done, in a trunk that is empty.
func (r *rig) run() {
	r.room = r.width
	for r.HasWork(r.now) {
		r.fulfil(r.Next(r.now))
		r.Turn(r.now)
		r.fulfil(r.NextLoss())
	}
}

func (r *rig) fulfil(w Wish) {
	if w.Do == Nothing {
		return
	}
	c := w.Client.Conn().(*testConn)
	switch w.Do {
	case Write:
		c.note("gets %q", w.Data)
		c.got = append(c.got, w.Data...)
		if c.slow {
			c.owed += len(w.Data)
		}
	case Read:
		c.input = append(c.input, c.unread...)
		c.unread, c.intake = nil, max(c.intake, c.last)
		r.AskTurn(c.client)
	case End:
		c.note("is lost: %s", [...]string{"it has left", "trunk ended", "unrepeatable", "contactless", "lagging"}[w.Cause])
	}
	c.settle()
}

// testConn is a client's connection.
type testConn struct {
	rig    *rig
	name   string
	client *Client
	intake Intake
	last   Intake // what intake becomes when it is read again
	input  []byte
	unread []byte
	got    []byte
	owed   int
	slow   bool // takes nothing
	done   connEnd
	gone   bool
}

// connEnd is how far the end of a connection has come.
type connEnd struct {
	draining, reset, gaveBack, closed bool
}

func (r *rig) client(name string) *testConn {
	c := &testConn{rig: r, name: name}
	r.conns = append(r.conns, c)
	c.client = r.Forward(r.now, c, nil)
	return c
}

func (c *testConn) note(format string, args ...any) {
	c.rig.note("%s %s", c.name, fmt.Sprintf(format, args...))
}

// send is what the client sends.
func (c *testConn) send(p string) {
	if !c.rig.Input(c.client, c.rig.now, []byte(p)) {
		c.input = append(c.input, p...)
		c.rig.AskTurn(c.client)
	}
}

// halfClose ends what the client sends.
func (c *testConn) halfClose() {
	c.intake = Ended
	if c.isForwarded() {
		c.rig.HalfClose(c.client)
	}
	c.settle()
}

// leave ends the connection.
func (c *testConn) leave() {
	c.done.reset = true
	c.settle()
}

func (c *testConn) isForwarded() bool { return !c.done.draining && !c.done.reset && !c.gone }

// settle ends the connection if it is to end.
func (c *testConn) settle() {
	if c.gone {
		return
	}
	if c.isForwarded() {
		c.rig.GiveCredit(c.client)
		return
	}
	if !c.done.closed && !c.done.gaveBack {
		c.done.closed = true
		c.done.gaveBack = !c.rig.Close(c.client)
	}
	if c.done.reset || c.done.gaveBack && c.owed == 0 {
		c.gone = true
		c.rig.Forget(c.client)
		c.note("ends")
	}
}

// Open implements Conn, as do the methods that follow.
func (c *testConn) Open(session uint64) trunk.Open {
	return trunk.OpenOf(session, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1))
}

func (c *testConn) Intake() Intake  { return c.intake }
func (c *testConn) Input() []byte   { return c.input }
func (c *testConn) TakeInput(n int) { c.input = c.input[n:] }
func (c *testConn) ReturnInput(pieces [][]byte) {
	c.input = append(slices.Concat(pieces...), c.input...)
}
func (c *testConn) Owed() int                          { return c.owed }
func (c *testConn) AwaitLeader(_, until time.Duration) { c.note("waits for a leader until %v", until) }
func (c *testConn) LeaderHeard()                       {}
func (c *testConn) GaveBack()                          { c.done.gaveBack = true }

func (c *testConn) Drain(more bool) {
	c.note("drains, more %v", more)
	c.done.draining = true
}

func (c *testConn) Reset() {
	c.note("is reset")
	c.done.reset = true
}

// replies is an item that answers so much of a client's input.
func replies(channel uint32, answered int, flags uint8, data string) trunk.Item {
	return trunk.Item{
		Kind: trunk.KindReplies, Channel: channel, Number: uint32(answered), Flags: flags, Data: []byte(data),
	}
}

func says(channel uint32, flags uint8, tube string) trunk.Item {
	return trunk.Item{Kind: trunk.KindState, Channel: channel, Flags: flags, Data: []byte(tube)}
}

func credit(channel uint32, n int) trunk.Item {
	return trunk.Item{Kind: trunk.KindCredit, Channel: channel, Number: uint32(n)}
}

// take returns what was said and done since it was called last.
func (r *rig) take() string {
	s := strings.Join(r.said, "\n")
	r.said = nil
	return s
}
