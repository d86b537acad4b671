package record

import (
	"bytes"
	"encoding/binary"

	"trellis/binlog/journal"
)

// KindOf is the kind of a sound record.
func KindOf(b []byte) Kind { return Kind(b[7] >> 4) }

// Number is what a small record says, and the id of a full record, an update or a hold.
func Number(b []byte) uint64 { return le.Uint64(b[8:]) }

// LastID is the greatest id that a sound record tells of, 0 if it tells of none.
func LastID(b []byte) uint64 {
	switch KindOf(b) {
	case Full, Update, Delete, Hold, End:
		return Number(b) // those of close and numbers are no ids of jobs
	case Start:
		var r Run
		r.Decode(b)
		return max(r.NextID, 1) - 1
	}
	return 0
}

// Version is the version of the entries between members of a cluster (package entry) from which
// on they may have such a record. A record of version 1 is read by all programs.
func Version(b []byte) uint8 {
	switch KindOf(b) {
	case Full:
		if b[68]&termsFlag != 0 {
			return 3
		}
		return version(b[68]&originFlag != 0)
	case Update:
		if stateIn(b[52]) == journal.Held {
			return 3
		}
		return version(b[52]&originFlag != 0 || stateIn(b[52]) == journal.Stays)
	case Delete:
		return version(len(b) > SmallSize)
	case Setting:
		return version(b[14] != 0)
	case Hold:
		if le.Uint64(b[16:]) == 0 {
			return 5
		}
		return version(true)
	case Close, Numbers:
		return version(true)
	case Policy:
		if le.Uint32(b[44:]) > 0 {
			return 5
		}
		return 3
	}
	return version(false)
}

func version(second bool) uint8 {
	if second {
		return 2
	}
	return 1
}

// DecodeFull reads a sound full record. The body is a part of b; the tube's name
// is one of names.
func DecodeFull(b []byte, r *journal.Record, names *Names) {
	DecodeHead(b, r, names)
	r.Body = Body(b)
}

// Body is the body in a sound full record, a part of b.
func Body(b []byte) []byte {
	start := BodyOffset(b)
	end := start + int(le.Uint32(b[44:]))
	return b[start:end:end]
}

// stateIn is the state in a state's byte.
func stateIn(b byte) journal.State { return journal.State(b &^ flags) }

// attemptsAt is where in a full record its attempts are, if it has some.
func attemptsAt(b []byte) int {
	if b[68]&originFlag != 0 {
		return fullFixed + originSize
	}
	return fullFixed
}

// decodeOrigin reads the origin at the start of b, if there is one.
func decodeOrigin(b []byte, there bool) (o journal.Origin) {
	if there {
		o = journal.Origin{Session: le.Uint64(b), Offset: le.Uint64(b[8:])}
	}
	return o
}

