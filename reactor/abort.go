package reactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

var errAborted = errors.New("reactor: the server was aborted")

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
		s.heldSince.Store(int64(s.bootTime()))
		s.holdLoops()
		e.Hold(true)
		s.held.Store(true)
	default:
		s.release()
	}
}

// finishTime is how long a Hold waits for commands of which a part was executed. Nobody else could go on with them, but
// all others wait meanwhile.
const finishTime = 200 * time.Millisecond

// holdLoops has the loops execute nothing that comes from now on, and nothing at all when commands of which a part was
// executed have ended, or finishTime is over. What waits goes on until then, on all loops: some commands need several.
func (s *Server) holdLoops() {
	end := time.Now().Add(s.hooks.finish)
	for s.begun(true) > 0 || s.begun(false) > 0 { // something may begin while the loops hear that nothing is left
		if time.Now().After(end) || s.aborting.Load() {
			s.begun(false)
			return
		}
		time.Sleep(flushPause)
	}
}

// begun has the loops be held, and what waits go on or not. It returns how many commands have begun.
func (s *Server) begun(goOn bool) int64 {
	var n atomic.Int64
	s.onLoops(func(l *loop) {
		l.held, l.finishing = true, goOn
		for _, c := range l.conns {
			if c.hasBegun() {
				n.Add(1)
			}
		}
	})
	return n.Load()
}

// hasBegun tells whether the client waits for a command of which a part was executed, and the rest waits neither until
// the client reads nor for its rate.
func (c *conn) hasBegun() bool {
	return c.phase == waiting && c.session.Begun() && !c.Stalled() && !c.throttled()
}

// resumes tells whether sessions that wait go on.
func (l *loop) resumes() bool { return !l.held || l.finishing }

// release ends a Hold, if there is one.
func (s *Server) release() {
	s.held.Store(false)
	s.engine.Load().Hold(false)
	s.onLoops((*loop).release)
}

// release has the loop execute commands again, behind what clients have ended meanwhile.
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

// postpone has makeUp called for the connection when commands are executed again.
func (c *conn) postpone() { c.loop.postponed = append(c.loop.postponed, c) }

// makeUp does what could not be done while nothing was executed: it takes the token that the client
// has sent, answers a reserve that waits of one that will send no more, or that has sent more, and closes a session.
func (c *conn) makeUp(now time.Duration) {
	defer c.loop.recovered()
	if c.phase == authenticating && c.listener.channel() && c.channel().opening != nil {
		if err := c.channel().beginLate(now); err != nil {
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

// beginHold keeps the loops from being stopped until holds.Done, unless the server is
// being shut down.
func (s *Server) beginHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.holds.Add(1)
	}
	return !s.closing
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

// Abort ends the server without a word: it closes the listeners, drops all output that
// was not written, and resets all connections, so that clients know that they do not know
// what has become of their commands. (A Unix socket cannot be reset, and is closed.) When
// Abort returns, nothing executes any more, and the loops have ended. The sessions are
// left in the engine as they are: nothing but Discard is to be done with it.
//
// A loop that hangs keeps Abort from returning. On Linux the clients of the other loops are
// reset at once nevertheless, and those that come to these loops later. The listeners accept
// nobody any more. Processes that share the listening sockets cannot accept on them any more
// either.
//
// A Shutdown that is under way ends at once, with an error.
func (s *Server) Abort() {
	s.beginAbort()
	_ = s.Shutdown(context.Background())
}

// beginAbort has all connections reset.
func (s *Server) beginAbort() {
	s.abort.Do(func() {
		s.aborting.Store(true)
		close(s.aborted)
		s.stopAccepting()
		s.acceptor.Abort()
		for _, l := range s.loops {
			l.call((*loop).resetAll)
		}
	})
}

// resetAll ends all connections of the loop. The server is being aborted.
func (l *loop) resetAll() {
	l.prepareToStop()
	now := l.server.now()
	for _, c := range slices.Clone(l.conns) {
		c.reset(now)
	}
	for _, t := range slices.Clone(l.trunks.list) {
		t.fail(now, errAborted)
	}
}

// reset ends a connection of an aborted server.
func (c *conn) reset(now time.Duration) {
	defer c.loop.recovered()
	c.fail()
	c.end(now)
}
