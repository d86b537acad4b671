package reactor

import (
	"time"

	"trellis/engine"
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
	l.batch.begin(now)
	had, at, channel := l.engine.Left(), l.time(now), c.listener.channel()
	for executed = 1; ; executed++ {
		l.executing = c
		n, ok := c.decoder.Next(p, &l.cmd)
		if !ok {
			l.executing = nil
			return nil, executed - 1
		}
		p = p[n:]
		if channel {
			c.channel().commandEnds(l.cmd.Op, len(p))
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
		if channel {
			c.channel().replied(&l.cmd, l.out.Buf[before:], outcome)
		}
		if outcome == engine.Wait {
			c.awaits(now, len(p) == 0)
			return p, executed
		}
		if len(l.out.Buf) > before {
			l.batch.add(l.cmd.Op)
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
	if c.listener.channel() {
		c.channel().relay.RepliedMore(l.out.Buf, outcome)
	}
	if outcome == engine.Done {
		c.noteActivity(now)
		c.waited(now)
	}
}

// waited notes that the command that the session waited in was answered.
func (c *conn) waited(now time.Duration) {
	l := c.loop
	if c.takesLong() {
		l.batch.begin(c.backlogOrNil().since)
		l.batch.add(c.command)
	} else {
		l.latency.waited(c.command, now-l.duration(c.session.WaitingSince()))
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
	if c.listener.channel() {
		c.channel().giveCredit()
	}
}