// keysAt is where in a full record its keys start, if it has some.
func keysAt(b []byte) int {
	at := attemptsAt(b) + int(b[69])
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

// decodeKeys reads the keys and terms of a sound full record.
func decodeKeys(b []byte) (k journal.Keys) {
	k.Terms = decodeTerms(b)
	if b[68]&keysFlag == 0 {
		return k
	}
	b = b[keysAt(b):]
	unique, limited := b[journal.KeysFixed:][:b[0]], b[journal.KeysFixed+int(b[0]):][:b[1]]
	k.Unique, k.Seconds = string(unique), le.Uint32(b[2:])
	k.Limited, k.Limit = string(limited), le.Uint32(b[6:])
	return k
}

// termsAt is where in a full record its terms start, if it has some.
func termsAt(b []byte) int { return keysAt(b) + keysSize(b) }

// termsSize is how many bytes the terms of a sound full record take.
func termsSize(b []byte) int {
	if b[68]&termsFlag == 0 {
		return 0
	}
	at := termsAt(b)
	return journal.TermsFixed + int(b[at]) + int(b[at+1]) + int(b[at+2])
}

// decodeTerms reads the terms of a sound full record, nil if it has none.
func decodeTerms(b []byte) *journal.Terms {
	if b[68]&termsFlag == 0 {
		return nil
	}
	b = b[termsAt(b):]
	fair, group, after := int(b[0]), int(b[1]), int(b[2])
	text := string(b[journal.TermsFixed:][:fair+group+after])
	return &journal.Terms{
		Fair: text[:fair], Group: text[fair:][:group], After: text[fair+group:],
		Settled: b[3] != 0, Expires: le.Uint32(b[4:]),
	}
}

// BodyOffset is where in a sound full record its body starts.
func BodyOffset(b []byte) int { return termsAt(b) + termsSize(b) }

// DecodeUpdate reads a sound update record: all fields of r but Tube, TTR, Created, Body
// and Keys, which it clears.
func DecodeUpdate(b []byte, r *journal.Record) {
	*r = journal.Record{
		ID: le.Uint64(b[8:]), State: stateIn(b[52]), Pri: le.Uint32(b[24:]), Delay: le.Uint32(b[28:]),
	}
	decodeCounts(b[32:], r)
	n := UpdateSize
	if b[52]&originFlag != 0 {
		r.Origin = decodeOrigin(b[n:], true)
		n += originSize
	}
	if b[52]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[n:])
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

// DecodeSetting reads a sound setting or policy.
func DecodeSetting(b []byte) journal.Setting {
	s := journal.Setting{Policy: journal.DefaultPolicy}
	names := b[settingFixed:]
	if KindOf(b) == Policy {
		s.Policy = decodePolicy(b)
		names = b[policyFixed:]
	}
	if b[14]&settingOrigin != 0 {
		s.Origin = decodeOrigin(names, true)
		names = names[originSize:]
	}
	s.Attempts = le.Uint32(b[8:])
	dead := int(b[12])
	s.Tube, s.Dead = string(names[:dead]), string(names[dead:dead+int(b[13])])
	return s
}

// decodePolicy reads what putPolicy has written.
func decodePolicy(b []byte) journal.Policy {
	n := func(at int) uint32 { return le.Uint32(b[at:]) }
	return journal.Policy{
		Disconnects: b[14]&disconnects != 0, Paused: b[14]&paused != 0, RetryFactor: uint32(b[15]),
		RetryMin: n(16), RetryMax: n(20), Rate: n(24), Per: n(28), MaxReserved: n(32), Expire: n(36),
		Burst: uint32(le.Uint16(b[40:])), RetryJitter: uint32(b[42]), Linger: n(44),
	}
}

// DeleteOrigin is the command that has made a sound delete record, the zero Origin if it does not
// say.
func DeleteOrigin(b []byte) journal.Origin {
	return decodeOrigin(b[min(len(b), SmallSize):], len(b) > SmallSize)
}

// DecodeHold reads a sound hold.
func DecodeHold(b []byte) journal.Hold {
	offset := le.Uint64(b[32:])
	return journal.Hold{
		ID: le.Uint64(b[8:]), Session: le.Uint64(b[16:]), End: int64(le.Uint64(b[24:])),
		Offset: offset &^ touchBit, Touch: offset&touchBit != 0, Reserves: le.Uint32(b[40:]),
	}
}

// DecodeNumbers reads sound numbers.
func DecodeNumbers(b []byte) journal.Numbers {
	return journal.Numbers{
		First: le.Uint32(b[8:]), Count: le.Uint32(b[12:]), Member: le.Uint64(b[16:]), Nonce: le.Uint64(b[24:]),
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
		if b[68]&(keysFlag|termsFlag) != 0 && keysFit(b, n) {
			want = n
		}
	case Setting:
		want = settingSize(settingFixed, int(b[12]), int(b[13]), b[14] != 0)
	case Policy:
		want = settingSize(policyFixed, int(b[12]), int(b[13]), b[14]&settingOrigin != 0)
	case Update:
		want = UpdateSize
		if n > UpdateSize { // the flags are in the record's first bytes then
			want = sizeOfUpdate(b[52])
		}
	case Start:
		want = StartSize
	case Hold:
		want = HoldSize
	case Numbers:
		want = NumbersSize
	case Delete:
		if n > SmallSize {
			want += originSize
		}
	case Mark, Drop, Stop, End, Close:
	default:
		return 0, p, "bytes that are no record"
	}
	if n != want {
		return 0, p, "a " + KindOf(b).String() + " record of a wrong length"
	}
	return n, p, ""
}

// sizeOfUpdate is the length of an update with those flags.
func sizeOfUpdate(state byte) int64 {
	n := int64(UpdateSize)
	if state&originFlag != 0 {
		n += originSize
	}
	if state&attemptsFlag != 0 {
		n += updateAttempts
	}
	return n
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
		if !fullPossible(b, int(le.Uint32(b[44:]))) {
			return "a full record with impossible fields"
		}
	case Update:
		const what = "an update record with impossible fields"
		state := stateIn(b[52])
		if !validState(state) && state != journal.Stays || !allZero(b[53:56]) || le.Uint64(b[8:]) == 0 ||
			b[52]&(keysFlag|termsFlag) != 0 || int64(len(b)) != sizeOfUpdate(b[52]) ||
			b[52]&originFlag != 0 && !originPossible(b[UpdateSize:]) {
			return what
		}
		attempts := b[len(b)-updateAttempts:]
		if b[52]&attemptsFlag != 0 && (!allZero(attempts[4:]) || le.Uint32(attempts) == usualAttempts(b[32:])) {
			return what
		}
	case Setting:
		if b[14] > settingOrigin || b[15] != 0 || !settingPossible(b, settingFixed) {
			return "a setting record with impossible fields"
		}
	case Policy:
		if b[14] > settingBits || b[43] != 0 || !settingPossible(b, policyFixed) {
			return "a policy record with impossible fields"
		}
	case Delete:
		if len(b) > SmallSize && !originPossible(b[SmallSize:]) {
			return "a delete record with impossible fields"
		}
	case Hold:
		if h := DecodeHold(b); !h.Valid() || !allZero(b[44:]) {
			return "a hold record with impossible fields"
		}
	case Close:
		if Number(b) == 0 {
			return "a close record of no session"
		}
	case Numbers:
		if n := DecodeNumbers(b); !n.Valid() {
			return "a numbers record with impossible fields"
		}
	case Drop:
		if Number(b) > uint64(index) {
			return "a drop record that says that its own segment is not needed"
		}
	}
	return ""
}

