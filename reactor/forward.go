package reactor

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// forward is what a gateway knows of a client whose bytes it passes on to the leader, and back. It
// belongs to its loop's goroutine.
type forward struct {
	conn    *conn         // nil when the connection has ended, and the channel has not
	grant   *engine.Grant // what the client may do; nil for everything
	session uint64        // its id; 0 until a leader hears of the client
	channel uint32        // 0 while there is no trunk on which the leader has heard of it, and when it has ended the channel
	partial uint32        // bytes of the next answer that the client has got
	since   time.Duration // when the client began to wait for a trunk; while no leader has heard of it
	asked   time.Duration // when it began to wait for the next answer

	sent       uint64           // bytes of the client's that were passed on
	answered   uint64           // of them, those that are answered by what has come for the client
	lost       uint64           // while fewer are answered, some of the others cannot be sent again
	unanswered int              // bytes at the beginning of the input that were sent on an earlier trunk
	kept       *keptInput       // what was sent on this one and is not answered; nil for nothing
	effects    []journal.Effect // of commands without an answer, as far as the log is known
	wants      *wants           // what the client has asked for; nil for what all begin with

	room   int // how many bytes more the leader takes now
	window int // how many bytes of replies there may be here that the client has not taken
	credit int // how many more the leader may send now

	queued bool // in gateway.line
	last   bool // the client was read for the last time, because the server is shut down
	ahead  bool // the leader knows that the client sends no more than what is here
	half   bool // the leader knows that the client sends no more
	closed bool // the leader knows that the client has gone
	barred bool // the leader is to know the effects before it gets input
	sure   bool // there are no other effects, whatever the log tells: nothing was sent since this server led
	mixed  bool // how much of what came last is partial is not known, or the client is refused
}

const (
	// maxWindow is how far a window is raised for a client that takes replies faster than they come.
	maxWindow = 256 << 10
)

// forward begins to forward a client whose phase says so.
func (c *conn) forward(now time.Duration) {
	g := c.loop.gateway
	f := &forward{conn: c, grant: c.loop.granted[c]}
	g.forwards[c] = f
	f.await(now)
}

// forwarding is what is known of a client that is forwarded, nil for any other.
func (c *conn) forwarding() *forward {
	if g := c.loop.gateway; g != nil {
		return g.forwards[c]
	}
	return nil
}

// await has the leader hear of a new client as soon as there is a trunk.
func (f *forward) await(now time.Duration) {
	c := f.conn
	l := c.loop
	f.since, f.room, f.window, f.credit = now, trunk.FirstCredit, trunk.FirstCredit, trunk.FirstCredit
	if l.gateway.takes(0) {
		l.gateway.open(f)
		return
	}
	f.enqueue()
	if c.deadline == nil {
		c.deadline = &deadline{conn: c, active: now, index: -1}
	}
	l.deadlines.set(c.deadline, c.endsAt(now))
}

// awaitsTrunk tells whether a leader is to hear of the client, and none has yet.
func (c *conn) awaitsTrunk() bool {
	f := c.forwarding()
	return f != nil && f.session == 0 && c.phase == forwarded
}

// pass passes on what the client has sent, or keeps it until that can be done.
func (c *conn) pass(now time.Duration, p []byte) {
	l, f := c.loop, c.forwarding()
	if f.half {
		return // the server is shut down, and has read the client for the last time
	}
	if !f.hasAsked() {
		f.asked = now
	}
	if f.channel != 0 && c.pendingInput() == 0 && len(p) <= min(f.room, trunk.MaxData) && l.gateway.takes(len(p)) {
		f.send(p)
	} else {
		c.backlog().in.add(p, &l.counts)
		f.enqueue()
	}
	if c.x != nil || l.draining {
		c.conclude(now)
	}
}

// hasAsked tells whether the client has sent a whole line that has no answer. Before that it waits for none.
func (f *forward) hasAsked() bool {
	c := f.conn
	switch n := f.sent - f.answered + uint64(c.pendingInput()); {
	case n == 0:
		return false
	case n > codec.MaxLine || f.kept == nil && f.sent > f.answered:
		return true
	}
	return f.kept != nil && hasLine(f.kept.bytes()) || c.pendingInput() > 0 && hasLine(c.x.in.bytes())
}

