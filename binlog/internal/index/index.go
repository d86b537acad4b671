package index

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// ErrBad tells that an index is not whole, damaged, or another segment's.
var ErrBad = errors.New("the index is of no use")

// ErrUnfinished tells that an index has no end, so that it is of no use: it is not written yet, or never was. It wraps
// ErrBad.
var ErrUnfinished = bad("it is not finished")

func bad(what string) error { return fmt.Errorf("%w: %s", ErrBad, what) }

// Index is one that has a sound header and footer.
type Index struct {
	Boot uint64 // number of the machine's start in which it counts; 0: in any
	Size int64  // of the file
	Used int64  // used bytes of the segment
	Tail uint32 // checksum of its end, as the function Tail tells it

	f      io.ReaderAt
	index  uint32  // of the segment
	blocks []place // in the order of the file

	file uint32 // in which the record that is told is; 0: in the segment
	buf  []byte // of a block
	rec  []byte // of the record that is told
	name [][]byte
}

// place is where a block is, and what it has.
type place struct {
	at      int64
	size    uint32
	kind    Kind
	records uint32
	sum     uint32
}

func (p *place) bad(what string) error { return bad(fmt.Sprintf("block at offset %d: %s", p.at, what)) }

// Open reads header and footer of the index of the segment with that header, from f with size bytes. Errors wrap
// ErrBad.
func Open(f io.ReaderAt, size int64, h *record.Header) (*Index, error) {
	if size < headerSize+endSize {
		return nil, bad("it is too short")
	}
	head := make([]byte, headerSize)
	end := make([]byte, endSize)
	if err := errors.Join(readAt(f, head, 0), readAt(f, end, size-endSize)); err != nil {
		return nil, err
	}
	x := &Index{f: f, index: h.Index, Size: size, Boot: le.Uint64(head[32:])}
	n := int64(le.Uint32(end[12:])) * entrySize
	switch {
	case !bytes.Equal(head, header(h, x.Boot)):
		return nil, bad("it is of another segment")
	case string(end[28:]) != endMagic || le.Uint32(end[20:]) != le.Uint32(head[44:]) || n > size-headerSize-endSize:
		return nil, ErrUnfinished
	}
	f2 := make([]byte, n+24)
	if err := readAt(f, f2, size-endSize-n); err != nil {
		return nil, err
	}
	if sum(f2) != le.Uint32(end[24:]) || !bytes.Equal(f2[n:], end[:24]) || le.Uint32(end[16:]) != 0 {
		return nil, bad("the checksum of its footer is wrong")
	}
	at := int64(headerSize)
	for b := f2[:n]; len(b) > 0; b = b[entrySize:] {
		p := place{at, le.Uint32(b), Kind(min(le.Uint32(b[4:]), uint32(kinds))), le.Uint32(b[8:]), le.Uint32(b[12:])}
		if p.size > BlockSize+maxItem || p.kind == kinds {
			return nil, bad("it has a block that cannot be")
		}
		x.blocks = append(x.blocks, p)
		at += int64(p.size)
	}
	if at != size-endSize-n {
		return nil, bad("its blocks do not fill it")
	}
	x.Used, x.Tail = int64(le.Uint64(end)), le.Uint32(end[8:])
	return x, nil
}

func readAt(f io.ReaderAt, b []byte, off int64) error {
	if n, err := f.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("%w: it cannot be read: %w", ErrBad, err)
	}
	return nil
}

// Records is how many records its blocks of a kind have.
func (x *Index) Records(kind Kind) (n int64) {
	for _, p := range x.blocks {
		if p.kind == kind {
			n += int64(p.records)
		}
	}
	return n
}

// File is the number of the file in which the record is that Read tells, 0 if it is in the segment.
func (x *Index) File() uint32 { return x.file }