// fullPossible checks the fields of a full record, of whose body b has that many bytes: all of it, or none.
func fullPossible(b []byte, body int) bool {
	n, state := int(b[69]), stateIn(b[68])
	if n == 0 || n > journal.MaxTube || le.Uint64(b[8:]) == 0 ||
		b[68]&(keysFlag|termsFlag) != 0 && !keysPossible(b, body) ||
		b[68]&attemptsFlag != 0 && le.Uint32(b[attemptsAt(b):]) == usualAttempts(b[48:]) ||
		b[68]&originFlag != 0 && !originPossible(b[fullFixed:]) {
		return false
	}
	if !validState(state) {
		if k := decodeKeys(b); state != journal.Deleted || !validTombstone(int(le.Uint32(b[44:])), &k) {
			return false
		}
	}
	if state == journal.Held && !validHeld(decodeTerms(b)) {
		return false
	}
	return allZero(b[BodyOffset(b)+body:])
}

// settingPossible checks a setting or policy, which has that many bytes before the names and an
// origin. A policy is not what a setting record could hold.
func settingPossible(b []byte, fixed int) bool {
	s := DecodeSetting(b)
	end := fixed + len(s.Tube) + len(s.Dead)
	if b[14]&settingOrigin != 0 {
		if end += originSize; !s.Origin.Valid() {
			return false
		}
	}
	return ValidSetting(&s) && s.Plain() == (fixed == settingFixed) && allZero(b[end:])
}

// originPossible checks the origin at the start of b.
func originPossible(b []byte) bool {
	o := decodeOrigin(b, true)
	return o.Valid()
}

// keysFit reports whether a full record of n bytes, the first 72 of which are in b, has a
// length that keys and terms can give it.
func keysFit(b []byte, n int64) bool {
	least := int64(keysAt(b)) + int64(le.Uint32(b[44:]))
	most := least
	if b[68]&keysFlag != 0 {
		least += journal.KeysFixed + 1
		most += journal.KeysFixed + 2*journal.MaxKey
	}
	if b[68]&termsFlag != 0 {
		least += journal.TermsFixed
		most += journal.TermsFixed + 3*journal.MaxKey
	}
	return (least+7)&^7 <= n && n <= (most+7)&^7
}

// keysPossible checks the keys and terms of a full record with a right checksum, of whose body b has that many bytes.
func keysPossible(b []byte, body int) bool {
	at := keysAt(b)
	if b[68]&keysFlag != 0 {
		if len(b) < at+journal.KeysFixed || b[at] > journal.MaxKey || b[at+1] > journal.MaxKey {
			return false
		}
		at += keysSize(b)
	}
	if b[68]&termsFlag != 0 {
		if len(b) < at+journal.TermsFixed || max(b[at], b[at+1], b[at+2]) > journal.MaxKey || b[at+3]&^settled != 0 {
			return false
		}
		at += termsSize(b)
	}
	if at > len(b) {
		return false
	}
	k := decodeKeys(b)
	want := (int64(at) + int64(body) + 7) &^ 7
	return k.Named() == (b[68]&keysFlag != 0) && k.Valid() && int64(len(b)) == want
}

// usualAttempts is journal.Record.UsualAttempts of a record that has its counts at the start
// of b.
func usualAttempts(b []byte) uint32 {
	var r journal.Record
	decodeCounts(b, &r)
	return r.Attempts
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