func hasLine(b []byte) bool { return bytes.IndexByte(b, '\n') >= 0 }

// age is for how long the client has waited for what comes next from a leader.
func (f *forward) age(now time.Duration) time.Duration {
	if !f.hasAsked() {
		return 0
	}
	return max(0, now-f.asked)
}

func (f *forward) send(p []byte) {
	f.room -= len(p)
	f.sent += uint64(len(p))
	f.sure = false
	f.keep(p)
	f.say(trunk.KindInput, 0, p)
}

// say sends an item of the client's channel.
func (f *forward) say(kind trunk.Kind, number int, data []byte) {
	f.conn.loop.gateway.trunk.send(&trunk.Item{Kind: kind, Channel: f.channel, Number: uint32(number), Data: data})
}

// enqueue has the client stand in line for the trunk, if there is something to say to the leader.
func (f *forward) enqueue() {
	if g := f.conn.loop.gateway; g.welcomed && !f.queued && f.hasMore() {
		f.queued = true
		g.line.push(f)
	}
}

// hasMore tells whether there is something to say to the leader that only has to wait for the trunk.
func (f *forward) hasMore() bool {
	c := f.conn
	switch {
	case c == nil || c.phase != forwarded:
		return false
	case f.channel == 0:
		return true
	case f.barred:
		return false
	case c.pendingInput() > 0:
		return f.room > 0 || f.endsAhead()
	}
	return c.x != nil && c.x.in.rest || !f.half && (c.intake >= finished || c.loop.draining)
}

// endsAhead tells whether the leader has to know that the client sends no more before it takes the rest: until
// then a reserve may wait for ever.
func (f *forward) endsAhead() bool { return f.conn.intake >= finished && !f.ahead }

// goOn says to the leader what is next: what a client sends comes in pieces, in turn with those of
// others.
func (f *forward) goOn(now time.Duration) {
	c := f.conn
	l := c.loop
	defer l.recovered()
	l.engine.Spend(connCost)
	n := min(c.pendingInput(), f.room, trunk.MaxData)
	switch {
	case f.channel == 0 && f.session == 0:
		l.gateway.open(f)
	case f.channel == 0:
		f.resume(now)
	case n > 0:
		in := &c.x.in
		f.unanswered = max(0, f.unanswered-n)
		f.send(in.bytes()[:n])
		in.keepLast(in.len()-n, &l.counts)
	case c.pendingInput() > 0:
		f.ahead = true
		f.conn.loop.gateway.trunk.send(&trunk.Item{Kind: trunk.KindHalfClose, Flags: trunk.Ahead, Channel: f.channel})
	case c.x != nil && c.x.in.rest:
		c.readOn(now)
	case c.intake < finished && !f.last:
		f.last = true
		c.backlog()
		c.readOn(now)
		c.x.in.rest = false
	default:
		f.halfClose()
	}
	f.enqueue()
	c.conclude(now)
}

// halfClose tells the leader that the client sends no more, or is not read any more.
func (f *forward) halfClose() {
	f.half = true
	it := trunk.Item{Kind: trunk.KindHalfClose, Channel: f.channel}
	if f.conn.intake < finished {
		it.Flags = trunk.Leaves
	}
	f.conn.loop.gateway.trunk.send(&it)
}

// takeCredit lets the client send so many bytes more.
func (f *forward) takeCredit(n uint32) error {
	if f.room += int(n); f.room > trunk.MaxCredit {
		return fmt.Errorf("credit for %d bytes of input on channel %d", f.room, f.channel)
	}
	f.enqueue()
	return nil
}

