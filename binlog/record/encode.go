package record

import (
	"encoding/binary"
	"hash/crc32"

	"trellis/binlog/journal"
)

// Kind is what a record says. Its values are on disk, in the top four bits of a
// record's second word. Zero is left to bytes that were never written.
type Kind uint8

// The kinds of records. The package's comment says what each holds.
const (
	Full Kind = 1 + iota
	Update
	Delete
	Mark
	Drop
	Start
	Stop
	End
	Setting
	Hold
	Close
	Numbers
	_ // 13 was never written
	Policy
	kinds
)

func (k Kind) String() string {
	if k == 0 || k >= kinds {
		return "unknown"
	}
	return [...]string{
		"", "full", "update", "delete", "mark", "drop", "start", "stop", "end", "setting", "hold", "close", "numbers",
		"unknown", "policy",
	}[k]
}

// Lengths of records in bytes. That of a full record is Record.Size of package journal, that
// of a setting SettingSize, that of an update SizeOfUpdate, and that of a delete SizeOfDelete.
const (
	SmallSize   = 16 // of delete without an origin, mark, drop, stop, end and close
	UpdateSize  = 56 // of an update without optional fields
	StartSize   = 48
	HoldSize    = journal.HoldSize
	NumbersSize = 32
	MaxSize     = maxWords * 8
)

// A state's byte has flags above the state. Each says that the record has an optional
// field, which is left out while its value can be told from the others.
const (
	attemptsFlag = 1 << 3 // attempts, which are not what journal.Record.UsualAttempts tells
	keysFlag     = 1 << 4 // keys, only in a full record
	originFlag   = 1 << 5 // an origin
	termsFlag    = 1 << 6 // terms, only in a full record
	flags        = attemptsFlag | keysFlag | originFlag | termsFlag

	// updateAttempts is what attempts take in an update, so that its length stays a
	// multiple of eight.
	updateAttempts = 8
)