// Read tells the records in the blocks of a kind, in the order of the segment, and where in it each starts: 0 for a
// delete. Of a full record it is the head. A record has no checksum, and is valid until tell returns. Nothing is told
// of a block that is damaged. Errors wrap ErrBad, or are tell's.
func (x *Index) Read(kind Kind, tell func(offset int64, rec []byte) error) error {
	for i := range x.blocks {
		p := &x.blocks[i]
		if p.kind != kind {
			continue
		}
		x.buf = append(x.buf[:0], make([]byte, p.size)...)
		if err := readAt(x.f, x.buf, p.at); err != nil {
			return err
		}
		if sum(x.buf) != p.sum {
			return p.bad("its checksum is wrong")
		}
		records, b := uint32(0), x.buf
		x.file = 0
		for x.name = x.name[:0]; len(b) > 0; records++ {
			offset, n := int64(0), 0
			if kind == Ends {
				n = x.deleted(b)
			} else {
				offset, n = x.item(&b)
			}
			if n == 0 {
				return p.bad("it has an item that cannot be")
			}
			if err := tell(offset, x.rec); err != nil {
				return err
			}
			b = b[n:]
		}
		if records != p.records {
			return p.bad("it has another number of records")
		}
	}
	return nil
}

// deleted makes the record of the end that b begins with, and returns how long that is, 0 if it cannot be.
func (x *Index) deleted(b []byte) int {
	if len(b) < 8 {
		return 0
	}
	x.rec = append(append(x.rec[:0], make([]byte, 8)...), b[:8]...)
	if !record.SetRecord(x.rec, record.Delete, x.index) {
		return 0
	}
	return 8
}

// item makes the record of the item that b begins with, once it has taken what stands before it from b. It
// returns where in the segment the record starts, and how long the item is, 0 if it cannot be.
func (x *Index) item(b *[]byte) (offset int64, n int) {
	for len(*b) >= wordSize && ((*b)[0] == tubeItem || (*b)[0] == fileItem) {
		if (*b)[0] == fileItem {
			x.file = le.Uint32((*b)[4:])
			*b = (*b)[wordSize:]
			continue
		}
		end := wordSize + int((*b)[1])
		if end > len(*b) {
			return 0, 0
		}
		x.name = append(x.name, (*b)[wordSize:end])
		*b = (*b)[end:]
	}
	c := *b
	if len(c) < wordSize {
		return 0, 0
	}
	offset = int64(le.Uint32(c[4:])) * 8
	if record.Kind(c[0]&^counters) == record.Full {
		return offset, x.head(c)
	}
	n = wordSize + int(le.Uint16(c[2:]))
	if n > len(c) || c[1] != 0 {
		return 0, 0
	}
	x.rec = append(x.rec[:0], c[:n]...)
	if !record.SetRecord(x.rec, record.Kind(c[0]), x.index) {
		return 0, 0
	}
	return offset, n
}

// head makes the head of the full record's item that b begins with, and returns the item's length, 0 if it cannot be.
func (x *Index) head(b []byte) (n int) {
	const fixed = journal.FullFixed
	tube := int(le.Uint16(b[2:]))
	if len(b) < copied || tube >= len(x.name) {
		return 0
	}
	h := append(x.rec[:0], b[:copied]...)
	h = append(h, make([]byte, fixed-copied)...)
	n = copied
	if b[0]&counters != 0 {
		if len(b) < counted {
			return 0
		}
		n = counted
		copy(h[copied:], b[copied:counted])
	}
	h[68], h[69] = b[1], byte(len(x.name[tube]))
	start, _ := record.TubeSpan(h)
	if start -= fixed; len(b) < n+start {
		return 0
	}
	h = append(h, b[n:n+start]...)
	n += start
	h = append(h, x.name[tube]...)
	if _, keyed := record.State(h); keyed {
		if len(b) < n+2 {
			return 0
		}
		keys := int(le.Uint16(b[n:]))
		n += 2
		if len(b) < n+keys {
			return 0
		}
		h = append(h, b[n:n+keys]...)
		n += keys
	}
	h = append(h, make([]byte, -len(h)&7)...)
	if x.rec = h; !record.SetHead(h) {
		return 0
	}
	return n
}
