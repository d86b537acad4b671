package codec

import (
	"bytes"
	"strconv"
)

// TubeKey is a key of set-tube.
type TubeKey uint8

// The keys, in the order in which list-settings shows them.
const (
	KeyAttempts TubeKey = iota
	KeyDead
	KeyDisconnects
	KeyRetryMin
	KeyRetryFactor
	KeyRetryMax
	KeyRetryJitter
	KeyRate
	KeyBurst
	KeyMaxReserved
	KeyExpire
	KeyPaused
	KeyLinger

	// NumTubeKeys is the number of keys. It is no key itself.
	NumTubeKeys
)

// tubeKeys say what values the keys have. That of KeyDead is the name of a tube.
var tubeKeys = [NumTubeKeys]struct {
	name               string
	least, most, usual uint32
}{
	KeyAttempts:    {"attempts", 0, 1<<32 - 1, 0},
	KeyDead:        {name: "dead"},
	KeyDisconnects: {"disconnects", 0, 1, 0},
	KeyRetryMin:    {"retry-min", 0, 1<<32 - 1, 0},
	KeyRetryFactor: {"retry-factor", 1, 10, 2},
	KeyRetryMax:    {"retry-max", 1, 1<<32 - 1, 3600},
	KeyRetryJitter: {"retry-jitter", 0, 100, 10},
	KeyRate:        {"rate", 0, 1_000_000, 0},
	KeyBurst:       {"burst", 1, 10_000, 0},
	KeyMaxReserved: {"max-reserved", 0, 1<<32 - 1, 0},
	KeyExpire:      {"expire", 0, 1<<32 - 1, 0},
	KeyPaused:      {"paused", 0, 1, 0},
	KeyLinger:      {"linger", 0, 86_400, 0},
}

// String returns the key's word.
func (k TubeKey) String() string { return tubeKeys[k].name }

// Default is the value that the key has where none is set, as list-settings shows it.
func (k TubeKey) Default() string {
	if k == KeyDead {
		return ""
	}
	return strconv.FormatUint(uint64(tubeKeys[k].usual), 10)
}

// ValidPair reports whether a set-tube may have the argument pair.
func ValidPair(pair string) bool {
	a, cmd := arguments{s: []byte(" t " + pair)}, Command{}
	return pair != "none" && parseSetTube(&a, &cmd)
}

// maxRateSeconds is the longest time for which a rate is given.
const maxRateSeconds = 86_400

// Pairs are the keys of a set-tube and their values.
type Pairs struct {
	Given [NumTubeKeys]bool
	// Values are those of the keys that are given, the default for one without a value.
	// KeyBurst's default is 0, which it cannot be given. That of KeyDead is in [Command.To], empty
	// for the default.
	Values [NumTubeKeys]uint32
	// Per is the seconds of KeyRate, at least 1.
	Per uint32
}

// parseSetTube reads the tube, and pairs or the word none, which stands for all keys without
// values.
func parseSetTube(a *arguments, cmd *Command) bool {
	p := &Pairs{Per: 1}
	cmd.Pairs, cmd.To = p, nil
	if !a.name(&cmd.Tube) {
		return false
	}
	w := a.word()
	if string(w) == "none" {
		for k := range NumTubeKeys {
			p.give(k, nil, cmd)
		}
		return true
	}
	for {
		name, value, ok := bytes.Cut(w, []byte("="))
		if !ok {
			return false
		}
		k := keyOf(name)
		if k == NumTubeKeys || p.Given[k] || !p.give(k, value, cmd) {
			return false
		}
		if a.end() {
			return true
		}
		w = a.word()
	}
}

// keyOf is the key of that name, NumTubeKeys if there is none.
func keyOf(name []byte) TubeKey {
	for k := range NumTubeKeys {
		if string(name) == tubeKeys[k].name {
			return k
		}
	}
	return NumTubeKeys
}

// give takes a key's value, its default if that is empty.
func (p *Pairs) give(k TubeKey, value []byte, cmd *Command) bool {
	p.Given[k] = true
	usual := &tubeKeys[k]
	if len(value) == 0 {
		p.Values[k] = usual.usual
		return true
	}
	var v, per uint64
	end := len(value)
	switch k {
	case KeyDead:
		cmd.To = value
		return ValidTubeName(value)
	case KeyRate:
		if end = bytes.IndexByte(value, '/'); end < 0 {
			end = len(value)
			break
		}
		var to int
		per, to = digits(value, end+1, end+1, 0)
		if to != len(value) || per < 1 || per > maxRateSeconds {
			return false
		}
		p.Per = uint32(per)
	}
	v, to := digits(value[:end], 0, 0, 0)
	p.Values[k] = uint32(v)
	return to == end && v >= uint64(usual.least) && v <= uint64(usual.most)
}
