package snapshot

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

// Writer writes a new snapshot. It is for one goroutine. After an error of any method
// but Abort only Abort is of use. Its memory is that of a sealed.Writer.
type Writer struct {
	fs  vfs.FS
	dir string // of all snapshots
	tmp string // path of this one until it is finished; "" afterwards

	out     sealed.Writer
	records uint64
	fulls   uint64
	version uint32 // of entries that may have what was written; 0 for the first
	jobs    jobsWriter

	reader  entry.Reader // of Entry, as what follows
	decoder Decoder
	copier  *Copier
}

// Create begins a snapshot in a directory of snapshots, which it makes if need be.
func Create(fs vfs.FS, dir string) (*Writer, error) {
	tmp, err := begin(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("begin a snapshot in %s: %w", dir, spaceError(err))
	}
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails
	w := &Writer{
		fs: fs, dir: dir, tmp: tmp,
		out: sealed.Writer{
			FS: fs, Dir: tmp, Limit: segmentSize, Seed: binary.LittleEndian.Uint32(seed[:]) | 1, Index: 1, Gentle: true,
		},
	}
	w.copier = w.Copier()
	return w, nil
}

// Full writes the whole state of a job, which replaces what was written of it before. r
// and its body are not needed any more when it returns. If the body is in a body file, of which r.Absent tells, nothing
// was written of that job before; Files then has the number of the file.
func (w *Writer) Full(r *journal.Record) error {
	if r.Absent != nil {
		return w.cold(r)
	}
	n := r.Size()
	if !record.Valid(r) || n > entry.MaxSize {
		return fmt.Errorf("snapshot: job %d: a body of %d bytes: %w", r.ID, len(r.Body), record.ErrInvalid)
	}
	b, salt, err := w.extend(n, r.ID)
	if err != nil {
		return err
	}
	w.fulls++
	record.EncodeFull(b, salt, r)
	w.wrote(b)
	return nil
}

// wrote notes which version of entries may have a record.
func (w *Writer) wrote(b []byte) { w.version = max(w.version, uint32(record.Version(b))) }

// Update writes a later state of a job: all fields of r but Tube, TTR, Created, Body and
// Keys.
func (w *Writer) Update(r *journal.Record) error {
	if !record.ValidState(r) {
		return fmt.Errorf("snapshot: update of job %d: %w", r.ID, record.ErrInvalid)
	}
	b, salt, err := w.extend(record.SizeOfUpdate(r), r.ID)
	if err != nil {
		return err
	}
	record.EncodeUpdate(b, salt, r)
	w.wrote(b)
	return nil
}

// Delete writes the end of a job. No record of that id may follow.
func (w *Writer) Delete(id uint64) error {
	if id == 0 {
		return fmt.Errorf("snapshot: delete of job 0: %w", record.ErrInvalid)
	}
	b, salt, err := w.extend(record.SmallSize, id)
	if err != nil {
		return err
	}
	record.EncodeSmall(b, salt, record.Delete, id)
	return nil
}

// Setting writes a tube's setting, which replaces what was written of it before, or its
// end.
func (w *Writer) Setting(s *journal.Setting) error {
	if !record.ValidSetting(s) {
		return fmt.Errorf("snapshot: the setting of %q: %w", s.Tube, record.ErrInvalid)
	}
	b, salt, err := w.extend(record.SettingSize(s), 0)
	if err != nil {
		return err
	}
	record.EncodeSetting(b, salt, s)
	w.wrote(b)
	return nil
}

// Hold writes a reservation that is on record, which replaces what was written of where the job
// is.
func (w *Writer) Hold(h *journal.Hold) error {
	if !h.Valid() {
		return fmt.Errorf("snapshot: the hold of job %d: %w", h.ID, record.ErrInvalid)
	}
	b, salt, err := w.extend(record.HoldSize, h.ID)
	if err != nil {
		return err
	}
	record.EncodeHold(b, salt, h)
	w.wrote(b)
	return nil
}