// deliver takes replies for the client.
func (f *forward) deliver(now time.Duration, it *trunk.Item) error {
	answered := uint64(it.Number - uint32(f.answered))
	switch {
	case len(it.Data) > f.credit:
		return fmt.Errorf("%d bytes of replies on channel %d, with credit for %d", len(it.Data), it.Channel, f.credit)
	case answered > f.sent-f.answered:
		return fmt.Errorf("an answer to %d bytes more of channel %d, of %d that were sent", answered, it.Channel, f.sent-f.answered)
	}
	f.credit -= len(it.Data)
	c := f.conn
	if c == nil {
		f.answered += answered
		return nil
	}
	f.got(now, answered, it)
	if f.closed {
		return nil
	}
	l := c.loop
	defer l.recovered()
	l.engine.Spend(connCost)
	n := 0
	if !c.pendingOutput() {
		l.pieces = append(l.pieces[:0], it.Data)
		n, _ = c.write(l.pieces)
		c.noteActivity(now)
	}
	if n < len(it.Data) && c.phase < broken {
		c.backlog().out.add(it.Data[n:], nil, &l.counts)
	}
	if c.x != nil || c.phase >= draining || l.draining {
		c.conclude(now)
	} else {
		f.giveCredit()
	}
	return nil
}

// got notes how much is answered by replies, and what the client has got of another answer.
func (f *forward) got(now time.Duration, answered uint64, it *trunk.Item) {
	if g := f.conn.loop.gateway; len(g.states) > 0 {
		g.settle(f)
	}
	more := it.Flags&trunk.More != 0
	if answered == 0 {
		// Without the flag it answers nothing: it tells the client that it is refused, who has heard the end then.
		n := uint64(f.partial) + uint64(len(it.Data))
		f.partial, f.mixed = uint32(n), f.mixed || !more || n > math.MaxUint32
		return
	}
	f.answered += answered
	f.dropKept(int(f.sent - f.answered))
	if f.effects != nil {
		f.dropEffects()
	}
	f.asked = now
	// With the flag, a part of the next answer follows the end of the last one, and only the leader knows where.
	f.partial, f.mixed = 0, more
}

// giveCredit lets the leader send as much more as the client has taken, once that is half of what
// there may be here.
func (f *forward) giveCredit() {
	c := f.conn
	pending := 0
	if c.pendingOutput() {
		pending = c.x.out.len()
	}
	n := f.window - f.credit - pending
	if n < f.window/2 || f.channel == 0 {
		return
	}
	if f.credit == 0 && pending == 0 {
		more := c.loop.server.widen(f.window, maxWindow)
		f.window += more
		n += more
	}
	f.credit += n
	f.say(trunk.KindCredit, n, nil)
}

// widen returns by how much a window may be raised.
func (s *Server) widen(window, most int) int {
	more := min(window, most-window)
	if !s.takeMemory(int64(more)) {
		return 0
	}
	return more
}

// closeChannel ends the session of a client that is or might have been forwarded.
func (c *conn) closeChannel() {
	if c.closure > postponed {
		return
	}
	c.decoder.Release()
	c.closure = closed
	if f := c.forwarding(); f != nil && f.channel != 0 {
		c.closure = closing // until the leader has given back what the client has reserved
		f.close()
	}
}

// close tells the leader that the client has gone.
func (f *forward) close() {
	f.closed = true
	f.say(trunk.KindClose, 0, nil)
}

// forget is for a connection that has ended.
func (f *forward) forget() {
	c := f.conn
	c.loop.server.widened.Add(int64(trunk.FirstCredit - f.window))
	f.dropKept(0)
	f.dropWants()
	g := c.loop.gateway
	if len(g.states) > 0 {
		g.endStates(f, func(*clientState) {}) // the replies do not reach it
	}
	delete(g.forwards, c)
	delete(g.sessions, f.session)
	f.conn = nil
}

// channelEnded is the end of the client's session at the leader. The channel's number is free.
func (f *forward) channelEnded(now time.Duration, it *trunk.Item) {
	if !f.closed {
		f.close()
	}
	f.channel = 0
	c := f.conn
	if c == nil {
		return
	}
	defer c.loop.recovered()
	c.closure = closed
	switch {
	case it.Flags&trunk.Reset != 0:
		c.resetOnClose()
		c.fail()
	case c.phase == forwarded:
		if it.Number != uint32(f.sent) || c.pendingInput() > 0 {
			c.backlog().behindQuit = true
		}
		c.enter(draining)
	}
	c.conclude(now)
}
