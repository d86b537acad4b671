package binlog

import (
	"encoding/binary"
	"hash/crc32"

	"trellis/binlog/journal"
)

// The layout that doc.go describes.

const (
	magic         = "TRELLIS\n"
	formatVersion = 1
	headerSize    = 80
)

// kind is what a record says, in the top four bits of its second word. Zero is
// left to bytes that were never written.
type kind uint8

const (
	kindFull kind = 1 + iota
	kindUpdate
	kindDelete
	kindMark
	kindDrop
	kindStart
	kindStop
	kindEnd
	kinds
)

func (k kind) String() string {
	if k == 0 || k >= kinds {
		return "unknown"
	}
	return [...]string{"", "full", "update", "delete", "mark", "drop", "start", "stop", "end"}[k]
}

const (
	smallSize  = 16 // of delete, mark, drop, stop and end
	updateSize = 56
	startSize  = 48
	fullFixed  = journal.FullFixed

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

func align(n int64) int64 { return (n + 7) &^ 7 }

// header starts every segment.
type header struct {
	seed    uint32 // the directory's; makes the records' checksums unforgeable by clients
	index   uint32
	oldest  uint32 // the oldest segment that was needed when this one was begun
	base    Pos    // of the header
	synced  Pos    // all before it is certain to be on disk
	lastID  uint64 // no larger id was used before this segment
	created int64  // wall clock, ns

	// As in the start record of the run that has begun the segment, which may
	// have gone with an older segment.
	boot     uint64
	interval int64
}

func (h *header) encode(b []byte) {
	clear(b[:headerSize])
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.seed)
	le.PutUint32(b[16:], h.index)
	le.PutUint32(b[20:], h.oldest)
	le.PutUint64(b[24:], uint64(h.base))
	le.PutUint64(b[32:], uint64(h.synced))
	le.PutUint64(b[40:], h.lastID)
	le.PutUint64(b[48:], uint64(h.created))
	le.PutUint64(b[56:], h.boot)
	le.PutUint64(b[64:], uint64(h.interval))
	le.PutUint32(b[76:], headerSum(b))
}

func headerSum(b []byte) uint32 { return crc32.Checksum(b[:76], castagnoli) }

// What decode says of headers that no crash has made.
const (
	unknownVersion = "a version of the format that this program does not know"
	futureOldest   = "the header says that the segment itself is not needed"
)

// decode reports what is wrong with a header, or "".
func (h *header) decode(b []byte) string {
	switch {
	case len(b) < headerSize:
		return "the file is too short for a segment's header"
	case string(b[:8]) != magic:
		return "not the header of a segment"
	case headerSum(b) != le.Uint32(b[76:]):
		return "the header's checksum is wrong"
	case le.Uint32(b[8:]) != formatVersion:
		return unknownVersion
	case le.Uint32(b[20:]) > le.Uint32(b[16:]):
		return futureOldest
	}
	*h = header{
		seed:     le.Uint32(b[12:]),
		index:    le.Uint32(b[16:]),
		oldest:   le.Uint32(b[20:]),
		base:     Pos(le.Uint64(b[24:])),
		synced:   Pos(le.Uint64(b[32:])),
		lastID:   le.Uint64(b[40:]),
		created:  int64(le.Uint64(b[48:])),
		boot:     le.Uint64(b[56:]),
		interval: int64(le.Uint64(b[64:])),
	}
	return ""
}

// checksumStart is the state in which the checksums of a segment's records start.
func checksumStart(seed, index uint32) uint32 {
	var b [8]byte
	le.PutUint32(b[:], seed)
	le.PutUint32(b[4:], index)
	return crc32.Checksum(b[:], castagnoli)
}

func putHead(b []byte, k kind) {
	le.PutUint32(b[4:], uint32(k)<<wordBits|uint32(len(b)/8))
}

func sumOf(start uint32, b []byte) uint32 { return crc32.Update(start, castagnoli, b) }

func seal(b []byte, start uint32) { le.PutUint32(b, sumOf(start, b[4:])) }

// encodeFull fills b, which has the record's exact length.
func encodeFull(b []byte, start uint32, r *Record) {
	putHead(b, kindFull)
	le.PutUint64(b[8:], r.ID)
	le.PutUint64(b[16:], uint64(r.Created))
	le.PutUint64(b[24:], when(r))
	le.PutUint32(b[32:], r.Pri)
	le.PutUint32(b[36:], r.Delay)
	le.PutUint32(b[40:], r.TTR)
	le.PutUint32(b[44:], uint32(len(r.Body)))
	le.PutUint32(b[48:], r.Reserves)
	le.PutUint32(b[52:], r.Timeouts)
	le.PutUint32(b[56:], r.Releases)
	le.PutUint32(b[60:], r.Buries)
	le.PutUint32(b[64:], r.Kicks)
	b[68] = byte(r.State)
	b[69] = byte(len(r.Tube))
	sum := sumOf(start, b[4:headAt])
	le.PutUint16(b[headAt:], uint16(sum))
	n := fullFixed + copy(b[fullFixed:], r.Tube)
	n += copy(b[n:], r.Body)
	clear(b[n:])
	le.PutUint32(b, sumOf(sum, b[headAt:]))
}

func encodeUpdate(b []byte, start uint32, r *Record) {
	putHead(b, kindUpdate)
	le.PutUint64(b[8:], r.ID)
	le.PutUint64(b[16:], when(r))
	le.PutUint32(b[24:], r.Pri)
	le.PutUint32(b[28:], r.Delay)
	le.PutUint32(b[32:], r.Reserves)
	le.PutUint32(b[36:], r.Timeouts)
	le.PutUint32(b[40:], r.Releases)
	le.PutUint32(b[44:], r.Buries)
	le.PutUint32(b[48:], r.Kicks)
	le.PutUint32(b[52:], uint32(r.State))
	seal(b, start)
}

