package entrylog

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs"
)

const (
	filePrefix = "entries."

	magic         = "TRELENT\n"
	formatVersion = 1

	headerSize = 104 // of a segment
	frameSize  = 32  // of a frame's head
	itemSize   = 32  // of an item, without an entry's data

	maxFrame = 1 << 30
)

// Kinds of items. Their values are on disk.
const (
	itemEntry = 1 + iota
	itemHard
	itemTrim
	itemReset
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func sum(start uint32, b []byte) uint32 { return crc32.Update(start, castagnoli, b) }

func fileName(index uint32) string { return vfs.Series(filePrefix).Name(index) }

// fileIndex is the index in a file's name, or 0 if it is not a segment's.
func fileIndex(name string) uint32 { return vfs.Series(filePrefix).Number(name) }

// header starts a segment. It repeats what the log says before the segment, so
// that older segments can go.
type header struct {
	index uint32
	chain uint32 // checksum of the frame before, in an earlier segment; 0 if there is none
	seed  uint64 // the directory's
	pos   uint64 // of the header
	state state  // before the first frame of the segment
}

func (h *header) encode(b []byte) {
	clear(b[:headerSize])
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.index)
	le.PutUint64(b[16:], h.seed)
	le.PutUint64(b[24:], h.pos)
	le.PutUint64(b[32:], h.state.base.Index)
	le.PutUint64(b[40:], h.state.base.Term)
	le.PutUint64(b[48:], h.state.last.Index)
	le.PutUint64(b[56:], h.state.last.Term)
	le.PutUint64(b[64:], h.state.hard.term)
	le.PutUint64(b[72:], h.state.hard.vote)
	le.PutUint64(b[80:], h.state.hard.commit)
	le.PutUint32(b[88:], h.chain)
	le.PutUint32(b[100:], sum(0, b[:100]))
}

const laterVersion = "a version of the format that this program does not know"

// decode reads the header at the start of b, or tells what is wrong with it.
func (h *header) decode(b []byte) (wrong string) {
	switch {
	case len(b) < headerSize:
		return "the file is too short for a segment's header"
	case string(b[:8]) != magic:
		return "not the header of a segment"
	case sum(0, b[:100]) != le.Uint32(b[100:]):
		return "the header's checksum is wrong"
	case le.Uint32(b[8:]) != formatVersion:
		return laterVersion
	case le.Uint64(b[92:]) != 0:
		return "a header with impossible fields"
	}
	*h = header{
		index: le.Uint32(b[12:]),
		seed:  le.Uint64(b[16:]),
		pos:   le.Uint64(b[24:]),
		state: state{
			base: EntryID{le.Uint64(b[32:]), le.Uint64(b[40:])},
			last: EntryID{le.Uint64(b[48:]), le.Uint64(b[56:])},
			hard: hardState{le.Uint64(b[64:]), le.Uint64(b[72:]), le.Uint64(b[80:])},
		},
		chain: le.Uint32(b[88:]),
	}
	if wrong := h.state.wrong(); wrong != "" {
		return "a header that says that " + wrong
	}
	return ""
}

// newSalt is where the checksums of frames and items start in a log of that seed.
func newSalt(seed uint64) uint32 {
	var b [8]byte
	le.PutUint64(b[:], seed)
	return sum(0, b[:])
}

// frame is a frame's head.
type frame struct {
	sum     uint32 // of the head; the next frame's chain
	chain   uint32 // sum of the frame before
	pos     uint64
	size    uint32 // bytes, with the head
	items   uint32
	content uint32 // checksum of the items' heads
}

func (f *frame) encode(b []byte, salt uint32) {
	le.PutUint32(b[4:], f.chain)
	le.PutUint64(b[8:], f.pos)
	le.PutUint32(b[16:], f.size)
	le.PutUint32(b[20:], f.items)
	le.PutUint32(b[24:], f.content)
	le.PutUint32(b[28:], 0)
	f.sum = sum(salt, b[4:frameSize])
	le.PutUint32(b, f.sum)
}

