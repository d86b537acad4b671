package reactor

import (
	"time"

	"trellis/engine"
)

const (
	// highWater is how many bytes of replies are collected before they are
	// written although there are more commands to execute.
	highWater = 256 << 10

	// yieldAfter is how many bytes one client may be written before others have
	// their turn.
	yieldAfter = 1 << 20

	// turnTime is how long one client's commands may take before others have their
	// turn. The clock is looked at after every turnCommands of them, if there are
	// turnBytes or more.
	turnTime     = engine.Time(2 * time.Millisecond)
	turnCommands = 32
	turnBytes    = 1 << 10
)

// execute executes the commands in p and returns what it could not execute yet.
// Their replies are in loop.out, behind what was there before; if they were too
// many, some have been written.
func (c *conn) execute(now engine.Time, p []byte) (rest []byte) {
	l := c.loop
	l.tally.begin(now)
	written, until := 0, engine.MaxTime
	if len(p) >= turnBytes {
		until = l.server.cfg.Now() + turnTime
	}
	for executed := 1; ; executed++ {
		l.executing = c
		n, ok := c.decoder.Next(p, &l.cmd)
		if !ok {
			l.executing = nil
			return nil
		}
		p = p[n:]
		if hook := l.server.hooks.command; hook != nil {
			hook(c, &l.cmd)
		}
		before := len(l.out.Buf)
		outcome := c.session.Execute(now, &l.cmd, &l.out)
		l.executing = nil
		if len(l.out.Buf) > before {
			l.replies++
			l.tally.add(l.cmd.Op)
		}
		switch outcome {
		case engine.Wait:
			c.waiting, c.command = true, l.cmd.Op
			if len(p) == 0 {
				c.decoder.Next(nil, &l.cmd) // gives back its memory
			}
			return p
		case engine.Quit:
			c.over = true
			return nil
		}
		if n := len(l.out.Buf); n >= highWater {
			if !c.flush() {
				return p
			}
			if written += n; written >= yieldAfter {
				c.backlog().turn = true
				return p
			}
		}
		if executed%turnCommands == 0 && until != engine.MaxTime && len(p) > 0 && l.server.cfg.Now() >= until {
			c.backlog().turn = true
			return p
		}
	}
}

// advance does all that can be done now for a connection that has something
// pending. What stands in loop.out is the client's and comes behind what is
// pending.
func (c *conn) advance(now engine.Time) {
	if c.pendingOutput() {
		c.flush()
		if !c.writePending(now) {
			return
		}
	}
	if c.canExecute() {
		c.executePending(now)
	}
	c.flush()
	if c.canReadOn() {
		c.readOn(now)
	}
}

// canExecute tells whether the next command can be executed.
func (c *conn) canExecute() bool {
	return !c.waiting && !c.over
}

// executePending executes the commands that wait.
func (c *conn) executePending(now engine.Time) {
	x := c.x
	if x == nil || x.in == nil {
		return
	}
	p := x.in.B[x.inAt:]
	rest := c.execute(now, p)
	c.loop.counts.pendingInput.Add(int64(len(rest) - len(p)))
	x.inAt = len(x.in.B) - len(rest)
	if len(rest) == 0 {
		release(x.in)
		x.in, x.inAt = nil, 0
	}
}

// keep stores input that cannot be executed yet.
func (c *conn) keep(p []byte) {
	x := c.backlog()
	if x.inAt > 0 {
		x.in.B = x.in.B[:copy(x.in.B, x.in.B[x.inAt:])]
		x.inAt = 0
	}
	x.in = appendPooled(x.in, p)
	counts := &c.loop.counts
	counts.pendingInput.Add(int64(len(p)))
	counts.peakInput.Store(max(counts.peakInput.Load(), int64(len(x.in.B))))
}