// Close writes the end of a session, whose jobs are ready then.
func (w *Writer) Close(session uint64) error {
	if session == 0 {
		return fmt.Errorf("snapshot: the end of session 0: %w", record.ErrInvalid)
	}
	b, salt, err := w.extend(record.SmallSize, 0)
	if err != nil {
		return err
	}
	record.EncodeSmall(b, salt, record.Close, session)
	w.wrote(b)
	return nil
}

// Numbers writes numbers of loops that were given, or are gone.
func (w *Writer) Numbers(n *journal.Numbers) error {
	if !n.Valid() {
		return fmt.Errorf("snapshot: the numbers from %d on: %w", n.First, record.ErrInvalid)
	}
	b, salt, err := w.extend(record.NumbersSize, 0)
	if err != nil {
		return err
	}
	record.EncodeNumbers(b, salt, n)
	w.wrote(b)
	return nil
}

// Entry writes the records of an entry that was committed, behind those of all entries
// before it. It returns the entry's header, and whether it counts: an entry of raft's own
// does not, nor a batch of another term than the entry's. Errors wrap those of package entry.
func (w *Writer) Entry(e *raftpb.Entry) (h entry.Header, counts bool, err error) {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return h, false, nil
	}
	if h, err = w.reader.Reset(e.GetData()); err != nil || h.Term != e.GetTerm() {
		return h, false, err
	}
	for {
		b, err := w.reader.Next()
		if err == io.EOF {
			return h, true, nil
		}
		if err == nil {
			_, err = w.decoder.Tell(b, 1, w.copier)
		}
		if err = cmp.Or(err, w.copier.err); err != nil {
			return h, true, err
		}
	}
}

// extend returns the place for a record of n bytes, to be filled at once, and its salt. The
// id is the job's, or 0 for what is not of a job.
func (w *Writer) extend(n int64, id uint64) ([]byte, record.Salt, error) {
	if w.tmp == "" {
		return nil, 0, ErrEnded
	}
	b, salt, err := w.out.Place(n)
	if err == nil && len(w.out.Sealed) >= MaxSegments {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, 0, fmt.Errorf("write snapshot %s: %w", w.tmp, spaceError(err))
	}
	w.records++
	w.out.LastID = max(w.out.LastID, id)
	return b, salt, nil
}

// Finish makes the snapshot durable under its name: its files, then its directory, then the directory of all
// snapshots. The caller has set the fields of m but Records, Fulls and Bytes, and Files if
// the Writer's are any: of the same numbers, each whole and durable. Version becomes what the records need,
// if that is more. It returns the whole description and the path, for SetCurrent. If there is a snapshot of the same
// entry already, it returns that one's. After an error nothing is left; a later snapshot may be tried.
func (w *Writer) Finish(m Meta) (Meta, string, error) {
	if w.tmp == "" {
		return Meta{}, "", ErrEnded
	}
	tmp := w.tmp
	if err := w.complete(&m); err != nil {
		return Meta{}, "", errors.Join(fmt.Errorf("finish snapshot %s: %w", tmp, spaceError(err)), w.Abort())
	}
	w.tmp, w.out = "", sealed.Writer{}
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
	m.Version = max(m.Version, w.version)
	if last := max(w.out.LastID, w.jobs.last); m.Highest < last {
		return fmt.Errorf("the highest id is said to be %d, but there is a record of job %d", m.Highest, last)
	}
	// The stop record vouches for all before: a reader of the binlog takes nothing there
	// for torn.
	if err := w.out.Stop(); err != nil {
		return err
	}
	w.out.LastID = m.Highest
	if err := w.out.Close(); err != nil {
		return err
	}
	if err := w.jobs.finish(m); err != nil {
		return err
	}
	m.Records, m.Fulls, m.Bytes, m.segments = w.records, w.fulls, int64(w.out.Base)+m.jobs.Size, w.out.Sealed
	if len(m.encode()) > maxMeta {
		return ErrTooLarge
	}
	return nil
}

// Abort removes what was written. After Finish it does nothing.
func (w *Writer) Abort() error {
	if w.tmp == "" {
		return nil
	}
	err := errors.Join(w.out.Abandon(), w.jobs.out.Abandon(), vfs.RemoveAll(w.fs, w.tmp))
	w.tmp, w.out = "", sealed.Writer{}
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