// encodeSmall fills b with a record that says one number.
func encodeSmall(b []byte, start uint32, k kind, v uint64) {
	putHead(b, k)
	le.PutUint64(b[8:], v)
	seal(b, start)
}

// startRecord begins every run of a server.
type startRecord struct {
	at       int64  // wall clock, ns
	boot     uint64 // of the machine; 0 is unknown
	nextID   uint64 // ids below it may have been used
	synced   Pos    // all before it is certain to be on disk
	interval int64  // Options.SyncInterval
}

func (s *startRecord) encode(b []byte, start uint32) {
	putHead(b, kindStart)
	le.PutUint64(b[8:], uint64(s.at))
	le.PutUint64(b[16:], s.boot)
	le.PutUint64(b[24:], s.nextID)
	le.PutUint64(b[32:], uint64(s.synced))
	le.PutUint64(b[40:], uint64(s.interval))
	seal(b, start)
}

func (s *startRecord) decode(b []byte) {
	*s = startRecord{
		at:       int64(le.Uint64(b[8:])),
		boot:     le.Uint64(b[16:]),
		nextID:   le.Uint64(b[24:]),
		synced:   Pos(le.Uint64(b[32:])),
		interval: int64(le.Uint64(b[40:])),
	}
}

func kindOf(b []byte) kind    { return kind(b[7] >> 4) }
func valueOf(b []byte) uint64 { return le.Uint64(b[8:]) }

// decodeFull reads a record that check has found sound. r.Body is a part of b.
func decodeFull(b []byte, r *Record, tubes *names) {
	r.ID = le.Uint64(b[8:])
	r.State = State(b[68])
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
	body := fullFixed + int(b[69])
	r.Tube = tubes.get(b[fullFixed:body])
	end := body + int(le.Uint32(b[44:]))
	r.Body = b[body:end:end]
}

func decodeUpdate(b []byte, r *Record) {
	*r = Record{
		ID:       le.Uint64(b[8:]),
		State:    State(b[52]),
		Pri:      le.Uint32(b[24:]),
		Delay:    le.Uint32(b[28:]),
		Reserves: le.Uint32(b[32:]),
		Timeouts: le.Uint32(b[36:]),
		Releases: le.Uint32(b[40:]),
		Buries:   le.Uint32(b[44:]),
		Kicks:    le.Uint32(b[48:]),
	}
	setWhen(r, le.Uint64(b[16:]))
}

// sum is a checksum that covers a record from its fifth byte to before at.
type sum struct {
	crc uint32
	at  int
}

// plausible judges a record by its start, of which b has at least 16 bytes, or
// 72 if so many are left of the file. It returns the record's length with what
// it has summed up, or what is wrong with the record.
func plausible(b []byte, left int64, start uint32) (n int64, s sum, what string) {
	word := le.Uint32(b[4:])
	n = int64(word&maxWords) * 8
	s = sum{start, 4}
	if n > left {
		return 0, s, "a record longer than the rest of the file"
	}
	want := int64(smallSize)
	switch k := kind(word >> wordBits); k {
	case kindFull:
		if n < fullFixed || len(b) < fullFixed {
			return 0, s, "a full record of a wrong length"
		}
		s = sum{sumOf(start, b[4:headAt]), headAt}
		if uint16(s.crc) != le.Uint16(b[headAt:]) {
			return 0, s, "a full record whose first part has a wrong checksum"
		}
		want = align(fullFixed + int64(b[69]) + int64(le.Uint32(b[44:])))
	case kindUpdate:
		want = updateSize
	case kindStart:
		want = startSize
	case kindDelete, kindMark, kindDrop, kindStop, kindEnd:
	default:
		return 0, s, "bytes that are no record"
	}
	if n != want {
		return 0, s, "a " + kindOf(b).String() + " record of a wrong length"
	}
	return n, s, ""
}

// check judges the whole of a plausible record.
func check(b []byte, s sum) string {
	if sumOf(s.crc, b[s.at:]) != le.Uint32(b) {
		return "a " + kindOf(b).String() + " record with a wrong checksum"
	}
	return ""
}

// impossible judges what a record of a right checksum says, in the segment of
// that index. It finds nothing wrong in what this package has written.
func impossible(b []byte, index uint32) string {
	switch kindOf(b) {
	case kindFull:
		n := int(b[69])
		if n == 0 || n > journal.MaxTube || !validState(State(b[68])) || le.Uint64(b[8:]) == 0 {
			return "a full record with impossible fields"
		}
		for _, c := range b[fullFixed+n+int(le.Uint32(b[44:])):] {
			if c != 0 {
				return "a full record with impossible fields"
			}
		}
	case kindUpdate:
		if !validState(State(b[52])) || b[53]|b[54]|b[55] != 0 || le.Uint64(b[8:]) == 0 {
			return "an update record with impossible fields"
		}
	case kindDrop:
		if valueOf(b) > uint64(index) {
			return "a drop record that says that its own segment is not needed"
		}
	}
	return ""
}

// names keeps one string for each tube's name that was read.
type names struct {
	last string
	all  map[string]string
}

func (t *names) get(b []byte) string {
	if string(b) == t.last {
		return t.last
	}
	s, ok := t.all[string(b)]
	if !ok {
		s = string(b)
		if t.all == nil {
			t.all = map[string]string{}
		}
		t.all[s] = s
	}
	t.last = s
	return s
}
