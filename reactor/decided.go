package reactor

import (
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/stream"
)

// decided is what is known of the input of a session that goes on, of which another server, or this one over
// another trunk, may have executed a part.
type decided struct {
	at      uint64           // how much of the session's input the decoder has taken
	effects []journal.Effect // that the log tells of, of commands that end behind that, by offset
	partial int              // how many bytes of the replies to what follows the client has got already
	awaits  bool             // more effects are to come, and until then no input
}

// decide has the input of a client that goes on be executed as it was: so much of it is answered, and of what follows the
// log tells of these effects, by offset. Of the replies to that the client has got some bytes already.
func (c *conn) decide(answered uint64, effects []journal.Effect, partial uint32) {
	d := &decided{at: answered, effects: effects, partial: int(partial)}
	if !d.over() {
		c.loop.decide(c, d)
	}
}

func (l *loop) decide(c *conn, d *decided) {
	if l.decided == nil {
		l.decided = make(map[*conn]*decided)
	}
	l.decided[c] = d
}

// over tells whether all that follows is executed as ever.
func (d *decided) over() bool { return len(d.effects) == 0 && d.partial == 0 && !d.awaits }

// ended takes the effects of a command that ends where the decoder is. It reports false if one is of a
// command that would have ended elsewhere.
func (d *decided) ended(whole bool) (effects []journal.Effect, fit bool) {
	n := 0
	for n < len(d.effects) && d.effects[n].Offset <= d.at {
		if !whole || d.effects[n].Offset < d.at {
			return nil, false
		}
		n++
	}
	effects, d.effects = d.effects[:n], d.effects[n:]
	return effects, true
}

// executeDecided is execute for a client of whose input a part is decided: a command of which the log has effects is
// answered, and others before such a one, or whose replies the client has in part, are executed only if that is bound to
// have the same result. Otherwise nobody knows what the client was told, or would have been.
func (c *conn) executeDecided(d *decided, now time.Duration, p []byte) (rest []byte) {
	l := c.loop
	l.batch.begin(now)
	for had, executed := l.engine.Left(), 1; ; executed++ {
		l.executing = c
		n, ok := c.decoder.Next(p, &l.cmd)
		if !ok {
			n = len(p)
		}
		p = p[n:]
		d.at += uint64(n)
		effects, fit := d.ended(ok && !inParts(l.cmd.Op))
		switch {
		case !fit:
			c.loseTrack("the log tells of a command where none ends", &l.counts.misfits)
			return nil
		case !ok:
			l.executing = nil
			return nil
		}
		if c.listener.channel() {
			c.channel().commandEnds(l.cmd.Op, len(p))
		}
		if hook := l.server.hooks.command; hook != nil {
			hook(c, &l.cmd)
		}
		before := len(l.out.Buf)
		outcome, known := c.settle(d, effects, now)
		if !known {
			c.loseTrack("nobody knows what its client was told", &l.counts.unknown)
			return nil
		}
		l.executing = nil
		if c.listener.channel() {
			c.channel().made(&l.cmd, l.out.Buf[before:], outcome)
		}
		if len(l.out.Buf) > before && outcome != engine.Wait {
			l.batch.add(l.cmd.Op)
		}
		d.partial -= stream.Skip(&l.out, d.partial)
		if d.over() {
			delete(l.decided, c)
		}
		switch {
		case outcome == engine.Wait:
			c.awaits(now, len(p) == 0)
			return p
		case outcome == engine.Quit:
			c.quits(len(p) > 0)
			return nil
		case d.over():
			return c.execute(now, p)
		case stream.Size(&l.out) >= stream.HighWater && (!c.flush() || l.engine.Left() <= 0):
			return p
		}
		if left := l.engine.Left(); left <= 0 && (executed >= overrun || had-left >= overrunCost) && len(p) > 0 {
			return p
		}
	}
}

// inParts tells whether a command goes on behind a part of it.
func inParts(op codec.Op) bool {
	return op == codec.OpPutBegin || op == codec.OpPutChunk || op == codec.OpPutTooBig
}

// settle answers the command in l.cmd, which has had these effects, or executes it. It reports false if that cannot have
// the result that it had.
func (c *conn) settle(d *decided, effects []journal.Effect, now time.Duration) (outcome engine.Outcome, known bool) {
	l := c.loop
	at := l.time(now)
	last := len(d.effects) == 0
	answer := engine.NotDone
	if len(effects) > 0 {
		answer, outcome = c.session.Answer(at, &l.cmd, effects, &l.out)
		switch answer {
		case engine.SameAnswer:
			known = true
		case engine.OtherAnswer:
			known = d.partial == 0
		case engine.NotDone:
			if known = d.partial == 0 && last; known {
				outcome = c.session.Execute(at, &l.cmd, &l.out)
			}
		}
	} else if known = c.session.Harmless(&l.cmd); known {
		outcome = c.session.Execute(at, &l.cmd, &l.out)
	}
	switch {
	case outcome == engine.Wait && d.partial > 0, outcome == engine.Quit && !last:
		known = false
	case known && answer != engine.NotDone:
		l.counts.repeated.Add(1)
	}
	return outcome, known
}

// loseTrack resets the connection of a client of whose commands it is not known which were done, or what it was told.
func (c *conn) loseTrack(why string, count *atomic.Uint64) {
	l := c.loop
	l.executing, l.batch = nil, batch{}
	stream.Empty(&l.out)
	count.Add(1)
	if n, ok := l.server.closes.Allow(); ok {
		l.server.log.Warn("a connection that was to go on is reset", "reason", why, "peer", c.endpoint().String(), "unreported", n)
	}
	c.resetOnClose()
	c.fail()
}
