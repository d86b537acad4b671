package record

import "trellis/binlog/journal"

// KindOf is the kind of a sound record.
func KindOf(b []byte) Kind { return Kind(b[7] >> 4) }

// Number is what a small record says, and the id of a full record or an update.
func Number(b []byte) uint64 { return le.Uint64(b[8:]) }

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
	r.Reserves = le.Uint32(b[48:])
	r.Timeouts = le.Uint32(b[52:])
	r.Releases = le.Uint32(b[56:])
	r.Buries = le.Uint32(b[60:])
	r.Kicks = le.Uint32(b[64:])
	r.Attempts = r.UsualAttempts()
	if b[68]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[fullFixed:])
	}
	r.Tube = names.Get(b[keysAt(b)-int(b[69]) : keysAt(b)])
	r.Keys = decodeKeys(b)
	start := BodyOffset(b)
	end := start + int(le.Uint32(b[44:]))
	r.Body = b[start:end:end]
}

// BodyOffset is where in a sound full record its body starts.
func BodyOffset(b []byte) int { return keysAt(b) + keysSize(b) }

// DecodeUpdate reads a sound update record: all fields of r but Tube, TTR, Created, Body
// and Keys, which it clears.
func DecodeUpdate(b []byte, r *journal.Record) {
	*r = journal.Record{
		ID:       le.Uint64(b[8:]),
		State:    stateIn(b[52]),
		Pri:      le.Uint32(b[24:]),
		Delay:    le.Uint32(b[28:]),
		Reserves: le.Uint32(b[32:]),
		Timeouts: le.Uint32(b[36:]),
		Releases: le.Uint32(b[40:]),
		Buries:   le.Uint32(b[44:]),
		Kicks:    le.Uint32(b[48:]),
	}
	r.Attempts = r.UsualAttempts()
	if b[52]&attemptsFlag != 0 {
		r.Attempts = le.Uint32(b[UpdateSize:])
	}
	setWhen(r, le.Uint64(b[16:]))
}

// Decode reads a sound start record.
func (r *Run) Decode(b []byte) {
	*r = Run{
		At:     int64(le.Uint64(b[8:])),
		Boot:   le.Uint64(b[16:]),
		NextID: le.Uint64(b[24:]),
		Synced: journal.Pos(le.Uint64(b[32:])),
		Sync:   SyncPolicy(le.Uint64(b[40:])),
	}
}

// partial is a checksum that covers a record from its fifth byte to before at.
type partial struct {
	crc uint32
	at  int
}

// plausible judges a record by its start, of which b has at least 16 bytes, or
// 72 if so many are left of the file. It returns the record's length and the
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

// check judges the whole of a plausible record.
func check(b []byte, p partial) string {
	if sum(p.crc, b[p.at:]) != le.Uint32(b) {
		return "a " + KindOf(b).String() + " record with a wrong checksum"
	}
	return ""
}

// impossible judges what a record with a right checksum says, in the segment of
// that index. It finds nothing wrong in what this package has written.
func impossible(b []byte, index uint32) string {
	switch KindOf(b) {
	case Full:
		const what = "a full record with impossible fields"
		n, state := int(b[69]), stateIn(b[68])
		size := int(le.Uint32(b[44:]))
		if n == 0 || n > journal.MaxTube || le.Uint64(b[8:]) == 0 || b[68]&keysFlag != 0 && !keysPossible(b) ||
			b[68]&attemptsFlag != 0 && le.Uint32(b[fullFixed:]) == usualAttempts(b[52:]) {
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
			b[52]&keysFlag != 0 || wide && (!allZero(b[60:]) || le.Uint32(b[UpdateSize:]) == usualAttempts(b[36:])) {
			return "an update record with impossible fields"
		}
	case Setting:
		return impossibleSetting(b)
	case Drop:
		if Number(b) > uint64(index) {
			return "a drop record that says that its own segment is not needed"
		}
	}
	return ""
}

// maxNames is how many names a Names holds. They take some 16 MiB at most.
const maxNames = 1 << 16

// Names keeps one string for each name of a tube that was read. When it is full it forgets
// them all, since most of them may be those of tubes that are gone. The zero Names is empty.
type Names struct {
	last string
	all  map[string]string
}

// Get returns b as a string.
func (t *Names) Get(b []byte) string {
	if string(b) == t.last {
		return t.last
	}
	s, ok := t.all[string(b)]
	if !ok {
		s = string(b)
		if t.all == nil || len(t.all) == maxNames {
			t.all = map[string]string{}
		}
		t.all[s] = s
	}
	t.last = s
	return s
}
