package reactor

import (
	"math"
	"time"

	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor/internal/stream"
)

// execute executes the commands in p and returns what it could not execute yet.
// Their replies are in loop.out, behind what was there before; if they were too
// many, some have been written.
func (c *conn) execute(now time.Duration, p []byte) (rest []byte) {
	if l := c.loop; len(l.replays) > 0 {
		if d := l.replays[c]; d != nil {
			return c.executeReplay(d, now, p)
		}
	}
	if r := c.session.Rate(); r != nil {
		return c.executeMetered(r, now, p)
	}
	rest, _ = c.executeUpTo(unmetered, now, p)
	return rest
}

// executeUpTo is execute for at most so many commands, of which it also returns the number. A
// body that comes in parts counts once for each.
func (c *conn) executeUpTo(most int, now time.Duration, p []byte) (rest []byte, executed int) {
	l := c.loop
	l.batch.Begin(now)
	had, at, h := l.engine.Left(), l.time(now), c.channel()
	for executed = 1; ; executed++ {
		l.executing = c
		n, ok := c.decoder.Next(p, &l.cmd)
		if !ok {
			l.executing = nil
			return nil, executed - 1
		}
		p = p[n:]
		if h != nil {
			h.commandEnds(l.cmd.Op, len(p))
		}
		if hook := l.server.hooks.command; hook != nil {
			hook(c, &l.cmd)
		}
		before := len(l.out.Buf)
		outcome := c.session.Execute(at, &l.cmd, &l.out)
		if outcome == engine.Wait && len(p) > 0 {
			outcome = c.session.Interrupt(at, &l.out)
		}
		l.executing = nil
		if h != nil {
			h.replied(&l.cmd, l.out.Buf[before:], outcome)
		}
		if outcome == engine.Wait {
			c.awaits(now, len(p) == 0)
			return p, executed
		}
		if len(l.out.Buf) > before {
			l.batch.Add(l.cmd.Op)
		}
		if outcome == engine.Quit {
			c.quits(len(p) > 0)
			return nil, executed
		}
		if stream.Size(&l.out) >= stream.HighWater && (!c.flush() || l.engine.Left() <= 0) {
			return p, executed
		}
		if left := l.engine.Left(); left <= 0 && (executed >= overrun || had-left >= overrunCost) && len(p) > 0 {
			return p, executed
		}
		if executed >= most && len(p) > 0 {
			return p, executed
		}
	}
}

// awaits notes that the session waits in the command in l.cmd, behind which more has come unless it is the last.
func (c *conn) awaits(now time.Duration, last bool) {
	l := c.loop
	c.enter(waiting)
	c.command = l.cmd.Op
	if c.takesLong() {
		c.needBacklog().since = now
	}
	if last {
		c.decoder.Next(nil, &l.cmd) // gives back its memory
	}
}

// quits notes that the session has ended, perhaps with more that has come behind its last command.
func (c *conn) quits(more bool) {
	c.enter(draining)
	if more {
		c.needBacklog().behindQuit = true
	}
}

// endWait goes on with a command that the session waits in.
func (c *conn) endWait(now time.Duration) {
	l := c.loop
	l.executing = c
	outcome := c.session.Resume(l.time(now), &l.out)
	if outcome == engine.Wait && c.InputLen() > 0 {
		outcome = c.session.Interrupt(l.time(now), &l.out)
	}
	l.executing = nil
	if h := c.channel(); h != nil {
		h.relay.RepliedMore(l.out.Buf, outcome)
	}
	if outcome == engine.Done {
		c.noteActivity(now)
		c.waited(now)
	}
}

// interrupt tells the engine that the client has sent more behind the command in which it waits, and goes on if that
// ends the wait.
func (c *conn) interrupt(now time.Duration) {
	l := c.loop
	l.executing = c
	outcome := c.session.Interrupt(l.time(now), &l.out)
	l.executing = nil
	if outcome == engine.Done {
		c.waited(now)
		c.advance(now)
	}
}

// waited notes that the command that the session waited in was answered.
func (c *conn) waited(now time.Duration) {
	l := c.loop
	if c.takesLong() {
		l.batch.Begin(c.backlogOrNil().since)
		l.batch.Add(c.command)
	} else {
		l.latency.Waited(c.command, now-l.duration(c.session.WaitingSince()))
	}
	c.enter(serving)
}

// advance does what can be done now for a connection. What stands in loop.out is
// the client's and comes behind what is pending.
func (c *conn) advance(now time.Duration) {
	if c.Owes() {
		c.flush()
		if !c.flushPending(now) {
			return
		}
	}
	if x := c.backlogOrNil(); x != nil && x.woken && x.throttled == nil && c.phase == waiting && c.loop.resumes() {
		x.woken = false
		c.resumeMetered(now)
	}
	c.executePending(now)
	if c.flush() && c.phase == serving && c.HasInput() && c.InputLen() == 0 {
		c.readOn(now)
	}
}

// executePending executes the commands that wait, if they can be.
func (c *conn) executePending(now time.Duration) {
	x := c.backlogOrNil()
	if x == nil || x.In.Empty() || x.throttled != nil || c.phase != serving || c.loop.held {
		return
	}
	rest := c.execute(now, x.In.Bytes())
	x.In.KeepLast(len(rest), &c.loop.streams.Counts)
	c.limitBody(now)
	if h := c.channel(); h != nil {
		h.giveCredit()
	}
}

// readOn reads once from the connection and executes what it gets.
func (c *conn) readOn(now time.Duration) {
	l := c.loop
	l.executing = c
	ok := l.streams.ReadRest(&c.Stream)
	l.executing = nil
	if !ok {
		c.fail()
		return
	}
	c.executePending(now)
	c.flush()
}

// executeMetered is execute for a connection whose account has a limit on its commands.
func (c *conn) executeMetered(r *account.Rate, now time.Duration, p []byte) (rest []byte) {
	l := c.loop
	at := l.time(now)
	most := r.Left(at)
	if l.throttled.turn != c && l.throttled.lines[r] != nil {
		most = 0 // others were there before
	}
	if len(p) > 0 && most == 0 {
		c.throttle(r, at)
		return p
	}
	had := l.engine.Left()
	rest, executed := c.executeUpTo(min(most, rateTurn), now, p)
	r.Take(at, executed+max(0, had-l.engine.Left()-executed)/rateCost)
	return rest
}

// resumeMetered ends a wait as endWait does. If the command takes long, its account pays for
// what is done of it now. It reports false if the account cannot: then the connection waits
// for its turn.
func (c *conn) resumeMetered(now time.Duration) bool {
	l := c.loop
	r := c.session.Rate()
	if r == nil || !c.takesLong() || l.draining {
		c.endWait(now)
		return true
	}
	at := l.time(now)
	if r.Left(at) == 0 || l.throttled.turn != c && l.throttled.lines[r] != nil {
		c.needBacklog().woken = true
		c.throttle(r, at)
		return false
	}
	had := l.engine.Left()
	c.endWait(now)
	r.Take(at, (had-l.engine.Left())/rateCost)
	return true
}

// unmetered is a number of commands that is never reached.
const unmetered = math.MaxInt
