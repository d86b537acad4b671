package reactor

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/relay"
)

// Hold stops the execution of commands, or goes on with it. When Hold(true) returns, no
// command executes on any loop, and none will until Hold(false) or Shutdown. Nor does the
// engine end waits or do what is due, whoever looks at it. All that is made up for afterwards: so
// are the ends of sessions, and the answers to reserves of clients that half-close. What clients send
// meanwhile is kept, up to the usual limits; connections wait to be taken in, and replies are sent
// when they are committed.
//
// Hold(true) first waits until commands of which a part was executed have ended, for 200 ms at most, and not for
// clients that have to read before. Until then what waits goes on, but nothing is executed that comes later.
//
// A server that is being shut down is not held. Hold(true) then returns when it has ended.
// Calls of Hold must not overlap.
func (s *Server) Hold(on bool) {
	if !s.beginHold() {
		if on {
			<-s.stopped
		}
		return
	}
	defer s.holds.Done()
	switch e := s.engine.Load(); {
	case e == nil, on && s.held.Load(): // it stays held
	case on:
		s.heldSince.Store(int64(s.hooks.boot()))
		s.holdLoops()
		e.Hold(true)
		s.held.Store(true)
	default:
		s.release()
	}
}

// holdLoops lets the loops execute nothing that comes from now on, and nothing at all when commands of which a part was
// executed have ended, or finishTime is over. What waits goes on until then, on all loops: some commands need several.
func (s *Server) holdLoops() {
	end := time.Now().Add(s.hooks.finish)
	// Something may begin while the loops hear that nothing is left.
	for s.countUnfinished(true) > 0 || s.countUnfinished(false) > 0 {
		if time.Now().After(end) || s.aborting.Load() {
			s.countUnfinished(false)
			return
		}
		time.Sleep(flushPause)
	}
}

// countUnfinished holds the loops, where what waits goes on or not. It returns how many commands are executed in part.
func (s *Server) countUnfinished(goOn bool) int64 {
	var n atomic.Int64
	s.onLoops(func(l *loop) {
		l.held, l.finishing = true, goOn
		for _, c := range l.conns {
			if c.inCommand() {
				n.Add(1)
			}
		}
	})
	return n.Load()
}

// inCommand reports whether the client waits for a command of which a part was executed, and the rest waits neither
// until the client reads nor for its rate.
func (c *conn) inCommand() bool {
	return c.phase == waiting && c.session.Begun() && !c.Stalled() && !c.throttled()
}

// release ends a Hold, if there is one.
func (s *Server) release() {
	s.held.Store(false)
	s.engine.Load().Hold(false)
	s.onLoops((*loop).release)
}

// release lets the loop execute commands again, behind what clients have ended meanwhile.
func (l *loop) release() {
	l.held = false
	if l.server.aborting.Load() {
		return // nothing is executed any more
	}
	l.endRetired()
	now := l.server.now()
	for _, c := range l.postponed {
		c.makeUp(now)
	}
	l.postponed = nil
}

// makeUp does what could not be done while nothing was executed: it takes the token that the client
// has sent, answers a reserve that waits of one that will send no more, or that has sent more, and closes a session.
func (c *conn) makeUp(now time.Duration) {
	defer c.loop.recovered()
	if h := c.channel(); h != nil && h.opening != nil && c.phase == authenticating {
		if err := h.beginLate(now); err != nil {
			c.cutOff(now)
			return
		}
	}
	if c.phase == authenticating && c.InputLen() > 0 {
		in := &c.Pending().In
		p, rest := slices.Clone(in.Bytes()), in.Rest
		in.Discard(&c.loop.streams.Counts)
		in.Rest = rest
		c.take(now, p)
	}
	if c.phase == waiting && c.InputLen() > 0 {
		c.interrupt(now)
	}
	switch {
	case !c.Ended() || c.phase >= draining:
	case c.phase == forwarded:
		c.loop.gateway.AskTurn(c.forwarding())
	default:
		c.endInput(now)
	}
	if c.closure == postponed {
		c.closeSession(now)
	}
	c.conclude(now)
}

// flushPause is between two looks of Flush, and of holdLoops.
const flushPause = time.Millisecond

// Flush waits until the system has every reply, those included that still wait for a
// commit, and returns nil, or until ctx is done: there may always be clients that do not
// read. Where the journal has [engine.Holds], clients go on elsewhere with what they have not read, and what they
// can be sent is waited for only. Gateways are told to retire, as the last thing that is said to them. It
// is for a server that is held, and that will be aborted, or detached; on one that is being
// shut down it returns nil at once.
func (s *Server) Flush(ctx context.Context) error {
	if !s.beginHold() {
		return nil
	}
	defer s.holds.Done()
	// A loop makes its calls before it looks at what is committed and sends that: when
	// it makes the second call, it has done so behind the first.
	s.onLoops(func(*loop) {})
	s.onLoops(func(*loop) {})
	for {
		var pending atomic.Int64
		s.onLoops(func(l *loop) { pending.Add(l.unflushed()) })
		if pending.Load() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reactor: %d bytes of replies were not taken: %w", pending.Load(), ctx.Err())
		case <-s.done:
			return nil
		case <-time.After(flushPause):
		}
	}
}

// unflushed is how many bytes the system has not got of what the loop's clients are owed, and is more than 0
// while a reply waits for a commit. Trunks whose sessions go on over others are told to retire when nothing
// more is to be said on them, and then only they are waited for: what their clients
// have not taken, and what the server's own have not if their sessions go on too, is not lost.
func (l *loop) unflushed() (bytes int64) {
	busy := !l.commits.waiting.Empty() || l.streams.HasWritable()
	if busy {
		bytes++
	}
	if h, ok := l.journal.(engine.Holds); !ok || !h.RecordsHolds() {
		bytes += l.streams.Counts.PendingOutput.Load()
	}
	for _, t := range l.links.All() {
		e, ok := t.End().(*leaderEnd)
		switch {
		case !ok:
		case !e.ResumesSessions():
			bytes += e.pendingOutput()
		case busy || e.Waiting():
			bytes++
		default:
			e.Retire()
		}
		bytes += int64(t.Pending())
	}
	return bytes
}

// pendingOutput is what the trunk's clients are owed.
func (e *leaderEnd) pendingOutput() (bytes int64) {
	for _, h := range e.Channels() {
		if h != nil {
			bytes += int64(channelOf(h).Owed())
		}
	}
	return bytes
}

// endRetired ends the trunks that were told to retire: their gateways come back over others.
func (l *loop) endRetired() {
	now := l.server.now()
	for _, t := range l.links.All() {
		if e, ok := t.End().(*leaderEnd); ok && e.IsRetired() {
			t.Fail(now, relay.ErrRetired)
		}
	}
}
