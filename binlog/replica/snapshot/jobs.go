package snapshot

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"path/filepath"
	"slices"

	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// JobsName is the file of the jobs that have their bodies in body files.
const JobsName = "jobs"

// JobsHeader stands for the segment of which that file is the index. Nobody changes it.
var JobsHeader = record.Header{Index: 1, Oldest: 1}

// jobsWriter writes that file. The zero value has none.
type jobsWriter struct {
	index *index.Builder // nil before the first job
	out   vfs.Sequential
	head  []byte
	files map[uint32]bool // that hold bodies
	last  uint64          // the highest id
}

// cold writes a job whose body is in a body file.
func (w *Writer) cold(r *journal.Record) error {
	place := r.Absent.Place
	switch {
	case w.tmp == "":
		return ErrEnded
	case !record.Valid(r) || r.BodySize() == 0 || !place.Known():
		return fmt.Errorf("snapshot: job %d: a body at %v: %w", r.ID, place, record.ErrInvalid)
	}
	j := &w.jobs
	if j.index == nil {
		j.index, j.files, j.out.Gentle = index.NewBuilder(&JobsHeader, 0), map[uint32]bool{}, true
		if err := j.out.Create(w.fs, filepath.Join(w.tmp, JobsName)); err != nil {
			return fmt.Errorf("write snapshot %s: %w", w.tmp, spaceError(err))
		}
	}
	j.head = record.EncodeHead(j.head[:0], r)
	w.wrote(j.head)
	j.last = max(j.last, r.ID)
	j.files[place.Segment] = true
	j.index.In(place.Segment)
	j.index.Add(int64(place.Offset)*8, j.head)
	if b := j.index.Take(); b != nil {
		copy(j.out.Extend(len(b)), b)
		index.Free(b)
		if err := j.out.Spill(); err != nil {
			return fmt.Errorf("write snapshot %s: %w", w.tmp, spaceError(err))
		}
	}
	return nil
}

// Files are the numbers of the body files in which jobs have their bodies that were written so far, in order.
func (w *Writer) Files() []uint32 { return slices.Sorted(maps.Keys(w.jobs.files)) }

// finish ends the file and describes it in m, which names the body files.
func (j *jobsWriter) finish(m *Meta) error {
	m.jobs = sealed.Segment{}
	is := func(n uint32, f spill.File) bool { return n == f.Number }
	if !slices.EqualFunc(slices.Sorted(maps.Keys(j.files)), m.Files, is) {
		return fmt.Errorf("its jobs have bodies in %d files, and %d are named", len(j.files), len(m.Files))
	}
	if j.index == nil {
		return nil
	}
	b := j.index.Finish(0, 0)
	copy(j.out.Extend(len(b)), b)
	m.jobs.Size = j.out.Size()
	var err error
	m.jobs.Sum, err = j.out.Finish()
	return err
}

