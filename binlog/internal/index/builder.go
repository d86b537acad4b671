package index

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// A Kind says what a block has.
type Kind uint8

// The kinds of blocks. Their values are on disk.
const (
	States Kind = iota // what jobs and settings are
	Notes              // settings, and what the log says of itself
	Ends               // deletes
	kinds
)

const (
	magic         = "TRELIDX\n"
	endMagic      = "TIDX"
	formatVersion = 1

	headerSize = 48
	entrySize  = 16 // of a block, in the footer
	endSize    = 32 // of the footer without these

	wordSize = 8 // what an item starts with
	copied   = 48
	counted  = 68 // end of the counters
	counters = 1 << 4
	fileItem = 13 // no kind of a record
	tubeItem = 15

	// tailSize is how much of the segment's end an index has the checksum of.
	tailSize = 4 << 10

	// JobSize is how many bytes most full records take.
	JobSize = copied
	// BlockSize is from how many bytes on a block is full.
	BlockSize = 64 << 10
	// maxItem is how long an item may be, with the name of its tube.
	maxItem = 2 << 10
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// header is the header of the index of the segment with that header.
func header(h *record.Header, boot uint64) []byte {
	var seg [record.HeaderSize]byte
	h.Encode(seg[:])
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.Seed)
	le.PutUint32(b[16:], h.Index)
	copy(b[20:24], seg[record.HeaderSize-4:])
	le.PutUint64(b[24:], uint64(h.Base))
	le.PutUint64(b[32:], boot)
	le.PutUint32(b[44:], sum(b[:44]))
	return b
}

// Tail is the checksum by which an index knows the end of its segment, of which so many bytes are used.
func Tail(segment io.ReaderAt, used int64) (uint32, error) {
	b := make([]byte, min(used, tailSize))
	if n, err := segment.ReadAt(b, used-int64(len(b))); n < len(b) {
		return 0, err
	}
	return sum(b), nil
}

// Builder makes the index of one segment.
type Builder struct {
	out    []byte // finished and not taken
	footer []byte // entries of the blocks
	head   uint32 // checksum in the header
	blocks [kinds]block
	tubes  map[string]uint16 // of the block of states
	tube   []byte            // the last one there, and its number; empty if there is none
	number uint16
	file   uint32      // in which the records that follow are; 0: in the segment
	filed  uint32      // what the block of states says of that
	mark   journal.Pos // in the last mark; 0 if there was none
	markAt int64
}

// block is one that is being filled.
type block struct {
	b []byte
	n uint32 // records
}

// NewBuilder begins the index of the segment with that header. Boot is the number of the machine's start if this run
// does not sync, otherwise 0.
func NewBuilder(h *record.Header, boot uint64) *Builder {
	head := header(h, boot)
	return &Builder{out: head, head: le.Uint32(head[44:]), tubes: map[string]uint16{}}
}

// Add takes the next record, which starts at that offset in the segment. It keeps nothing of it.
func (x *Builder) Add(offset int64, rec []byte) {
	switch k := record.KindOf(rec); k {
	case record.Full:
		x.full(offset, rec)
	case record.Update, record.Hold:
		x.other(States, k, offset, rec)
	case record.Setting, record.Policy:
		x.other(States, k, offset, rec)
		x.other(Notes, k, offset, rec)
	case record.Delete:
		e := &x.blocks[Ends]
		e.b = append(e.b, rec[8:16]...)
		x.added(Ends)
	case record.Mark:
		x.mark, x.markAt = journal.Pos(record.Number(rec)), offset
	default:
		x.other(Notes, k, offset, rec)
	}
}

// In says that the records that follow are in the file of that number, and not in the segment. Their offsets are those
// in that file.
func (x *Builder) In(file uint32) { x.file = file }

