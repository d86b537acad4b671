package trunk

import (
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
)

// Resume is a session that goes on at another leader, or on another trunk.
type Resume struct {
	Open
	// Answered is how many bytes of the session's input are answered. A command that ends after n bytes of
	// the input that follows has the offset Answered + n.
	Answered uint64
	// Partial is how many bytes of the replies to what follows the client has got already.
	Partial uint32
	// Age is for how long the client has waited for the reply to what follows, in whole milliseconds.
	Age time.Duration
	// Unanswered tells that effects come, and that of what follows nothing is executed before the last.
	Unanswered bool

	Mode    codec.Mode
	Info    bool
	Abort   bool
	Used    string
	Watched []string
	Weights []uint16 // of those; nil if the client has given none
}

const (
	resumeHead = openHead + 8 + 4 + 4 + 1 + 1 + 2

	maxAge = 1<<32 - 1 // milliseconds
)

// Bits of a byte of a resume.
const (
	isUnanswered = 1 << iota
	isInformed
	hasWeights
	isAborting
	resumeBits
)

func bit(b byte, set bool) byte {
	if set {
		return b
	}
	return 0
}

// Append appends the resume as an item's data, and takes away from r the tubes that it has appended. Those that
// are left are for an item of their own.
func (r *Resume) Append(b []byte) []byte {
	start := len(b)
	b = r.Open.Append(b)
	b = le.AppendUint64(b, r.Answered)
	b = le.AppendUint32(b, r.Partial)
	b = le.AppendUint32(b, uint32(min(r.Age.Milliseconds(), maxAge)))
	bits := bit(isUnanswered, r.Unanswered) | bit(isInformed, r.Info) | bit(hasWeights, r.Weights != nil) |
		bit(isAborting, r.Abort)
	b = append(b, bits, byte(r.Mode))
	b = appendText(b, r.Used)
	for len(r.Watched) > 0 && len(b)-start+1+len(r.Watched[0])+2 <= MaxData {
		b = appendText(b, r.Watched[0])
		r.Watched = r.Watched[1:]
		if r.Weights != nil {
			b = le.AppendUint16(b, r.Weights[0])
			r.Weights = r.Weights[1:]
		}
	}
	return b
}

// ParseResume reads an item's data.
func ParseResume(b []byte) (r Resume, err error) {
	var rest []byte
	if r.Open, rest, err = parseOpen(b); err != nil {
		return r, err
	}
	const fixed = resumeHead - openHead - 2
	if len(rest) < fixed {
		return r, malformed("a resume of %d bytes", len(b))
	}
	r.Answered, r.Partial = le.Uint64(rest), le.Uint32(rest[8:])
	r.Age = time.Duration(le.Uint32(rest[12:])) * time.Millisecond
	bits, mode := rest[16], codec.Mode(rest[17])
	r.Unanswered, r.Info, r.Mode = bits&isUnanswered != 0, bits&isInformed != 0, mode
	r.Abort = bits&isAborting != 0
	ok := false
	r.Used, rest, ok = tube(rest[fixed:])
	if !ok || bits >= resumeBits || !modeFits(mode) || r.Answered > journal.MaxOffset {
		return r, malformed("a resume at %d with the bits %#x, mode %d, tube %q", r.Answered, bits, mode, r.Used)
	}
	for len(rest) > 0 {
		var t string
		if t, rest, ok = tube(rest); !ok {
			return r, malformed("a resume with %d tubes and another one that is none", len(r.Watched))
		}
		r.Watched = append(r.Watched, t)
		if bits&hasWeights == 0 {
			continue
		}
		if len(rest) < 2 || le.Uint16(rest) == 0 {
			return r, malformed("a resume with a tube without weight")
		}
		r.Weights = append(r.Weights, le.Uint16(rest))
		rest = rest[2:]
	}
	if r.Watched == nil {
		return r, malformed("a resume without a tube that is watched")
	}
	return r, nil
}

// tube reads a tube's name.
func tube(b []byte) (name string, rest []byte, ok bool) {
	name, rest, ok = text(b)
	return name, rest, ok && codec.ValidTubeName([]byte(name))
}

func modeFits(m codec.Mode) bool { return m >= codec.FIFO && m <= codec.WeightedFair }

// What is added to a mode.
const (
	informs = 1 << 8 // the client is told more of each job that it reserves
	aborts  = 1 << 9 // its waits for a job end when it sends more

	beside = informs | aborts
)

// Choice is how a client's reserves choose, as the number of a state.
func Choice(m codec.Mode, info, abort bool) uint32 {
	n := uint32(m)
	if info {
		n |= informs
	}
	if abort {
		n |= aborts
	}
	return n
}

// ParseChoice reads what Choice has made.
func ParseChoice(n uint32) (m codec.Mode, info, abort bool) {
	return codec.Mode(n &^ beside), n&informs != 0, n&aborts != 0
}

// stateFits tells whether a state can have that number and so many bytes of data.
func stateFits(flags uint8, number uint32, data int) bool {
	switch flags {
	case Chooses:
		return data == 0 && number&^beside <= 255 && modeFits(codec.Mode(number&^beside))
	case Watches:
		return data > 0 && number <= codec.MaxWeight
	}
	return data > 0 && number == 0
}

// EffectSize is what an effect takes in an item.
const EffectSize = 32

// AppendEffect appends an effect to an item's data. The session is the channel's.
func AppendEffect(b []byte, e *journal.Effect) []byte {
	b = le.AppendUint64(b, e.Offset)
	b = le.AppendUint64(b, e.ID)
	b = append(b, byte(e.Kind), byte(e.State), 0, 0)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, 0)
}

// AppendEffects appends what an item's data tell of a session to list.
func AppendEffects(list []journal.Effect, session uint64, b []byte) ([]journal.Effect, error) {
	for ; len(b) > 0; b = b[EffectSize:] {
		if len(b) < EffectSize {
			return list, malformed("effects with a rest of %d bytes", len(b))
		}
		e := journal.Effect{
			Session: session, Offset: le.Uint64(b), ID: le.Uint64(b[8:]),
			Kind: journal.EffectKind(b[16]), State: journal.State(b[17]),
		}
		zeros := uint64(le.Uint16(b[18:])) | uint64(le.Uint32(b[20:])) | le.Uint64(b[24:])
		if !e.Valid() || zeros != 0 {
			return list, malformed("the effect %+v", e)
		}
		list = append(list, e)
	}
	return list, nil
}