const (
	fullFixed    = journal.FullFixed
	settingFixed = 16 // bytes of a setting before the names, and an origin
	policyFixed  = 48 // and of a policy
	originSize   = journal.OriginSize
	touchBit     = 1 << 63 // of the offset of a hold

	// headAt is where a full record keeps a checksum of what precedes, so that a
	// reader need not believe a length to find out that it is wrong.
	headAt = 70

	wordBits = 28
	maxWords = 1<<wordBits - 1
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Salt is the state in which the checksums of a segment's records start.
type Salt uint32

// NewSalt is the salt of the segment of that index, in a directory of that seed.
func NewSalt(seed, index uint32) Salt {
	var b [8]byte
	le.PutUint32(b[:], seed)
	le.PutUint32(b[4:], index)
	return Salt(sum(0, b[:]))
}

func sum(start uint32, b []byte) uint32 { return crc32.Update(start, castagnoli, b) }

func putHead(b []byte, k Kind) {
	le.PutUint32(b[4:], uint32(k)<<wordBits|uint32(len(b)/8))
}

func seal(b []byte, salt Salt) { le.PutUint32(b, sum(uint32(salt), b[4:])) }

// Valid reports whether r can be a full record: its id is not zero, its state is one of the log's, it waits for a
// group if it is held, its tube has 1 to journal.MaxTube bytes, its keys are valid, and its body is not too long,
// and empty if it is a tombstone.
func Valid(r *journal.Record) bool {
	return r.ID != 0 && (validState(r.State) || r.State == journal.Deleted && validTombstone(len(r.Body), &r.Keys)) &&
		(r.State != journal.Held || validHeld(r.Keys.Terms)) &&
		len(r.Tube) > 0 && len(r.Tube) <= journal.MaxTube && r.Keys.Valid() && validOrigin(&r.Origin) && r.Size() <= MaxSize
}

// validTombstone reports whether a tombstone may have those keys, and a body of that many
// bytes.
func validTombstone(body int, k *journal.Keys) bool {
	return body == 0 && *k != journal.Keys{} && *k == k.Tombstone()
}

// ValidState reports whether r can be an update record.
func ValidState(r *journal.Record) bool {
	return r.ID != 0 && (validState(r.State) || r.State == journal.Stays) && validOrigin(&r.Origin)
}

// ValidSetting reports whether s can be a record: its tube has 1 to journal.MaxTube bytes, and its
// policy is valid.
func ValidSetting(s *journal.Setting) bool {
	return len(s.Tube) > 0 && len(s.Tube) <= journal.MaxTube && s.Policy.Valid() && validOrigin(&s.Origin)
}

// validOrigin reports whether o is none, or can be on record.
func validOrigin(o *journal.Origin) bool { return *o == (journal.Origin{}) || o.Valid() }

func validState(s journal.State) bool {
	return s == journal.Ready || s == journal.Buried || s == journal.Delayed || s == journal.Held
}

// validHeld reports whether a job with those terms may be held.
func validHeld(t *journal.Terms) bool { return t != nil && t.After != "" }

// EncodeFull fills b, which has r.Size bytes, with all of a valid job.
func EncodeFull(b []byte, salt Salt, r *journal.Record) {
	putHead(b, Full)
	le.PutUint64(b[8:], r.ID)
	le.PutUint64(b[16:], uint64(r.Created))
	le.PutUint64(b[24:], when(r))
	le.PutUint32(b[32:], r.Pri)
	le.PutUint32(b[36:], r.Delay)
	le.PutUint32(b[40:], r.TTR)
	le.PutUint32(b[44:], uint32(len(r.Body)))
	putCounts(b[48:], r)
	b[68] = byte(r.State)
	n := fullFixed
	if r.Origin != (journal.Origin{}) {
		b[68] |= originFlag
		n += putOrigin(b[n:], &r.Origin)
	}
	if r.Attempts != r.UsualAttempts() {
		b[68] |= attemptsFlag
		le.PutUint32(b[n:], r.Attempts)
		n += journal.AttemptsSize
	}
	if r.Keys.Named() {
		b[68] |= keysFlag
	}
	if r.Keys.Terms != nil {
		b[68] |= termsFlag
	}
	b[69] = byte(len(r.Tube))
	head := sum(uint32(salt), b[4:headAt])
	le.PutUint16(b[headAt:], uint16(head))
	n += copy(b[n:], r.Tube)
	if b[68]&keysFlag != 0 {
		n += putKeys(b[n:], &r.Keys)
	}
	if b[68]&termsFlag != 0 {
		n += putTerms(b[n:], r.Keys.Terms)
	}
	n += copy(b[n:], r.Body)
	clear(b[n:])
	le.PutUint32(b, sum(head, b[headAt:]))
}

// putOrigin writes an origin, and returns how many bytes it takes.
func putOrigin(b []byte, o *journal.Origin) int {
	le.PutUint64(b, o.Session)
	le.PutUint64(b[8:], o.Offset)
	return originSize
}

func putCounts(b []byte, r *journal.Record) {
	le.PutUint32(b, r.Reserves)
	le.PutUint32(b[4:], r.Timeouts)
	le.PutUint32(b[8:], r.Releases)
	le.PutUint32(b[12:], r.Buries)
	le.PutUint32(b[16:], r.Kicks)
}

// putKeys writes the keys of a job that has some, and returns how many bytes they take.
func putKeys(b []byte, k *journal.Keys) int {
	b[0], b[1] = byte(len(k.Unique)), byte(len(k.Limited))
	le.PutUint32(b[2:], k.Seconds)
	le.PutUint32(b[6:], k.Limit)
	n := journal.KeysFixed + copy(b[journal.KeysFixed:], k.Unique)
	return n + copy(b[n:], k.Limited)
}

// settled is the flag of terms that wait for a group whose buried members do not count.
const settled = 1

// putTerms writes the terms of a job that has some, and returns how many bytes they take.
func putTerms(b []byte, t *journal.Terms) int {
	b[0], b[1], b[2], b[3] = byte(len(t.Fair)), byte(len(t.Group)), byte(len(t.After)), 0
	if t.Settled {
		b[3] = settled
	}
	le.PutUint32(b[4:], t.Expires)
	n := journal.TermsFixed + copy(b[journal.TermsFixed:], t.Fair)
	n += copy(b[n:], t.Group)
	return n + copy(b[n:], t.After)
}

// SizeOfUpdate is the length in bytes of the update record of r.
func SizeOfUpdate(r *journal.Record) int64 {
	n := int64(UpdateSize)
	if r.Origin != (journal.Origin{}) {
		n += originSize
	}
	if r.Attempts != r.UsualAttempts() {
		n += updateAttempts
	}
	return n
}

// EncodeUpdate fills b, which has as many bytes as SizeOfUpdate tells, with a job's
// changed state.
func EncodeUpdate(b []byte, salt Salt, r *journal.Record) {
	putHead(b, Update)
	le.PutUint64(b[8:], r.ID)
	le.PutUint64(b[16:], when(r))
	le.PutUint32(b[24:], r.Pri)
	le.PutUint32(b[28:], r.Delay)
	putCounts(b[32:], r)
	le.PutUint32(b[52:], uint32(r.State))
	n := UpdateSize
	if r.Origin != (journal.Origin{}) {
		b[52] |= originFlag
		n += putOrigin(b[n:], &r.Origin)
	}
	if len(b) > n {
		b[52] |= attemptsFlag
		le.PutUint64(b[n:], uint64(r.Attempts))
	}
	seal(b, salt)
}

// SizeOfDelete is the length in bytes of the delete record that a command has made.
func SizeOfDelete(o *journal.Origin) int64 {
	if *o != (journal.Origin{}) {
		return SmallSize + originSize
	}
	return SmallSize
}

// EncodeDelete fills b, which has as many bytes as SizeOfDelete tells, with the end of a job.
func EncodeDelete(b []byte, salt Salt, id uint64, o *journal.Origin) {
	putHead(b, Delete)
	le.PutUint64(b[8:], id)
	if len(b) > SmallSize {
		putOrigin(b[SmallSize:], o)
	}
	seal(b, salt)
}

// SettingSize is the length in bytes of the record of s.
func SettingSize(s *journal.Setting) int64 {
	fixed := policyFixed
	if s.Plain() {
		fixed = settingFixed
	}
	return settingSize(fixed, len(s.Tube), len(s.Dead), s.Origin != journal.Origin{})
}

func settingSize(fixed, tube, dead int, origin bool) int64 {
	n := int64(fixed+tube+dead+7) &^ 7
	if origin {
		n += originSize
	}
	return n
}

// The bits of a policy's byte 14. That of a setting has the first only.
const (
	settingOrigin = 1 << iota
	disconnects
	paused
	settingBits = settingOrigin | disconnects | paused
)

// EncodeSetting fills b, which has SettingSize bytes, with a valid setting: with a setting record
// if that can hold it, and with a policy record otherwise.
func EncodeSetting(b []byte, salt Salt, s *journal.Setting) {
	le.PutUint32(b[8:], s.Attempts)
	b[12], b[13], b[14], b[15] = byte(len(s.Tube)), byte(len(s.Dead)), 0, 0
	kind, n := Setting, settingFixed
	if !s.Plain() {
		kind, n = Policy, policyFixed
		putPolicy(b, &s.Policy)
	}
	putHead(b, kind)
	if s.Origin != (journal.Origin{}) {
		b[14] |= settingOrigin
		n += putOrigin(b[n:], &s.Origin)
	}
	n += copy(b[n:], s.Tube)
	n += copy(b[n:], s.Dead)
	clear(b[n:])
	seal(b, salt)
}

// putPolicy writes the fields of a policy that a setting does not have.
func putPolicy(b []byte, p *journal.Policy) {
	if p.Disconnects {
		b[14] |= disconnects
	}
	if p.Paused {
		b[14] |= paused
	}
	b[15] = byte(p.RetryFactor)
	for i, n := range [...]uint32{p.RetryMin, p.RetryMax, p.Rate, p.Per, p.MaxReserved, p.Expire} {
		le.PutUint32(b[16+4*i:], n)
	}
	le.PutUint16(b[40:], uint16(p.Burst))
	b[42], b[43] = byte(p.RetryJitter), 0
	le.PutUint32(b[44:], p.Linger)
}

// EncodeHold fills b, which has HoldSize bytes, with a valid hold.
func EncodeHold(b []byte, salt Salt, h *journal.Hold) {
	putHead(b, Hold)
	le.PutUint64(b[8:], h.ID)
	le.PutUint64(b[16:], h.Session)
	le.PutUint64(b[24:], uint64(h.End))
	offset := h.Offset
	if h.Touch {
		offset |= touchBit
	}
	le.PutUint64(b[32:], offset)
	le.PutUint64(b[40:], uint64(h.Reserves))
	seal(b, salt)
}

// EncodeNumbers fills b, which has NumbersSize bytes, with valid numbers.
func EncodeNumbers(b []byte, salt Salt, n *journal.Numbers) {
	putHead(b, Numbers)
	le.PutUint32(b[8:], n.First)
	le.PutUint32(b[12:], n.Count)
	le.PutUint64(b[16:], n.Member)
	le.PutUint64(b[24:], n.Nonce)
	seal(b, salt)
}

// EncodeSmall fills b, which has SmallSize bytes, with a record that says one
// number: an id, a session, a position, or the index of a segment.
func EncodeSmall(b []byte, salt Salt, k Kind, number uint64) {
	putHead(b, k)
	le.PutUint64(b[8:], number)
	seal(b, salt)
}

// Run is what a start record says: a server has begun to append. Its fields stand in the
// order of the format.
type Run struct {
	At     int64       // wall clock, nanoseconds since 1970
	Boot   uint64      // number of the machine's start; 0 is unknown
	NextID uint64      // smaller ids may have been used
	Synced journal.Pos // all before it is certain to be on disk
	Sync   SyncPolicy
}

// Encode fills b, which has StartSize bytes.
func (r *Run) Encode(b []byte, salt Salt) {
	putHead(b, Start)
	encode(b[8:], r)
	seal(b, salt)
}

// encode writes the fields of a Header or a Run, which are rare.
func encode(b []byte, fields any) {
	if _, err := binary.Encode(b, le, fields); err != nil {
		panic(err) // b is too short
	}
}

// when is the field that a delayed job uses for its due time and a buried one for
// its order.
func when(r *journal.Record) uint64 {
	switch r.State {
	case journal.Delayed, journal.Deleted:
		return uint64(r.Due)
	case journal.Buried:
		return r.BuryOrder
	}
	return 0
}

func setWhen(r *journal.Record, v uint64) {
	r.Due, r.BuryOrder = 0, 0
	switch r.State {
	case journal.Delayed, journal.Deleted:
		r.Due = int64(v)
	case journal.Buried:
		r.BuryOrder = v
	}
}
