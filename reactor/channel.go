package reactor

import (
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// channelListener is the number of the connections that are channels. Nobody listens for them.
const channelListener = listenerID(accept.NoListener)

// channel reports whether the connection is a channel.
func (id listenerID) channel() bool { return id == channelListener }

// channel is the connection of a gateway's client: its socket is a channel of the trunk. gnet does not
// know it, and it is never paused, because what may come is bounded. It belongs to its loop's goroutine.
type channel struct {
	conn // the first field: see conn.channel
	stream.Channel
	relay relay.Channel

	client  accept.Endpoint
	opening *relay.Opening // while the session is not opened, because the server is held; nil otherwise
}

// channel is the channel that c is a part of. c.listener.channel() must be true.
func (c *conn) channel() *channel {
	// See conn.tls.
	return (*channel)(unsafe.Pointer(c))
}

// leader is the leader's end of the trunk.
func (h *channel) leader() *leaderEnd { return h.Trunk().Line().(*leaderEnd) }

// channelOf is the channel that h is a part of: leaderEnd.NewChannel has made it.
func channelOf(h *relay.Channel) *channel {
	return (*channel)(unsafe.Add(unsafe.Pointer(h), -int(unsafe.Offsetof(channel{}.relay))))
}

// begin opens the session of a channel.
func (h *channel) begin(now time.Duration, o *relay.Opening) error {
	l := h.loop
	l.executing = &h.conn
	err := l.engine.OpenAs(&h.session, o.Client.Session, o.Grant, l.time(now))
	l.executing = nil
	if err == engine.ErrConnections {
		h.leader().Refuse(&h.relay, codec.ReplyOutOfMemory)
		h.enter(draining)
		h.conclude(now)
		return nil
	}
	if err != nil {
		return err
	}
	if r := h.session.Rate(); r != nil {
		r.Take(l.time(now), rateConnection)
	}
	h.enter(serving)
	h.limitLife(now)
	return nil
}

// beginLate opens the session of a channel that came while the server was held.
func (h *channel) beginLate(now time.Duration) error {
	o := h.opening
	h.opening = nil
	return h.begin(now, o)
}

// commandEnds notes that all but the last n bytes that have come are executed next, in a command or a part of a put.
func (h *channel) commandEnds(op codec.Op, n int) {
	if end, ok := h.relay.CommandEnds(op, n); ok {
		h.session.CommandEnds(end)
	}
}

// replied notes what a command was answered, or a part of that if it waits.
func (h *channel) replied(cmd *codec.Command, reply []byte, outcome engine.Outcome) {
	h.leader().Replied(&h.relay, cmd, reply, outcome)
}

// input takes what the client has sent.
func (h *channel) input(now time.Duration, p []byte) {
	if h.relay.Resumes() {
		h.loop.streams.Counts.BytesIn.Add(uint64(len(p)))
		h.loop.streams.Keep(&h.Stream, p)
		return
	}
	h.conn.received(now, p)
	h.giveCredit()
}

// giveCredit lets the client send more when its input was executed.
func (h *channel) giveCredit() {
	if h.phase < draining && !h.loop.draining { // otherwise no more of it is executed
		h.leader().GiveCredit(&h.relay, h.InputLen())
	}
}

// halfClose notes that the client sends no more, or that the gateway reads no more of it because it ends.
func (h *channel) halfClose(now time.Duration) {
	switch {
	case h.phase == authenticating: // until commands are executed again
		h.loop.streams.End(&h.Stream)
	case h.relay.IsLeaving() && h.phase < draining:
		h.loop.streams.End(&h.Stream)
		h.outlive(now)
	default:
		h.closing(now, errHalfClosed)
	}
}

// close says to the gateway that the session is over, unless the trunk ends itself.
func (h *channel) close(reset bool) {
	s := h.loop.server
	h.leader().Leader.End(&h.relay, reset, h.loop.stopping || s.aborting.Load())
}

// Denied implements engine.Carrier.
func (l *loop) Denied(s *engine.Session, d *engine.Deed) bool {
	c := connOf(s)
	if !c.listener.channel() {
		return false
	}
	h := c.channel()
	h.leader().Denied(&h.relay, &trunk.Denied{
		Command: d.Op.String(), Tube: d.Tube, To: d.To, Result: d.Result, ID: d.ID,
	})
	return true
}
