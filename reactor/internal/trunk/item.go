package trunk

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind is what an item is. Its values are on the wire.
type Kind uint8

// The kinds. See doc.go for what each of them has.
const (
	KindGrant     Kind = 1
	KindOpen      Kind = 2
	KindResume    Kind = 3
	KindInput     Kind = 4
	KindEffects   Kind = 5
	KindCredit    Kind = 6
	KindHalfClose Kind = 7
	KindClose     Kind = 8
	KindAttached  Kind = 9
	KindPing      Kind = 10
	KindLeave     Kind = 11
	KindWelcome   Kind = 12
	KindReplies   Kind = 13
	KindState     Kind = 14
	KindEnd       Kind = 15
	KindDenied    Kind = 16
	KindPong      Kind = 17
	KindRetire    Kind = 18
	kinds         Kind = 19
)

var names = [kinds]string{
	KindGrant: "grant", KindOpen: "open", KindResume: "resume", KindInput: "input", KindEffects: "effects",
	KindCredit: "credit", KindHalfClose: "half-close", KindClose: "close", KindAttached: "attached",
	KindPing: "ping", KindLeave: "leave", KindWelcome: "welcome", KindReplies: "replies",
	KindState: "state", KindEnd: "end", KindDenied: "denied", KindPong: "pong", KindRetire: "retire",
}

func (k Kind) String() string {
	if k < kinds && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("item of kind %d", uint8(k))
}

// Flags of items.
const (
	More   = 1 // of grant, resume and replies
	Last   = 1 // of effects
	Reset  = 1 // of end
	Leaves = 1 // of half-close
	Ahead  = 2 // of half-close
)

// What the flags of state are.
const (
	Uses = iota
	Watches
	Ignores
	Chooses
)

// Limits of an item.
const (
	// MaxData is the most data of an item.
	MaxData = 16 << 10
	// MaxChannel is the highest number of a channel, MaxGrant that of a grant.
	MaxChannel = 1 << 20
	MaxGrant   = 1 << 16
	// FirstCredit is what each side of a channel may send at its beginning, MaxCredit
	// how much one item may add to that.
	FirstCredit = 16 << 10
	MaxCredit   = 1 << 20

	// ItemHead is the size of an item without data.
	ItemHead = 12
)

// Item is one thing that one side says to the other.
type Item struct {
	Kind    Kind
	Flags   uint8
	Channel uint32
	Number  uint32
	Data    []byte // valid until the next one is taken
}

// Side is who sends an item.
type Side uint8

// The sides.
const (
	Gateway Side = 1 << iota
	Leader
)

// shape is what an item of a kind may have.
type shape struct {
	from      Side // which sides send it
	channel   bool // it is for a channel, and not for the trunk
	flags     uint8
	low, high uint32 // bounds of the number
	min, max  int    // bounds of the data's length
}

const anyNumber = 1<<32 - 1

var shapes = [kinds]shape{
	KindGrant:     {from: Gateway, flags: More, low: 1, high: MaxGrant, min: grantHead, max: MaxData},
	KindOpen:      {from: Gateway, channel: true, high: MaxGrant, min: openHead, max: maxOpen},
	KindResume:    {from: Gateway, channel: true, flags: More, high: MaxGrant, min: resumeHead, max: MaxData},
	KindInput:     {from: Gateway, channel: true, min: 1, max: MaxData},
	KindEffects:   {from: Gateway, channel: true, flags: Last, max: MaxData},
	KindCredit:    {from: Gateway | Leader, channel: true, low: 1, high: MaxCredit},
	KindHalfClose: {from: Gateway, channel: true, flags: Leaves | Ahead},
	KindClose:     {from: Gateway, channel: true},
	KindAttached:  {from: Gateway},
	KindPing:      {from: Gateway, high: anyNumber},
	KindLeave:     {from: Gateway},
	KindWelcome:   {from: Leader, min: welcomeSize, max: welcomeSize},
	KindReplies:   {from: Leader, channel: true, flags: More, high: anyNumber, min: 1, max: MaxData},
	KindState:     {from: Leader, channel: true, flags: Watches | Ignores | Chooses, high: anyNumber, max: maxTube},
	KindEnd:       {from: Leader, channel: true, flags: Reset, high: anyNumber},
	KindDenied:    {from: Leader, channel: true, min: deniedHead, max: maxDenied},
	KindPong:      {from: Leader, high: anyNumber},
	KindRetire:    {from: Leader},
}

var le = binary.LittleEndian

// ErrFormat tells of bytes that no program has sent on a trunk.
var ErrFormat = errors.New("not what is sent on a trunk")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// appendItem appends an item to a frame's payload.
func appendItem(b []byte, it *Item) []byte {
	b = append(b, byte(it.Kind), it.Flags)
	b = le.AppendUint16(b, uint16(len(it.Data)))
	b = le.AppendUint32(b, it.Channel)
	b = le.AppendUint32(b, it.Number)
	return append(b, it.Data...)
}

// take reads the first item of p, which is not empty, and returns its size.
func (it *Item) take(p []byte, from Side) (size int, err error) {
	if len(p) < ItemHead {
		return 0, malformed("a frame ends within an item")
	}
	it.Kind, it.Flags = Kind(p[0]), p[1]
	it.Channel, it.Number = le.Uint32(p[4:]), le.Uint32(p[8:])
	n := int(le.Uint16(p[2:]))
	if it.Kind >= kinds || shapes[it.Kind].from&from == 0 {
		return 0, malformed("%s is not expected here", it.Kind)
	}
	s := &shapes[it.Kind]
	switch {
	case n < s.min || n > s.max || n > len(p)-ItemHead:
		return 0, malformed("%s of %d bytes, of which %d have come", it.Kind, n, len(p)-ItemHead)
	case it.Number < s.low || it.Number > s.high:
		return 0, malformed("%s with the number %d", it.Kind, it.Number)
	case s.channel != (it.Channel > 0) || it.Channel > MaxChannel:
		return 0, malformed("%s for channel %d", it.Kind, it.Channel)
	case it.Flags&^s.flags != 0:
		return 0, malformed("%s with the flags %#x", it.Kind, it.Flags)
	case it.Kind == KindState && !stateFits(it.Flags, it.Number, n):
		return 0, malformed("state %d with the number %d and %d bytes", it.Flags, it.Number, n)
	}
	size = ItemHead + n
	it.Data = p[ItemHead:size:size]
	return size, nil
}
