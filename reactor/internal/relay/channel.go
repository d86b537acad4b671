package relay

import (
	"bytes"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// source is what may come of a client's input.
type source uint8

const (
	sends       source = iota // the client may send more
	sendsRest                 // it has half-closed, and not all has come that it has sent before
	sentAll                   // it has half-closed, and all has come
	gatewayEnds               // all has come, because the gateway ends
)

// fate is what becomes of a channel's session.
type fate uint8

const (
	lives  fate = iota
	closes      // it ends
	parts       // it may go on over another trunk
)

// Channel is a client of a gateway as the leader's end of the trunk has it.
type Channel struct {
	number uint32
	window int32 // how far the gateway may send ahead
	quota  int32 // how much of it is left

	received uint64 // bytes of input
	ends     uint64 // where in them the last command ends that was executed
	before   uint64 // where the one before it ends
	answered uint64 // how much of them is answered by what the gateway was sent

	changes *interestChanges // of which the gateway does not know; nil for none

	source  source
	fate    fate
	resumes bool // the session is to be resumed
	parted  bool // a part of a reply was made, and the rest was not
}

// Parts reports whether the session may go on over another trunk.
func (h *Channel) Parts() bool { return h.fate == parts }

// Part makes the session one that may go on over another trunk.
func (h *Channel) Part() { h.fate = parts }

// Resumes reports whether the session is to be resumed. Input is kept until then.
func (h *Channel) Resumes() bool { return h.resumes }

// Resume says that the session is resumed.
func (h *Channel) Resume() { h.resumes = false }

// AwaitsInput reports whether more comes of a client that has half-closed.
func (h *Channel) AwaitsInput() bool { return h.source == sendsRest }

// IsLeaving reports whether the client is not read any more because its gateway ends: a wait is not answered then.
func (h *Channel) IsLeaving() bool { return h.source == gatewayEnds }

// hasAll reports whether all has come that the client has sent before it half-closed.
func (h *Channel) hasAll() bool { return h.source >= sentAll }

// halfClose notes that the client sends no more, or that the gateway reads no more of it because it ends.
func (h *Channel) halfClose(flags uint8) (r Request, err error) {
	early := flags&trunk.Ahead != 0
	switch {
	case h.hasAll(), h.source == sendsRest && early:
		return r, misuse(h.number, "a second half-close")
	case h.source == sendsRest:
		h.source = sentAll
		return Request{Ask: Reconsider, Channel: h}, nil
	case flags&trunk.Leaves != 0:
		h.source = gatewayEnds
	case early:
		h.source = sendsRest
	default:
		h.source = sentAll
	}
	return Request{Ask: EndInput, Channel: h}, nil
}

// CommandEnds notes that all but the last n bytes that have come are executed next, in a command or a part of a put.
// It returns where the command ends in the session's input; ok is false for a part of a put, of which nothing is
// answered.
func (h *Channel) CommandEnds(op codec.Op, n int) (end uint64, ok bool) {
	if op == codec.OpPutBegin || op == codec.OpPutChunk || op == codec.OpPutTooBig {
		return 0, false
	}
	h.before, h.ends, h.parted = h.ends, h.received-uint64(n), false
	return h.ends, true
}

// Replied notes what a command was answered, or a part of that if it waits.
func (e *Leader) Replied(h *Channel, cmd *codec.Command, reply []byte, outcome engine.Outcome) {
	h.parted = outcome == engine.Wait && len(reply) > 0
	flags, number, tube := uint8(trunk.Uses), uint32(0), cmd.Tube
	switch {
	case cmd.Op == codec.OpUse && bytes.HasPrefix(reply, []byte("USING ")):
	case cmd.Op == codec.OpWatch && bytes.HasPrefix(reply, []byte("WATCHING ")):
		if flags = trunk.Watches; cmd.Weight > 1 && e.ResumesSessions() {
			number = cmd.Weight
		}
	case cmd.Op == codec.OpIgnore && bytes.HasPrefix(reply, []byte("WATCHING ")):
		flags = trunk.Ignores
	case cmd.Op == codec.OpReserveMode && e.ResumesSessions() && bytes.HasPrefix(reply, []byte("USING ")):
		abort := cmd.Abort && e.version >= trunk.AbortsSince
		flags, number, tube = trunk.Chooses, trunk.Choice(cmd.Mode, cmd.Info, abort), nil
	default:
		return
	}
	e.addChange(h, flags, number, tube)
}

// RepliedMore notes what more a command was answered that waited.
func (h *Channel) RepliedMore(reply []byte, outcome engine.Outcome) {
	h.parted = outcome == engine.Wait && (h.parted || len(reply) > 0)
}

// Reply sends replies, as many as there is credit and room for; last says that these are the rest of them. Waits says
// that the client's last command is not finished.
func (e *Leader) Reply(h *Channel, p []byte, last, waits bool) {
	it := trunk.Item{Kind: trunk.KindReplies, Channel: h.number, Data: p}
	if last {
		e.sayChanges(h)
		if h.answered = h.ends; waits {
			h.answered = h.before
		}
	}
	if !last || h.parted {
		it.Flags = trunk.More
	}
	it.Number = uint32(h.answered)
	e.say(it)
}

// End says that the session of a channel is over, unless the trunk is, or the server is aborted. With reset, the
// client is to know that it was not answered.
func (e *Leader) End(h *Channel, reset, isAborted bool) {
	if h.fate == lives {
		h.fate = closes
	}
	e.dropChanges(h)
	e.endReplay(h.number)
	e.host.GiveMemory(int(h.window - trunk.FirstCredit))
	if e.phase == ended || isAborted {
		return
	}
	it := trunk.Item{Kind: trunk.KindEnd, Channel: h.number, Number: uint32(h.ends)}
	if reset {
		it.Flags = trunk.Reset
	}
	e.say(it)
}

// interestChanges are what a client has asked for since the gateway was told, a few bytes each: flags, number, length
// of the tube's name, name.
type interestChanges struct{ list []byte }

const (
	// maxUnusedChanges is how many unused interestChanges a leader keeps, each of at most maxChangesSize bytes.
	maxUnusedChanges = 256
	maxChangesSize   = 2 << 10
)

func (e *Leader) addChange(h *Channel, flags uint8, number uint32, tube []byte) {
	if n := len(e.unused); h.changes == nil && n > 0 {
		h.changes = e.unused[n-1]
		e.unused = e.unused[:n-1]
	} else if h.changes == nil {
		h.changes = new(interestChanges)
	}
	h.changes.list = append(h.changes.list, flags, byte(number), byte(number>>8), byte(len(tube)))
	h.changes.list = append(h.changes.list, tube...)
}

// sayChanges says what the client uses and watches once it has the replies that follow.
func (e *Leader) sayChanges(h *Channel) {
	if h.changes == nil {
		return
	}
	for b := h.changes.list; len(b) > 0; {
		end := 4 + int(b[3])
		e.say(trunk.Item{
			Kind: trunk.KindState, Channel: h.number, Flags: b[0], Number: uint32(b[1]) | uint32(b[2])<<8, Data: b[4:end],
		})
		b = b[end:]
	}
	e.dropChanges(h)
}

func (e *Leader) dropChanges(h *Channel) {
	c := h.changes
	if c == nil {
		return
	}
	h.changes = nil
	if c.list = c.list[:0]; cap(c.list) <= maxChangesSize && len(e.unused) < maxUnusedChanges {
		e.unused = append(e.unused, c)
	}
}
