package convert

import (
	"fmt"
	"path/filepath"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// builder writes segments one after the other, sealed and durable.
type builder struct {
	fs     vfs.FS
	dir    string
	limit  int64 // of a segment's size, unless a record is larger
	seed   uint32
	index  uint32      // of the next segment
	base   journal.Pos // of the next segment
	lastID uint64
	boot   uint64
	first  uint32 // the first segment; 0 if none was begun

	fileWriter
	salt record.Salt
}

func (b *builder) add(r *journal.Record) error {
	if !record.Valid(r) {
		return fmt.Errorf("job %d: a body of %d bytes: %w", r.ID, len(r.Body), record.ErrInvalid)
	}
	n := r.Size()
	if b.file != nil && b.size()+n > b.limit-record.SmallSize {
		if err := b.end(); err != nil {
			return err
		}
	}
	if b.file == nil {
		if err := b.begin(); err != nil {
			return err
		}
	}
	record.EncodeFull(b.extend(int(n)), b.salt, r)
	return b.spill()
}

func (b *builder) begin() error {
	if b.first == 0 {
		b.first = b.index
	}
	if err := b.create(b.fs, filepath.Join(b.dir, record.FileName(b.index))); err != nil {
		return err
	}
	h := record.Header{
		Seed: b.seed, Index: b.index, Oldest: b.first, Base: b.base, Synced: b.base,
		LastID: b.lastID, Created: time.Now().UnixNano(), Boot: b.boot,
	}
	b.salt = h.Salt()
	h.Encode(b.extend(record.HeaderSize))
	return nil
}

// end seals the segment.
func (b *builder) end() error {
	record.EncodeSmall(b.extend(record.SmallSize), b.salt, record.End, b.lastID)
	b.index++
	b.base += journal.Pos(b.size())
	return b.finish()
}

// last seals the last segment. There is at least one: it tells the ids that were
// used.
func (b *builder) last() error {
	if b.file == nil {
		if b.first != 0 {
			return nil
		}
		if err := b.begin(); err != nil {
			return err
		}
	}
	return b.end()
}