// decode reads the head at the start of b, if there is a sound one.
func (f *frame) decode(b []byte, salt uint32) bool {
	if len(b) < frameSize || sum(salt, b[4:frameSize]) != le.Uint32(b) {
		return false
	}
	*f = frame{
		sum:     le.Uint32(b),
		chain:   le.Uint32(b[4:]),
		pos:     le.Uint64(b[8:]),
		size:    le.Uint32(b[16:]),
		items:   le.Uint32(b[20:]),
		content: le.Uint32(b[24:]),
	}
	return true
}

// sound reports whether the items of a frame, all of b behind its head, are as they
// were written.
func (f *frame) sound(b []byte, salt uint32) bool {
	content := salt
	for range f.items {
		n := itemLen(b)
		if n < 0 || n > int64(len(b)) || sum(salt, b[4:n]) != le.Uint32(b) {
			return false
		}
		content = sum(content, b[:itemSize])
		b = b[n:]
	}
	return len(b) == 0 && content == f.content
}

// itemLen is the length of the item at the start of b, as its head says, or -1.
func itemLen(b []byte) int64 {
	if len(b) < itemSize {
		return -1
	}
	if b[4] != itemEntry {
		return itemSize
	}
	return entrySize(int64(le.Uint32(b[24:])))
}

// entrySize is the length of an entry's item.
func entrySize(data int64) int64 { return itemSize + (data+7)&^7 }

// appendEntry appends an entry's item to b, and its head's checksum to content.
func appendEntry(b []byte, salt uint32, content *uint32, e *raftpb.Entry) []byte {
	at := len(b)
	b = append(b, make([]byte, itemSize)...)
	b = append(b, e.GetData()...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	item := b[at:]
	item[4] = itemEntry
	item[5] = byte(e.GetType())
	le.PutUint64(item[8:], e.GetIndex())
	le.PutUint64(item[16:], e.GetTerm())
	le.PutUint32(item[24:], uint32(len(e.GetData())))
	sealItem(item, salt, content)
	return b
}

// appendItem appends an item of three numbers.
func appendItem(b []byte, salt uint32, content *uint32, kind byte, x, y, z uint64) []byte {
	at := len(b)
	b = append(b, make([]byte, itemSize)...)
	item := b[at:]
	item[4] = kind
	le.PutUint64(item[8:], x)
	le.PutUint64(item[16:], y)
	le.PutUint64(item[24:], z)
	sealItem(item, salt, content)
	return b
}

func sealItem(item []byte, salt uint32, content *uint32) {
	le.PutUint32(item, sum(salt, item[4:]))
	*content = sum(*content, item[:itemSize])
}

// possibleItem reports whether a sound item can be one that this package has written.
func possibleItem(b []byte) bool {
	if b[6]|b[7] != 0 || b[4] != itemEntry && b[5] != 0 {
		return false
	}
	switch b[4] {
	case itemEntry:
		return zero(b[itemSize+le.Uint32(b[24:]):]) && raftpb.EntryType(b[5]) <= raftpb.EntryConfChangeV2 &&
			le.Uint32(b[28:]) == 0
	case itemHard:
		return true
	case itemTrim, itemReset:
		return le.Uint64(b[24:]) == 0
	}
	return false
}

// stored is an entry with all that it points to, so that reading one needs one
// allocation beside its data.
type stored struct {
	raftpb.Entry
	term, index uint64
	kind        raftpb.EntryType
}

// decodeEntry reads a sound entry's item. The data is a part of b.
func decodeEntry(b []byte) *raftpb.Entry {
	s := &stored{kind: raftpb.EntryType(b[5]), index: le.Uint64(b[8:]), term: le.Uint64(b[16:])}
	s.Type, s.Index, s.Term = &s.kind, &s.index, &s.term
	if n := int(le.Uint32(b[24:])); n > 0 {
		s.Data = b[itemSize : itemSize+n : itemSize+n]
	}
	return &s.Entry
}
