package sealed

import (
	"cmp"
	"path/filepath"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Writer writes segments one after the other. The fields are set before the first call;
// LastID may grow in between.
type Writer struct {
	FS     vfs.FS
	Dir    string
	Limit  int64       // bytes of a segment, unless a single record is larger
	Seed   uint32      // of all segments
	Gentle bool        // each write is synced, for the sake of others: see vfs.Sequential
	Boot   uint64      // of the headers
	Index  uint32      // of the next segment, or of the one that is open
	Base   journal.Pos // where that segment starts
	LastID uint64      // no greater id was used so far
	At     int64       // when the segments are said to be made, nanoseconds since 1970; 0: when they are
	Sealed []Segment   // the segments that are written and durable

	first uint32 // index of the first segment; 0 if none was begun
	salt  record.Salt
	out   vfs.Sequential
}

// Segment tells of a segment that is written and durable.
type Segment struct {
	Size int64  // bytes
	Sum  uint32 // CRC-32C of all of them
}

// closing is what the last records of a segment take: a stop record and the end record.
const closing = 2 * record.SmallSize

// Place returns the n bytes of the next record, to be filled at once, and the salt with
// which to do it.
func (w *Writer) Place(n int64) ([]byte, record.Salt, error) {
	if w.out.Open() && w.out.Size()+n > w.Limit-closing {
		if err := w.end(); err != nil {
			return nil, 0, err
		}
	}
	if err := w.begin(); err != nil {
		return nil, 0, err
	}
	if err := w.out.Spill(); err != nil {
		return nil, 0, err
	}
	return w.out.Extend(int(n)), w.salt, nil
}

// begin opens a segment unless one is open.
func (w *Writer) begin() error {
	if w.out.Open() {
		return nil
	}
	w.out.Gentle = w.Gentle
	if err := w.out.Create(w.FS, filepath.Join(w.Dir, record.FileName(w.Index))); err != nil {
		return err
	}
	w.first = cmp.Or(w.first, w.Index)
	h := record.Header{
		Seed: w.Seed, Index: w.Index, Oldest: w.first, Base: w.Base, Synced: w.Base,
		LastID: w.LastID, Created: cmp.Or(w.At, time.Now().UnixNano()), Boot: w.Boot,
	}
	w.salt = h.Salt()
	h.Encode(w.out.Extend(record.HeaderSize))
	return nil
}

// end seals the segment that is open and makes it durable.
func (w *Writer) end() error {
	record.EncodeSmall(w.out.Extend(record.SmallSize), w.salt, record.End, w.LastID)
	size := w.out.Size()
	sum, err := w.out.Finish()
	if err != nil {
		return err
	}
	w.Sealed = append(w.Sealed, Segment{size, sum})
	w.Index++
	w.Base += journal.Pos(size)
	return nil
}

// Size is how many bytes the segment that is open has so far.
func (w *Writer) Size() int64 { return w.out.Size() }

// Sync makes the records so far durable, but for the name of their segment, which is open.
func (w *Writer) Sync() error { return w.out.Sync() }

// Stop makes all records durable and adds one that says so, so that a reader of the log
// takes nothing before it for torn. Only Close may follow.
func (w *Writer) Stop() error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.out.Sync(); err != nil {
		return err
	}
	stopped := uint64(w.Base) + uint64(w.out.Size())
	record.EncodeSmall(w.out.Extend(record.SmallSize), w.salt, record.Stop, stopped)
	return nil
}

// Close seals the last segment. There is one even without records, because it tells which
// ids were used.
func (w *Writer) Close() error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.end()
}

// Abandon closes the file that is open, and leaves what was written.
func (w *Writer) Abandon() error { return w.out.Abandon() }
