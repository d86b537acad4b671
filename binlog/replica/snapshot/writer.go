package snapshot

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/vfs"
)

// Writer writes a new snapshot. It is for one goroutine. After an error of any method
// but Abort only Abort is of use. Its memory is bounded: a buffer, the greatest record,
// and twelve bytes a segment.
type Writer struct {
	fs  vfs.FS
	dir string // of all snapshots
	tmp string // path of this one until it is finished; "" afterwards

	limit   int64 // bytes of a segment, unless a single record is larger
	seed    uint32
	lastID  uint64 // the greatest so far
	base    journal.Pos
	records uint64
	fulls   uint64
	done    []segment

	reader entry.Reader
	names  record.Names

	file vfs.File // of the segment that was begun; nil if none was
	salt record.Salt
	buf  []byte // not yet written
	off  int64  // where buf goes
	sum  uint32 // of what precedes buf in the file
}

const (
	// writeBuffer is how many bytes are collected before they are written and synced, of a
	// snapshot that is made or that comes in. A sync of the entry log that the disk is asked
	// for meanwhile waits for these bytes, and its clients with it.
	writeBuffer = 1 << 20

	// closing is what a segment's last records take.
	closing = 2 * record.SmallSize
)

// Create begins a snapshot in a directory of snapshots, which it makes if need be.
func Create(fs vfs.FS, dir string) (*Writer, error) {
	tmp, err := begin(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("begin a snapshot in %s: %w", dir, spaceError(err))
	}
	return &Writer{fs: fs, dir: dir, tmp: tmp, limit: segmentSize, seed: rand.Uint32() | 1}, nil
}

// Full writes the whole state of a job, which replaces what was written of it before. r
// and its body are not needed any more when it returns.
func (w *Writer) Full(r *journal.Record) error {
	n := r.Size()
	if !record.Valid(r) || n > entry.MaxSize {
		return fmt.Errorf("snapshot: job %d: a body of %d bytes: %w", r.ID, len(r.Body), record.ErrInvalid)
	}
	b, err := w.extend(int(n), r.ID)
	if err != nil {
		return err
	}
	w.fulls++
	record.EncodeFull(b, w.salt, r)
	return nil
}

// Update writes a later state of a job: all fields of r but Tube, TTR, Created, Body and
// Keys.
func (w *Writer) Update(r *journal.Record) error {
	if !record.ValidState(r) {
		return fmt.Errorf("snapshot: update of job %d: %w", r.ID, record.ErrInvalid)
	}
	b, err := w.extend(int(record.SizeOfUpdate(r)), r.ID)
	if err != nil {
		return err
	}
	record.EncodeUpdate(b, w.salt, r)
	return nil
}

// Delete writes the end of a job. No record of that id may follow.
func (w *Writer) Delete(id uint64) error {
	if id == 0 {
		return fmt.Errorf("snapshot: delete of job 0: %w", record.ErrInvalid)
	}
	b, err := w.extend(record.SmallSize, id)
	if err != nil {
		return err
	}
	record.EncodeSmall(b, w.salt, record.Delete, id)
	return nil
}

// Setting writes a tube's setting of dead letters, which replaces what was written of it
// before, or its end.
func (w *Writer) Setting(s *journal.Setting) error {
	if !record.ValidSetting(s) {
		return fmt.Errorf("snapshot: the setting of %q: %w", s.Tube, record.ErrInvalid)
	}
	b, err := w.extend(int(record.SettingSize(s)), 0)
	if err != nil {
		return err
	}
	record.EncodeSetting(b, w.salt, s)
	return nil
}

// Entry writes the records of an entry that was committed, behind those of all entries
// before it. It returns the entry's header, and whether it counts: not if its reign is not
// its term, nor if it is raft's own. Errors wrap those of package entry.
func (w *Writer) Entry(e *raftpb.Entry) (h entry.Header, counts bool, err error) {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return h, false, nil
	}
	if h, err = w.reader.Reset(e.GetData()); err != nil || h.Reign != e.GetTerm() {
		return h, false, err
	}
	for {
		b, err := w.reader.Next()
		if err == io.EOF {
			return h, true, nil
		}
		if err == nil {
			err = w.redo(b)
		}
		if err != nil {
			return h, true, err
		}
	}
}

// redo writes a record of an entry.
func (w *Writer) redo(b []byte) error {
	var r journal.Record
	switch record.KindOf(b) {
	case record.Full:
		record.DecodeFull(b, &r, &w.names)
		return w.Full(&r)
	case record.Update:
		record.DecodeUpdate(b, &r)
		return w.Update(&r)
	case record.Setting:
		s := record.DecodeSetting(b)
		return w.Setting(&s)
	}
	return w.Delete(record.Number(b))
}

// extend returns the place of n bytes for a record of a job, or a setting, of which the id
// is 0, to be filled at once.
func (w *Writer) extend(n int, id uint64) ([]byte, error) {
	if w.tmp == "" {
		return nil, ErrEnded
	}
	if err := w.makeRoom(int64(n)); err != nil {
		return nil, fmt.Errorf("write snapshot %s: %w", w.tmp, spaceError(err))
	}
	w.records++
	w.lastID = max(w.lastID, id)
	return w.take(n), nil
}

// makeRoom has a segment begun in which n bytes and its last records fit, and flushes
// what was collected if that is enough.
func (w *Writer) makeRoom(n int64) error {
	if w.file != nil && w.off+int64(len(w.buf))+n > w.limit-closing {
		if err := w.end(); err != nil {
			return err
		}
	}
	if w.file == nil {
		return w.beginSegment()
	}
	if len(w.buf) >= writeBuffer {
		return w.flush()
	}
	return nil
}

