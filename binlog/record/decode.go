package record

import (
	"bytes"
	"encoding/binary"

	"trellis/binlog/journal"
)

// KindOf is the kind of a sound record.
func KindOf(b []byte) Kind { return Kind(b[7] >> 4) }

// Number is what a small record says, and the id of a full record or an update.
func Number(b []byte) uint64 { return le.Uint64(b[8:]) }

// LastID is the greatest id that a sound record tells of, 0 if it tells of none.
func LastID(b []byte) uint64 {
	switch KindOf(b) {
	case Full, Update, Delete, End:
		return Number(b)
	case Start:
		var r Run
		r.Decode(b)
		return max(r.NextID, 1) - 1
	}
	return 0
}

// DecodeFull reads a sound full record. The body is a part of b; the tube's name
// is one of names.
func DecodeFull(b []byte, r *journal.Record, names *Names) {
	r.ID = le.Uint64(b[8:])
	r.State = stateIn(b[68])
	r.Created = int64(le.Uint64(b[16:]))
	setWhen(r, le.Uint64(b[24:]))
	r.Pri = le.Uint32(b[32:])
	r.Delay = le.Uint32(b[36:])
	r.TTR = le.Uint32(b[40:])
	decodeCounts(b[48:], r)
	if b[68]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[fullFixed:])
	}
	at := keysAt(b)
	r.Tube = names.Get(b[at-int(b[69]) : at])
	r.Keys = decodeKeys(b)
	start := BodyOffset(b)
	end := start + int(le.Uint32(b[44:]))
	r.Body = b[start:end:end]
}

// stateIn is the state in a state's byte.
func stateIn(b byte) journal.State { return journal.State(b &^ flags) }

// keysAt is where in a full record its keys start, if it has some.
func keysAt(b []byte) int {
	at := fullFixed + int(b[69])
	if b[68]&attemptsFlag != 0 {
		at += journal.AttemptsSize
	}
	return at
}

// keysSize is how many bytes the keys of a sound full record take.
func keysSize(b []byte) int {
	if b[68]&keysFlag == 0 {
		return 0
	}
	at := keysAt(b)
	return journal.KeysFixed + int(b[at]) + int(b[at+1])
}

// decodeKeys reads the keys of a sound full record.
func decodeKeys(b []byte) (k journal.Keys) {
	if b[68]&keysFlag == 0 {
		return k
	}
	b = b[keysAt(b):]
	unique, limited := b[journal.KeysFixed:][:b[0]], b[journal.KeysFixed+int(b[0]):][:b[1]]
	return journal.Keys{
		Unique: string(unique), Seconds: le.Uint32(b[2:]),
		Limited: string(limited), Limit: le.Uint32(b[6:]),
	}
}

// BodyOffset is where in a sound full record its body starts.
func BodyOffset(b []byte) int { return keysAt(b) + keysSize(b) }

// DecodeUpdate reads a sound update record: all fields of r but Tube, TTR, Created, Body
// and Keys, which it clears.
func DecodeUpdate(b []byte, r *journal.Record) {
	*r = journal.Record{
		ID: le.Uint64(b[8:]), State: stateIn(b[52]), Pri: le.Uint32(b[24:]), Delay: le.Uint32(b[28:]),
	}
	decodeCounts(b[32:], r)
	if b[52]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[UpdateSize:])
	}
	setWhen(r, le.Uint64(b[16:]))
}

// decodeCounts reads what putCounts has written, and sets the usual attempts.
func decodeCounts(b []byte, r *journal.Record) {
	r.Reserves = le.Uint32(b)
	r.Timeouts = le.Uint32(b[4:])
	r.Releases = le.Uint32(b[8:])
	r.Buries = le.Uint32(b[12:])
	r.Kicks = le.Uint32(b[16:])
	r.Attempts = r.UsualAttempts()
}

// DecodeSetting reads a sound setting.
func DecodeSetting(b []byte) journal.Setting {
	dead := settingFixed + int(b[12])
	return journal.Setting{
		MaxAttempts: le.Uint32(b[8:]),
		Tube:        string(b[settingFixed:dead]),
		DeadTube:    string(b[dead : dead+int(b[13])]),
	}
}

// Decode reads a sound start record.
func (r *Run) Decode(b []byte) { decode(b[8:], r) }

func decode(b []byte, fields any) {
	if _, err := binary.Decode(b, le, fields); err != nil {
		panic(err) // b is too short
	}
}

// partial is a checksum that covers a record from its fifth byte to before at.
type partial struct {
	crc uint32
	at  int
}

