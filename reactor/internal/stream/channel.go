package stream

import (
	"trellis/reactor/internal/queue"
	"trellis/reactor/internal/trunk"
)

// smallReplies is more bytes than most clients are sent at a time.
const smallReplies = 4 << 10

// Line is what a trunk does for its channels.
type Line interface {
	// Room is how many bytes may be sent before there are too many that the other side has not taken.
	Room() int
	// Replies sends the client of a channel replies, which are the caller's again when it returns. last says that it
	// is owed nothing else.
	Replies(s *Stream, data []byte, last bool)
	// End tells the other side that the channel is closed. With reset, its client is to be told that it was not
	// answered.
	End(s *Stream, reset bool)
}

// Trunk is what the channels of a trunk share: its room, and the turns for it. It belongs to the loop's
// goroutine.
type Trunk struct {
	line     Line
	reserved int                  // bytes of the room that are for small replies only
	waits    queue.Queue[*Stream] // for room
	over     bool                 // nothing more is sent over it
}

// Init gives the trunk a line, of whose room so many bytes are for small replies only.
func (t *Trunk) Init(line Line, reserved int) { t.line, t.reserved = line, reserved }

// Line is what the trunk has got from Init.
func (t *Trunk) Line() Line { return t.line }

// End notes that nothing more is sent over the trunk: the clients of its channels are gone.
func (t *Trunk) End() { t.over = true }

// Over reports whether the trunk has ended.
func (t *Trunk) Over() bool { return t.over }

// CloseAll notes that all channels are about to be closed: none waits for room any more.
func (t *Trunk) CloseAll() { t.waits = queue.Queue[*Stream]{} }

// Waiting reports whether a channel waits for room.
func (t *Trunk) Waiting() bool { return !t.waits.Empty() }

// share is how many of n bytes of replies a channel may send now. What is small waits for nobody who sends much,
// and finds few bytes before it. While others wait for room, it is one item's.
func (t *Trunk) share(n int) int {
	room := t.line.Room()
	if n > smallReplies {
		room -= t.reserved
		if t.Waiting() {
			n = min(n, trunk.MaxData)
		}
	}
	return max(0, min(n, room))
}

// Next gives a turn to the channel that has waited longest for room, if there is some.
func (t *Trunk) Next(ss *Streams) {
	for !t.over && t.Waiting() && t.share(trunk.MaxData) > 0 {
		s := t.waits.Pop()
		if h := ss.cfg.Owner.Channel(s); h.waits {
			h.waits = false
			ss.writable = append(ss.writable, s)
			return
		}
	}
}

// Channel is what a stream of the kind OnTrunk has beside others. Its owner keeps it.
type Channel struct {
	trunk  *Trunk
	credit int32 // bytes of replies that may still be sent
	waits  bool  // in trunk.waits
	resets bool  // the client is to be told that it was not answered
}

// Init makes h a channel of a trunk, over which so many bytes of replies may be sent.
func (h *Channel) Init(t *Trunk, credit int) { h.trunk, h.credit = t, int32(credit) }

// Trunk is the trunk of the channel.
func (h *Channel) Trunk() *Trunk { return h.trunk }

// Credit is how many bytes of replies may still be sent.
func (h *Channel) Credit() int { return int(h.credit) }

// send is Streams.write: the client takes as much as the other side has given credit for, and as there is room for
// in the trunk.
func (h *Channel) send(ss *Streams, s *Stream, pieces [][]byte, owed int) (n int, ok bool) {
	t := h.trunk
	if t.over {
		return 0, false
	}
	most := min(int(h.credit), t.share(owed))
	for n < most && len(pieces) > 0 {
		var data []byte
		data, pieces = ss.gather(pieces, min(trunk.MaxData, most-n))
		n += len(data)
		t.line.Replies(s, data, n == owed)
	}
	h.credit -= int32(n)
	return ss.wrote(n, nil)
}

// awaitOutput has the loop told, once, when the client takes output. If credit is what is missing, AddCredit does so.
func (h *Channel) awaitOutput(ss *Streams, s *Stream) {
	owed := s.pending.out.len()
	switch t := h.trunk; {
	case t.over || h.waits || h.credit == 0:
	case t.share(owed) == 0 || t.Waiting() && owed > smallReplies:
		h.waits = true
		t.waits.Push(s)
	default:
		ss.writable = append(ss.writable, s)
	}
}

// AddCredit notes that n bytes more of replies may be sent over the channel of s.
func (ss *Streams) AddCredit(s *Stream, n int) {
	h := ss.cfg.Owner.Channel(s)
	h.credit += int32(n)
	if s.pending != nil && s.pending.armed && !h.waits {
		ss.writable = append(ss.writable, s)
	}
}
