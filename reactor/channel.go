package reactor

import (
	"unsafe"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
)

// channel is the connection of a gateway's client: its socket is a channel of the trunk. gnet does not
// know it, and it is never paused, because what may come is bounded. It belongs to its loop's goroutine.
type channel struct {
	conn // the first field: see conn.channel
	stream.Channel
	relay relay.Channel

	client  accept.Endpoint
	opening *relay.Opening // while the session is not opened, because the server is held; nil otherwise
}

// channel is the channel that c is a part of, nil for any other connection.
func (c *conn) channel() *channel {
	if c.Kind() != stream.OnTrunk {
		return nil
	}
	// See conn.tlsConn.
	return (*channel)(unsafe.Pointer(c))
}

// leader is the leader's end of the trunk.
func (h *channel) leader() *leaderEnd { return h.Trunk().Line().(*leaderEnd) }

// channelOf is the channel that h is a part of: leaderEnd.NewChannel has made it.
func channelOf(h *relay.Channel) *channel {
	return (*channel)(unsafe.Add(unsafe.Pointer(h), -int(unsafe.Offsetof(channel{}.relay))))
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

// giveCredit lets the client send more when its input was executed.
func (h *channel) giveCredit() {
	if h.phase < draining && !h.loop.draining { // otherwise no more of it is executed
		h.leader().GiveCredit(&h.relay, h.InputLen())
	}
}

// close says to the gateway that the session is over, unless the trunk ends itself.
func (h *channel) close(reset bool) {
	s := h.loop.server
	h.leader().Leader.End(&h.relay, reset, h.loop.stopping || s.aborting.Load())
}

// Channel implements stream.Owner.
func (l *loop) Channel(s *stream.Stream) *stream.Channel { return &connOfStream(s).channel().Channel }