// cold tells the jobs that have their bodies in body files. Whatever segments say of them is later.
func (r *reader) cold(done func(bytes int64) error) (err error) {
	name := filepath.Join(r.path, JobsName)
	damage := func(what string, err error) error { return &DamageError{File: name, What: what, Err: err} }
	file, err := r.fs.OpenRead(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return damage("the file is missing", nil)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, want := int64(0), r.meta.jobs
	if size, err = file.Size(); err != nil {
		return err
	}
	if size != want.Size {
		return damage(fmt.Sprintf("the file has %d bytes, not %d", size, want.Size), nil)
	}
	r.data = summed{file: file}
	x, err := index.Open(&r.data, size, &JobsHeader)
	if err == nil {
		err = x.Read(index.States, r.teller(x, done))
	}
	r.decoder.rec.Absent = nil
	if errors.Is(err, index.ErrBad) {
		return damage(err.Error(), nil)
	}
	if err != nil {
		return err
	}
	rest := make([]byte, size-r.data.next)
	if n, err := r.data.ReadAt(rest, r.data.next); n < len(rest) {
		return damage("it cannot be read", err)
	}
	if r.data.sum != want.Sum {
		return damage("the file has not the checksum that the description says", nil)
	}
	return nil
}

// coldStep is how many bytes of the file are read before that is told.
const coldStep = 1 << 20

// teller tells jobs that an index has.
func (r *reader) teller(x *index.Index, done func(bytes int64) error) func(int64, []byte) error {
	fetch, told := journal.Fetch{}, int64(0)
	d := &r.decoder
	d.rec.Absent = &fetch
	return func(offset int64, b []byte) error {
		id := record.Number(b)
		if record.KindOf(b) != record.Full || id == 0 || id > r.meta.Highest {
			return fmt.Errorf("%w: a %v record of job %d", index.ErrBad, record.KindOf(b), id)
		}
		size := record.DecodeHead(b, &d.rec, &d.names)
		fetch = journal.Fetch{ID: id, Place: journal.Place{Segment: x.File(), Offset: uint32(offset / 8)}, Size: size}
		d.turn()
		if _, err := r.to.Full(&d.rec, fetch.Place); err != nil || done == nil || r.data.next-told < coldStep {
			return err
		}
		n := r.data.next - told
		told += n
		return done(n)
	}
}

// filler is a Standby that hands jobs on with their bodies.
type filler struct {
	Standby
	bodies *spill.Reader
	lost   func(error) error
}

// Filled returns a Standby that takes jobs whose bodies are in body files, and tells them to another one with their
// bodies. lost is told a *DamageError of a body that cannot be read: the job is left out, unless it returns an error.
func Filled(to Standby, bodies *spill.Reader, lost func(error) error) Standby {
	return filler{to, bodies, lost}
}

// Full implements Standby.
func (f filler) Full(r *journal.Record, place journal.Place) (journal.Former, error) {
	if r.Absent == nil {
		return f.Standby.Full(r, place)
	}
	body, err := f.bodies.Body(r.Absent)
	if _, damaged := errors.AsType[*DamageError](err); damaged {
		return journal.Former{}, f.lost(err)
	}
	if err != nil {
		return journal.Former{}, err
	}
	x := *r
	x.Absent, x.Body = nil, body
	return f.Standby.Full(&x, journal.Place{Segment: 1})
}

// Plain reads a snapshot that has jobs with their bodies in body files, and returns the description that it has with
// these bodies in its segments, for SendPlain. All of it is read.
func Plain(fs vfs.FS, path string, bodies *spill.Reader) (Meta, error) {
	return plain(fs, path, bodies, io.Discard)
}

// SendPlain is Send of a snapshot with that description of Plain's.
func SendPlain(fs vfs.FS, path string, m *Meta, bodies *spill.Reader, w io.Writer) error {
	out := summedWriter{w: w}
	_, err := out.Write(m.encode())
	var sent Meta
	if err == nil {
		sent, err = plain(fs, path, bodies, &out)
	}
	if err == nil && sent.sum != m.sum {
		err = errors.New("it was sent as another one than before")
	}
	if err == nil {
		err = out.trailer()
	}
	if err != nil {
		return fmt.Errorf("send snapshot %s: %w", path, err)
	}
	return nil
}

// plain writes the segments of a snapshot with all bodies. They are the same each time.
func plain(fs vfs.FS, path string, bodies *spill.Reader, out io.Writer) (Meta, error) {
	m, err := readMeta(fs, path)
	if err != nil {
		return m, err
	}
	w := &Writer{tmp: path, out: sealed.Writer{
		FS: pipe{out: out}, Limit: segmentSize, Seed: m.sum | 1, Index: 1, At: max(m.Stamp, 1),
	}}
	c := w.Copier()
	if err := Load(fs, path, Filled(c, bodies, func(err error) error { return err }), nil); err != nil {
		return m, err
	}
	if err := c.Err(); err != nil {
		return m, err
	}
	m.Files = nil
	if err := w.complete(&m); err != nil {
		return m, err
	}
	m.encode() // notes its checksum
	return m, nil
}

// pipe is a file system of one file after the other, which are written to out.
type pipe struct {
	vfs.FS
	out io.Writer
}

func (p pipe) Create(string, int64) (vfs.File, error) { return pipeFile{out: p.out}, nil }

// pipeFile is a file that is written from its start to its end.
type pipeFile struct {
	vfs.File
	out io.Writer
}

func (p pipeFile) WriteAt(b []byte, _ int64) (int, error) { return p.out.Write(b) }
func (p pipeFile) Sync() error                            { return nil }
func (p pipeFile) Close() error                           { return nil }