// plausible checks a record by its start. b has at least 16 bytes of it, and 72 if the
// file has that many more. It returns the record's length and the
// checksum so far, or what is wrong with the record.
func plausible(b []byte, left int64, salt Salt) (n int64, p partial, wrong string) {
	word := le.Uint32(b[4:])
	n = int64(word&maxWords) * 8
	p = partial{uint32(salt), 4}
	if n > left {
		return 0, p, "a record longer than the rest of the file"
	}
	want := int64(SmallSize)
	switch Kind(word >> wordBits) {
	case Full:
		if n < fullFixed || len(b) < fullFixed {
			return 0, p, "a full record of a wrong length"
		}
		p = partial{sum(uint32(salt), b[4:headAt]), headAt}
		if uint16(p.crc) != le.Uint16(b[headAt:]) {
			return 0, p, "a full record whose first part has a wrong checksum"
		}
		want = (int64(keysAt(b)) + int64(le.Uint32(b[44:])) + 7) &^ 7
		if b[68]&keysFlag != 0 && keysFit(b, n) {
			want = n
		}
	case Setting:
		want = settingSize(int(b[12]), int(b[13]))
	case Update:
		if want = UpdateSize; n > UpdateSize {
			want = UpdateSize + updateAttempts // whether the flag agrees, impossible checks
		}
	case Start:
		want = StartSize
	case Delete, Mark, Drop, Stop, End:
	default:
		return 0, p, "bytes that are no record"
	}
	if n != want {
		return 0, p, "a " + KindOf(b).String() + " record of a wrong length"
	}
	return n, p, ""
}

// check compares the checksum of a plausible record.
func check(b []byte, p partial) string {
	if sum(p.crc, b[p.at:]) != le.Uint32(b) {
		return "a " + KindOf(b).String() + " record with a wrong checksum"
	}
	return ""
}

// impossible checks the fields of a record with a right checksum, in the segment of that
// index. In what this package has written it finds nothing wrong.
func impossible(b []byte, index uint32) string {
	switch KindOf(b) {
	case Full:
		const what = "a full record with impossible fields"
		n, state := int(b[69]), stateIn(b[68])
		size := int(le.Uint32(b[44:]))
		if n == 0 || n > journal.MaxTube || le.Uint64(b[8:]) == 0 || b[68]&keysFlag != 0 && !keysPossible(b) ||
			b[68]&attemptsFlag != 0 && le.Uint32(b[fullFixed:]) == usualAttempts(b[48:]) {
			return what
		}
		if !validState(state) {
			if k := decodeKeys(b); state != journal.Deleted || !validTombstone(size, &k) {
				return what
			}
		}
		if !allZero(b[BodyOffset(b)+size:]) {
			return what
		}
	case Update:
		wide := len(b) > UpdateSize
		if !validState(stateIn(b[52])) || !allZero(b[53:56]) || le.Uint64(b[8:]) == 0 || wide != (b[52]&attemptsFlag != 0) ||
			b[52]&keysFlag != 0 || wide && (!allZero(b[60:]) || le.Uint32(b[UpdateSize:]) == usualAttempts(b[32:])) {
			return "an update record with impossible fields"
		}
	case Setting:
		end := settingFixed + int(b[12]) + int(b[13])
		if s := DecodeSetting(b); !ValidSetting(&s) || b[14]|b[15] != 0 || !allZero(b[end:]) {
			return "a setting record with impossible fields"
		}
	case Drop:
		if Number(b) > uint64(index) {
			return "a drop record that says that its own segment is not needed"
		}
	}
	return ""
}

// keysFit tells whether a full record of n bytes, the first 72 of which are in b, has a
// length that keys can give it.
func keysFit(b []byte, n int64) bool {
	rest := int64(keysAt(b)) + int64(le.Uint32(b[44:])) + journal.KeysFixed
	return (rest+1+7)&^7 <= n && n <= (rest+2*journal.MaxKey+7)&^7
}

// keysPossible checks the keys of a full record with a right checksum, whose length keysFit
// has found possible.
func keysPossible(b []byte) bool {
	at := keysAt(b)
	if len(b) < at+journal.KeysFixed {
		return false
	}
	if b[at] > journal.MaxKey || b[at+1] > journal.MaxKey || len(b) < at+keysSize(b) {
		return false
	}
	k := decodeKeys(b)
	want := (int64(at) + k.Size() + int64(le.Uint32(b[44:])) + 7) &^ 7
	return k != journal.Keys{} && k.Valid() && int64(len(b)) == want
}

// usualAttempts is journal.Record.UsualAttempts of a record that has its counts at the start
// of b.
func usualAttempts(b []byte) uint32 {
	var r journal.Record
	decodeCounts(b, &r)
	return r.Attempts
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
