package reactor

import (
	"bytes"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/buffer"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

const (
	// channelListener is the number of the connections that are channels. Nobody listens for them.
	channelListener = listenerID(accept.NoListener)

	// maxReplyCredit is how many bytes of replies a client may take ahead, at most.
	maxReplyCredit = trunk.MaxCredit
)

// channel tells whether the connection is a channel.
func (id listenerID) channel() bool { return id == channelListener }

// channel is the connection of a gateway's client: its socket is a channel of the trunk. gnet does not
// know it, and it is never paused, because what may come is bounded. It belongs to its loop's goroutine.
type channel struct {
	conn // the first field: see conn.channel
	stream.Channel

	grant  *engine.Grant // nil for a client that may do everything
	client accept.Endpoint
	id     uint64 // of the session
	number uint32 // of the channel

	window int32 // how far the gateway may send ahead
	room   int32 // how much of it is left

	received uint64 // bytes of input
	ends     uint64 // where in them the last command ends that was executed
	before   uint64 // where the one before it ends
	told     uint64 // what the gateway was told to be answered

	// Items that tell of tubes that the client uses and watches, since the gateway was told; nil for none.
	changes *buffer.Buffer

	parted  bool // a part of a reply was made, and the rest was not
	parts   bool // the session may go on over another trunk
	resumes bool // the session is to go on
	more    bool // the client has half-closed, and not all has come that it has sent before
	leaving bool // the gateway ends
}

// channel is the channel that c is a part of. c.listener.channel() must be true.
func (c *conn) channel() *channel {
	// See conn.tls.
	return (*channel)(unsafe.Pointer(c))
}

// leader is the leader's end of the trunk.
func (h *channel) leader() *leaderEnd { return h.Trunk().Line().(*leaderEnd) }

// begin opens the session of a channel.
func (h *channel) begin(now time.Duration) error {
	l := h.loop
	l.executing = &h.conn
	err := l.engine.OpenAs(&h.session, h.id, h.grant, l.time(now))
	l.executing = nil
	if err == engine.ErrConnections {
		// In one item, whatever room there is: it is no part of an answer, which the gateway has to see.
		h.say(trunk.Item{Kind: trunk.KindReplies, Data: []byte(codec.ReplyOutOfMemory)})
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

// commandEnds notes that all but the last n bytes that have come are executed next, in
// a command or a part of a put.
func (h *channel) commandEnds(op codec.Op, n int) {
	switch op {
	case codec.OpPutBegin, codec.OpPutChunk, codec.OpPutTooBig:
		return // nothing is answered before its end
	}
	h.before, h.ends, h.parted = h.ends, h.received-uint64(n), false
	h.session.CommandEnds(h.ends)
}

// made notes what a command was answered, or a part of that if it waits.
func (h *channel) made(cmd *codec.Command, reply []byte, outcome engine.Outcome) {
	h.parted = outcome == engine.Wait && len(reply) > 0
	flags, number, tube := uint8(trunk.Uses), uint32(0), cmd.Tube
	switch {
	case cmd.Op == codec.OpUse && bytes.HasPrefix(reply, []byte("USING ")):
	case cmd.Op == codec.OpWatch && bytes.HasPrefix(reply, []byte("WATCHING ")):
		if flags = trunk.Watches; cmd.Weight > 1 && h.leader().version >= trunk.ResumesSince {
			number = cmd.Weight
		}
	case cmd.Op == codec.OpIgnore && bytes.HasPrefix(reply, []byte("WATCHING ")):
		flags = trunk.Ignores
	case cmd.Op == codec.OpReserveMode && h.leader().version >= trunk.ResumesSince &&
		bytes.HasPrefix(reply, []byte("USING ")):
		flags, number, tube = trunk.Chooses, trunk.Choice(cmd.Mode, cmd.Info), nil
	default:
		return
	}
	h.changes = buffer.Append(h.changes, []byte{flags, byte(number), byte(number >> 8), byte(len(tube))})
	h.changes = buffer.Append(h.changes, tube)
}

// madeMore notes what more a command was answered that waited.
func (h *channel) madeMore(reply []byte, outcome engine.Outcome) {
	h.parted = outcome == engine.Wait && (h.parted || len(reply) > 0)
}

// tellChanges tells the gateway what the client uses and watches once it has the replies that follow.
func (h *channel) tellChanges() {
	if h.changes == nil {
		return
	}
	for b := h.changes.B; len(b) > 0; {
		end := 4 + int(b[3])
		h.say(trunk.Item{Kind: trunk.KindState, Flags: b[0], Number: uint32(b[1]) | uint32(b[2])<<8, Data: b[4:end]})
		b = b[end:]
	}
	h.forgetChanges()
}

func (h *channel) forgetChanges() {
	if h.changes != nil {
		buffer.Release(h.changes)
		h.changes = nil
	}
}

// answered is how much of the input is answered by all that was made of replies.
func (h *channel) answered() uint64 {
	if h.phase == waiting {
		return h.before
	}
	return h.ends
}

// replies sends the client replies. last says that it is owed nothing else.
func (h *channel) replies(data []byte, last bool) {
	it := trunk.Item{Kind: trunk.KindReplies, Data: data}
	if last {
		h.tellChanges()
		h.told = h.answered()
	}
	if !last || h.parted {
		it.Flags = trunk.More
	}
	it.Number = uint32(h.told)
	h.say(it)
}

// input takes what the client has sent.
func (h *channel) input(now time.Duration, p []byte) error {
	if h.hasAll() {
		return h.leader().misuse(h.number, "input behind a half-close")
	}
	if len(p) > int(h.room) {
		return h.leader().misuse(h.number, "input beyond its credit")
	}
	if d := h.loop.decided[&h.conn]; d != nil && d.awaits {
		return h.leader().misuse(h.number, "input before the last of the effects")
	}
	h.room -= int32(len(p))
	h.received += uint64(len(p))
	if h.resumes {
		h.loop.streams.Counts.BytesIn.Add(uint64(len(p)))
		h.loop.streams.Keep(&h.Stream, p)
		return nil
	}
	h.conn.received(now, p)
	h.giveCredit()
	return nil
}

// giveCredit lets the client send as much more as was executed of its input, when that is half of what
// it may send.
func (h *channel) giveCredit() {
	if h.phase >= draining || h.hasAll() || h.loop.draining {
		return // no more of it is executed
	}
	kept := int32(h.InputLen())
	if h.room == 0 && kept == 0 {
		h.window += h.widen()
	}
	n := h.window - h.room - kept
	if n < h.window/2 {
		return
	}
	h.room += n
	h.say(trunk.Item{Kind: trunk.KindCredit, Number: uint32(n)})
}

// widen raises the window as far as there is room, and returns by how much.
func (h *channel) widen() int32 {
	more := min(h.window, relay.MaxInputWindow-h.window)
	if !h.loop.server.takeMemory(int(more)) {
		return 0
	}
	return more
}

// takeCredit takes the gateway's word that n bytes more of replies may be sent.
func (h *channel) takeCredit(n uint32) error {
	if int64(h.Credit())+int64(n) > maxReplyCredit {
		return h.leader().misuse(h.number, "more credit for replies than may be given")
	}
	h.loop.streams.AddCredit(&h.Stream, int(n))
	return nil
}

// halfClose notes that the client sends no more, or that the gateway reads no more of it because it ends.
func (h *channel) halfClose(now time.Duration, flags uint8) error {
	ahead := flags&trunk.Ahead != 0
	switch {
	case h.Ended() && (ahead || !h.more):
		return h.leader().misuse(h.number, "a second half-close")
	case h.phase == authenticating: // until commands are executed again
		h.more, h.leaving = ahead, flags&trunk.Leaves != 0
		h.loop.streams.End(&h.Stream)
	case h.more:
		h.more = false
		h.conclude(now)
	case flags&trunk.Leaves != 0 && h.phase < draining:
		h.leaving = true
		h.loop.streams.End(&h.Stream)
		h.outlive(now)
	default:
		h.more = ahead
		h.closing(now, errHalfClosed)
	}
	return nil
}

// hasAll tells whether all has come that the client has sent before it half-closed.
func (h *channel) hasAll() bool { return h.Ended() && !h.more }

// close tells the gateway that the session is over, unless the trunk ends itself.
func (h *channel) close(reset bool) {
	h.forgetChanges()
	s := h.loop.server
	s.gatewayMemory.Add(int64(trunk.FirstCredit - h.window))
	if h.Trunk().Over() || h.loop.stopping || s.aborting.Load() {
		return
	}
	it := trunk.Item{Kind: trunk.KindEnd, Number: uint32(h.ends)}
	if reset {
		it.Flags = trunk.Reset
	}
	h.say(it)
}

// say sends an item of the channel.
func (h *channel) say(it trunk.Item) {
	it.Channel = h.number
	h.leader().say(it)
}

// Denied implements engine.Carrier.
func (l *loop) Denied(s *engine.Session, d *engine.Deed) bool {
	c := connOf(s)
	if !c.listener.channel() {
		return false
	}
	h := c.channel()
	denied := trunk.Denied{Command: d.Op.String(), Tube: d.Tube, To: d.To, Result: d.Result, ID: d.ID}
	h.leader().say(trunk.Item{Kind: trunk.KindDenied, Channel: h.number, Data: denied.Append(nil)})
	return true
}
