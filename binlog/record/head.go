package record

import "trellis/binlog/journal"

// The head of a full record is the record without its body, and with zeros up to a multiple of eight bytes
// behind what precedes the body. Indexes have heads.

// Length is the length in bytes of a sound record, or of the one that a head is of.
func Length(b []byte) int64 { return int64(le.Uint32(b[4:])&maxWords) * 8 }

// TubeSpan is where the tube's name begins and ends in a full record or a head, of which b has 72 bytes or more.
func TubeSpan(b []byte) (start, end int) {
	end = keysAt(b)
	return end - int(b[69]), end
}

// State is the byte of a full record or a head that has its state, and whether there are keys or terms.
func State(b []byte) (state byte, keyed bool) { return b[68], b[68]&(keysFlag|termsFlag) != 0 }

// SetHead makes a head of b, whose bytes from 8 on are one's already. It reports false if they are not.
func SetHead(b []byte) bool {
	end := len(b)
	if _, keyed := State(b); !keyed {
		end = (keysAt(b) + 7) &^ 7
	}
	if keysAt(b) > len(b) || end != len(b) || !fullPossible(b, 0) {
		return false
	}
	n := (int64(BodyOffset(b)) + int64(le.Uint32(b[44:])) + 7) &^ 7
	le.PutUint32(b, 0)
	le.PutUint32(b[4:], uint32(Full)<<wordBits|uint32(n/8))
	return n <= MaxSize
}

// EncodeHead appends the head of the full record of a valid job, whose body is elsewhere.
func EncodeHead(b []byte, r *journal.Record) []byte {
	x := *r
	x.Body, x.Absent = nil, nil
	at, n := len(b), int(x.Size())
	b = append(b, make([]byte, n)...)
	EncodeFull(b[at:], 0, &x)
	le.PutUint32(b[at+44:], r.BodySize())
	SetHead(b[at:])
	return b
}

// SetRecord makes a record of that kind, but no full one, of b, whose bytes from 8 on are one's already, but for
// its checksum. It reports false if they are not, in the segment of that index.
func SetRecord(b []byte, k Kind, index uint32) bool {
	if len(b) < SmallSize || k == Full {
		return false
	}
	le.PutUint32(b, 0)
	putHead(b, k)
	n, _, wrong := plausible(b, int64(len(b)), 0)
	return wrong == "" && n == int64(len(b)) && impossible(b, index) == ""
}

// DecodeHead reads a sound full record, or a head, but for the body, whose length it returns.
func DecodeHead(b []byte, r *journal.Record, names *Names) (size uint32) {
	r.ID = le.Uint64(b[8:])
	r.State = stateIn(b[68])
	r.Created = int64(le.Uint64(b[16:]))
	setWhen(r, le.Uint64(b[24:]))
	r.Pri = le.Uint32(b[32:])
	r.Delay = le.Uint32(b[36:])
	r.TTR = le.Uint32(b[40:])
	decodeCounts(b[48:], r)
	r.Origin = decodeOrigin(b[fullFixed:], b[68]&originFlag != 0)
	if b[68]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[attemptsAt(b):])
	}
	start, end := TubeSpan(b)
	r.Tube = names.Get(b[start:end])
	r.Keys = decodeKeys(b)
	r.Body = nil
	return le.Uint32(b[44:])
}