func (w *Writer) take(n int) []byte {
	at := len(w.buf)
	w.buf = slices.Grow(w.buf, n)[:at+n]
	return w.buf[at:]
}

func (w *Writer) beginSegment() error {
	if len(w.done) == MaxSegments {
		return ErrTooLarge
	}
	index := uint32(len(w.done)) + 1
	file, err := w.fs.Create(filepath.Join(w.tmp, record.FileName(index)), 0)
	if err != nil {
		return err
	}
	w.file, w.off, w.sum = file, 0, 0
	h := record.Header{
		Seed: w.seed, Index: index, Oldest: 1, Base: w.base, Synced: w.base,
		LastID: w.lastID, Created: time.Now().UnixNano(),
	}
	w.salt = h.Salt()
	h.Encode(w.take(record.HeaderSize))
	return nil
}

// flush writes what was collected, and makes it durable.
func (w *Writer) flush() error {
	if _, err := w.file.WriteAt(w.buf, w.off); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.off += int64(len(w.buf))
	w.sum = sum(w.sum, w.buf)
	w.buf = w.buf[:0]
	if cap(w.buf) > 4*writeBuffer {
		w.buf = nil
	}
	return nil
}

// end seals the segment that was begun and makes it durable.
func (w *Writer) end() error {
	record.EncodeSmall(w.take(record.SmallSize), w.salt, record.End, w.lastID)
	if err := w.flush(); err != nil {
		return err
	}
	file := w.file
	w.file = nil
	w.done = append(w.done, segment{w.off, w.sum})
	w.base += journal.Pos(w.off)
	return file.Close()
}

// endLast seals the last segment. There is one even without jobs, because it tells which
// ids were used. Its stop record vouches for all before: a reader of the binlog takes
// nothing there for torn.
func (w *Writer) endLast(highest uint64) error {
	if w.file == nil {
		if err := w.beginSegment(); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	record.EncodeSmall(w.take(record.SmallSize), w.salt, record.Stop, uint64(w.base)+uint64(w.off))
	w.lastID = highest
	return w.end()
}

// Finish makes the snapshot durable under its name: its files, then its directory, then
// the directory of all snapshots. The caller has set the fields of m but Records, Fulls
// and Bytes. It returns the whole description and the path, for SetCurrent. If there is a
// snapshot of the same entry already, it returns that one's. After an error nothing is
// left; a later snapshot may be tried.
func (w *Writer) Finish(m Meta) (Meta, string, error) {
	if w.tmp == "" {
		return Meta{}, "", ErrEnded
	}
	tmp := w.tmp
	if err := w.complete(&m); err != nil {
		return Meta{}, "", errors.Join(fmt.Errorf("finish snapshot %s: %w", tmp, spaceError(err)), w.Abort())
	}
	w.tmp, w.buf = "", nil
	m, path, err := publish(w.fs, w.dir, tmp, &m)
	if err != nil {
		return Meta{}, "", fmt.Errorf("finish snapshot %s: %w", tmp, spaceError(err))
	}
	return m, path, nil
}

// complete ends the segments and describes them in m.
func (w *Writer) complete(m *Meta) error {
	if wrong := m.wrong(); wrong != "" {
		return errors.New("impossible: " + wrong)
	}
	if m.Highest < w.lastID {
		return fmt.Errorf("the highest id is said to be %d, but there is a record of job %d", m.Highest, w.lastID)
	}
	if err := w.endLast(m.Highest); err != nil {
		return err
	}
	m.Records, m.Fulls, m.Bytes, m.segments = w.records, w.fulls, int64(w.base), w.done
	return nil
}

// Abort removes what was written. After Finish it does nothing.
func (w *Writer) Abort() error {
	if w.tmp == "" {
		return nil
	}
	var err error
	if w.file != nil {
		err = w.file.Close()
	}
	err = errors.Join(err, removeAll(w.fs, w.tmp))
	w.file, w.buf, w.tmp = nil, nil, ""
	if err != nil {
		return fmt.Errorf("abort a snapshot: %w", err)
	}
	return nil
}

// WriteInitial writes the snapshot without jobs that all founders of a cluster begin
// with, and makes it the current one. What an earlier call has left is replaced, so that a
// founding can be tried again. An error that wraps fs.ErrExist tells that the current
// snapshot is of a later entry: this node has founded already.
func WriteInitial(fs vfs.FS, dir string, m Meta) error {
	if err := removeInitial(fs, dir, &m); err != nil {
		return fmt.Errorf("initial snapshot in %s: %w", dir, err)
	}
	w, err := Create(fs, dir)
	if err != nil {
		return err
	}
	m, _, err = w.Finish(m)
	if err != nil {
		return err
	}
	return SetCurrent(fs, dir, &m)
}

// removeInitial removes the pointer, and then the snapshot that is to be written again.
func removeInitial(fs vfs.FS, dir string, m *Meta) error {
	p, err := readPointer(fs, dir)
	switch {
	case errors.Is(err, ErrNone):
	case err != nil:
		return err
	case p.index > m.Index:
		return iofs.ErrExist
	default:
		if err := fs.Remove(filepath.Join(dir, pointerName)); err != nil {
			return err
		}
		if err := vfs.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	if err := tidy(fs, dir, ""); err != nil {
		return err
	}
	name := nameOf(m.Index, m.Term)
	if there, err := exists(fs, filepath.Join(dir, name)); err != nil || !there {
		if errors.Is(err, iofs.ErrNotExist) {
			return nil
		}
		return err
	}
	return remove(fs, dir, name)
}
