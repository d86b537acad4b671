package reactor

import (
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
)

// replay replays the input of a client that goes on.
func (l *loop) replay(c *conn, d *relay.Replay) {
	if l.replays == nil {
		l.replays = make(map[*conn]*relay.Replay)
	}
	l.replays[c] = d
}

// executeReplay is execute for a client whose input an earlier leader may have executed. It resets the client where
// nobody knows what that was told, or would have been.
func (c *conn) executeReplay(d *relay.Replay, now time.Duration, p []byte) (rest []byte) {
	l, h := c.loop, c.channel()
	l.batch.Begin(now)
	for had, executed := l.engine.Left(), 1; ; executed++ {
		l.executing = c
		n, ok := c.decoder.Next(p, &l.cmd)
		if !ok {
			n = len(p)
		}
		p = p[n:]
		effects, fit := d.Decoded(n, ok && !inParts(l.cmd.Op))
		switch {
		case !fit:
			c.loseTrack("the log tells of a command where none ends", &l.counts.misfits)
			return nil
		case !ok:
			l.executing = nil
			return nil
		}
		if h != nil {
			h.commandEnds(l.cmd.Op, len(p))
		}
		if hook := l.server.hooks.command; hook != nil {
			hook(c, &l.cmd)
		}
		before := len(l.out.Buf)
		outcome, known, repeated := d.Execute(&c.session, l.time(now), &l.cmd, effects, &l.out)
		if !known {
			c.loseTrack("nobody knows what its client was told", &l.counts.unknown)
			return nil
		}
		if outcome == engine.Wait && len(p) > 0 {
			outcome = c.session.Interrupt(l.time(now), &l.out)
		}
		if repeated {
			l.counts.repeated.Add(1)
		}
		l.executing = nil
		if h != nil {
			h.replied(&l.cmd, l.out.Buf[before:], outcome)
		}
		if len(l.out.Buf) > before && outcome != engine.Wait {
			l.batch.Add(l.cmd.Op)
		}
		d.Skipped(stream.Skip(&l.out, d.Partial()))
		if d.IsOver() {
			delete(l.replays, c)
		}
		switch {
		case outcome == engine.Wait:
			c.awaits(now, len(p) == 0)
			return p
		case outcome == engine.Quit:
			c.quits(len(p) > 0)
			return nil
		case d.IsOver():
			return c.execute(now, p)
		case stream.Size(&l.out) >= stream.HighWater && (!c.flush() || l.engine.Left() <= 0):
			return p
		}
		if left := l.engine.Left(); left <= 0 && (executed >= overrun || had-left >= overrunCost) && len(p) > 0 {
			return p
		}
	}
}

// inParts reports whether a command goes on behind a part of it.
func inParts(op codec.Op) bool {
	return op == codec.OpPutBegin || op == codec.OpPutChunk || op == codec.OpPutTooBig
}

// loseTrack resets the connection of a client of whose commands it is not known which were done, or what it was told.
func (c *conn) loseTrack(why string, count *atomic.Uint64) {
	l := c.loop
	l.executing, l.batch = nil, latency.Batch{}
	stream.Empty(&l.out)
	count.Add(1)
	if n, ok := l.server.closes.Allow(); ok {
		l.server.log.Warn("a connection that was to go on is reset",
			"reason", why, "peer", c.endpoint().String(), "unreported", n)
	}
	c.resetOnClose()
	c.fail()
}
