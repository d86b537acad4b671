package snapshot

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

// Load feeds a standby, which is empty, with the snapshot in that directory. Each record is
// checked before it is told; whether the rest is sound is known only when Load returns nil.
// After an error the standby is void: it has some of the jobs. A *DamageError names the
// file and the offset. It is for any goroutine, as long as the snapshot is not removed.
//
// done is told the bytes of each segment, and of each piece of other files, that was loaded, and
// its error ends the loading. Nil does nothing.
func Load(fs vfs.FS, path string, to Standby, done func(bytes int64) error) error {
	if err := feed(fs, path, to, done); err != nil {
		return fmt.Errorf("load snapshot %s: %w", path, err)
	}
	return nil
}

func feed(fs vfs.FS, path string, to Standby, done func(bytes int64) error) error {
	m, err := readMeta(fs, path)
	if err != nil {
		return err
	}
	r := reader{fs: fs, path: path, meta: &m, to: to}
	if len(m.Files) > 0 {
		if err := r.cold(done); err != nil {
			return err
		}
	}
	for _, s := range m.segments {
		if err := r.next(); err != nil {
			return err
		}
		if done == nil {
			continue
		}
		if err := done(s.Size); err != nil {
			return err
		}
	}
	return r.end()
}

// reader reads the segments of a snapshot, one after the other, each once.
type reader struct {
	fs   vfs.FS
	path string
	meta *Meta
	to   Standby // nil to check only

	segments int // that were read
	seed     uint32
	base     journal.Pos // of the next segment
	lastID   uint64      // that the last segment's end told
	records  uint64
	fulls    uint64

	data    summed
	scanner record.Scanner
	decoder Decoder
}

// summed computes the checksum of a file that is read from its start to its end.
type summed struct {
	file vfs.File
	sum  uint32
	next int64 // bytes that were read
}

func (s *summed) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.file.ReadAt(p, off)
	if off == s.next {
		s.sum = sum(s.sum, p[:n])
		s.next += int64(n)
	}
	return n, err
}

// next reads the next segment.
func (r *reader) next() (err error) {
	name := filepath.Join(r.path, record.FileName(uint32(r.segments)+1))
	want := r.meta.segments[r.segments]
	file, err := r.fs.OpenRead(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return &DamageError{File: name, What: "the file is missing"}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return err
	}
	if size != want.Size {
		return &DamageError{
			File: name, Offset: min(size, want.Size), What: fmt.Sprintf("the file has %d bytes, not %d", size, want.Size),
		}
	}
	r.data = summed{file: file}
	r.segments++
	return r.segment(name, want)
}

// segment reads the segment in r.data.
func (r *reader) segment(name string, want sealed.Segment) error {
	var first [record.HeaderSize]byte
	if n, err := r.data.ReadAt(first[:], 0); n < len(first) {
		return &DamageError{File: name, What: "the header cannot be read", Err: err}
	}
	var h record.Header
	if err := h.Decode(first[:]); err != nil {
		return &DamageError{File: name, What: err.Error()}
	}
	if r.segments == 1 {
		r.seed = h.Seed
	}
	if h.Index != uint32(r.segments) || h.Oldest != 1 || h.Seed != r.seed || h.Base != r.base || h.Synced != r.base ||
		h.LastID != r.lastID || h.Sync != record.SyncAlways {
		return &DamageError{File: name, What: "the header is that of another segment"}
	}
	r.base += journal.Pos(want.Size)
	r.scanner.Reset(&r.data, &h, want.Size)
	for {
		at := r.scanner.Offset()
		b, err := r.scanner.Next()
		if err != nil {
			return damageOf(name, at, err)
		}
		end, wrong, err := r.record(b, want.Size-at)
		if wrong != "" {
			return &DamageError{File: name, Offset: at, What: wrong}
		}
		if err != nil {
			return err
		}
		if end {
			break
		}
	}
	if r.data.next != want.Size || r.data.sum != want.Sum {
		return &DamageError{File: name, What: "the file has not the checksum that the description says"}
	}
	return nil
}

func damageOf(name string, at int64, err error) error {
	d := &DamageError{File: name, Offset: at, What: err.Error()}
	if bad, ok := errors.AsType[*record.BadError](err); ok {
		d.Err = bad.Err
	}
	return d
}

// record takes a sound record, with which left bytes of the file are left. It tells
// whether the record is the segment's last, what is wrong with it in this place, and what
// the standby says.
func (r *reader) record(b []byte, left int64) (end bool, wrong string, err error) {
	last := r.segments == len(r.meta.segments)
	id := record.Number(b)
	switch k := record.KindOf(b); k {
	case record.Setting, record.Policy, record.Close, record.Numbers:
		r.records++
		return false, "", r.tell(k, b)
	case record.Full, record.Update, record.Delete, record.Hold:
		if id == 0 || id > r.meta.Highest {
			return false, fmt.Sprintf("a %v record of job %d, but the highest id is %d", k, id, r.meta.Highest), nil
		}
		r.records++
		return false, "", r.tell(k, b)
	case record.Stop:
		if !last || left != 2*record.SmallSize {
			return false, "a stop record that is not the last but one", nil
		}
		return false, "", nil
	case record.End:
		if left != record.SmallSize || id < r.lastID || id > r.meta.Highest || last && id != r.meta.Highest {
			return false, "an end record that is not the segment's", nil
		}
		r.lastID = id
		return true, "", nil
	default:
		return false, fmt.Sprintf("a %v record in a snapshot", k), nil
	}
}

// tell tells the standby what a record says.
func (r *reader) tell(k record.Kind, b []byte) error {
	if k == record.Full {
		r.fulls++
	}
	if r.to == nil {
		return nil
	}
	_, err := r.decoder.Tell(b, uint32(r.segments), r.to)
	return err
}

// end compares all segments with the description.
func (r *reader) end() error {
	if r.records != r.meta.Records || r.fulls != r.meta.Fulls {
		return &DamageError{
			File: filepath.Join(r.path, metaName),
			What: fmt.Sprintf("it says %d records, %d of them full, but there are %d and %d",
				r.meta.Records, r.meta.Fulls, r.records, r.fulls),
		}
	}
	return nil
}