func (x *Builder) full(offset int64, rec []byte) {
	e := &x.blocks[States]
	if x.file != x.filed {
		e.b = append(e.b, fileItem, 0, 0, 0)
		e.b = le.AppendUint32(e.b, x.file)
		x.filed = x.file
	}
	start, end := record.TubeSpan(rec)
	if string(rec[start:end]) != string(x.tube) {
		x.name(e, rec[start:end])
	}
	state, keyed := record.State(rec)
	kind := uint64(record.Full)
	if le.Uint64(rec[copied:])|le.Uint64(rec[copied+8:])|uint64(le.Uint32(rec[copied+16:])) != 0 {
		kind |= counters
	}
	// Nearly all items have these bytes only, so that they are copied at once.
	n := len(e.b)
	if cap(e.b)-n < copied {
		e.b = slices.Grow(e.b, BlockSize+maxItem-n)
	}
	b := e.b[n : n+copied]
	le.PutUint64(b, kind|uint64(state)<<8|uint64(x.number)<<16|uint64(offset/8)<<32)
	*(*[copied - wordSize]byte)(b[wordSize:]) = [copied - wordSize]byte(rec[wordSize:])
	e.b = e.b[:n+copied]
	if kind&counters != 0 {
		e.b = append(e.b, rec[copied:counted]...)
	}
	if start > journal.FullFixed {
		e.b = append(e.b, rec[journal.FullFixed:start]...)
	}
	if keyed {
		keys := rec[end:record.BodyOffset(rec)]
		e.b = le.AppendUint16(e.b, uint16(len(keys)))
		e.b = append(e.b, keys...)
	}
	x.added(States)
}

// name has a tube's name in the block, and makes it the last one.
func (x *Builder) name(e *block, name []byte) {
	n, ok := x.tubes[string(name)]
	if !ok {
		e.b = append(e.b, tubeItem, byte(len(name)), 0, 0, 0, 0, 0, 0)
		e.b = append(e.b, name...)
		n = uint16(len(x.tubes))
		x.tubes[string(name)] = n
	}
	x.tube, x.number = append(x.tube[:0], name...), n
}

func (x *Builder) other(kind Kind, k record.Kind, offset int64, rec []byte) {
	e := &x.blocks[kind]
	e.b = append(e.b, byte(k), 0)
	e.b = le.AppendUint16(e.b, uint16(len(rec)-8))
	e.b = le.AppendUint32(e.b, uint32(offset/8))
	e.b = append(e.b, rec[8:]...)
	x.added(kind)
}

// added counts a record, and ends its block if that is full.
func (x *Builder) added(kind Kind) {
	e := &x.blocks[kind]
	if e.n++; len(e.b) >= BlockSize {
		x.end(kind)
	}
}

// end ends a block.
func (x *Builder) end(kind Kind) {
	e := &x.blocks[kind]
	if len(e.b) == 0 {
		return
	}
	for _, v := range [...]uint32{uint32(len(e.b)), uint32(kind), e.n, sum(e.b)} {
		x.footer = le.AppendUint32(x.footer, v)
	}
	if x.out == nil {
		if b, ok := pieces.Get().(*[]byte); ok {
			x.out = *b
		}
	}
	x.out = append(x.out, e.b...)
	e.b, e.n = e.b[:0], 0
	if kind == States {
		clear(x.tubes)
		x.tube = x.tube[:0]
		x.filed = 0
	}
}

// Take returns what follows in the file if that is a block or more, otherwise nil. It is the caller's.
func (x *Builder) Take() []byte {
	if len(x.out) < BlockSize {
		return nil
	}
	b := x.out
	x.out = nil
	return b
}

// pieces are memory for what Take returns.
var pieces sync.Pool

// Free gives back what Take has returned, as memory for what follows of this or another index. It may be nil.
func Free(b []byte) {
	if b = b[:0]; cap(b) > 0 {
		pieces.Put(&b)
	}
}

// Finish returns the rest of the file, of a segment of which so many bytes are used and whose end has that checksum.
// Nothing may follow.
func (x *Builder) Finish(used int64, tail uint32) []byte {
	if x.mark != 0 {
		var b [record.SmallSize]byte
		record.EncodeSmall(b[:], 0, record.Mark, uint64(x.mark))
		x.other(Notes, record.Mark, x.markAt, b[:])
	}
	for kind := range kinds {
		x.end(kind)
	}
	f := x.footer
	blocks := uint32(len(f) / entrySize)
	f = le.AppendUint64(f, uint64(used))
	for _, v := range [...]uint32{tail, blocks, 0, x.head} {
		f = le.AppendUint32(f, v)
	}
	f = le.AppendUint32(f, sum(f))
	f = append(f, endMagic...)
	return append(x.out, f...)
}
