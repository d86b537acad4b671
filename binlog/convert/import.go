package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// ErrMixed tells that a directory holds both segments of this log and files of
// beanstalkd, and so does not tell which of them is the newer.
var ErrMixed = errors.New("the directory holds two logs: " + record.FilePrefix + "* and binlog.*: " +
	"move away the files of the one that is not to be used")

// Imported tells what came over from a log of beanstalkd's.
type Imported struct {
	Files  int
	Aside  string // path of the directory that has the files now
	LastID uint64 // the greatest id that the files tell of

	Ready, Delayed, Buried int64 // jobs
	Tubes                  int
	Bytes                  int64 // of the bodies

	Skipped int64    // bytes of damaged files that were left out
	Notes   []string // what was not as it should be
}

func (i *Imported) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// theirFiles are the files of beanstalkd's in a directory.
type theirFiles struct {
	numbers     []int // ascending
	bytes       int64
	hasSegments bool // there are segments too
}

func filesOf(es []vfs.Entry) theirFiles {
	var t theirFiles
	for _, e := range es {
		if e.Dir {
			continue
		}
		if n, ok := beanstalkd.FileNumber(e.Name); ok {
			t.numbers = append(t.numbers, n)
			t.bytes += e.Size
		}
		t.hasSegments = t.hasSegments || record.FileIndex(e.Name) != 0
	}
	slices.Sort(t.numbers)
	return t
}

// Verify reads all of a log of beanstalkd's, changes nothing, and writes what it
// has found, for people to read. It returns false if the directory has no such
// log, or segments besides. A *record.DamageError tells that a server would not
// start on it.
func Verify(w io.Writer, fs vfs.FS, dir string) (theirs bool, err error) {
	es, err := fs.List(dir)
	if err != nil {
		return false, err
	}
	t := filesOf(es)
	if len(t.numbers) == 0 || t.hasSegments {
		return false, nil
	}
	_, r, err := readTheirs(fs, dir, t.numbers, false, inspect.NewMeter("", 0, nil))
	if err != nil {
		return true, err
	}
	_, err = fmt.Fprintf(w, "a log of beanstalkd's, which a server will import\n"+
		"%d files, %d tubes, %d ready, %d delayed and %d buried jobs with %d bytes, last id %d\n",
		r.Files, r.Tubes, r.Ready, r.Delayed, r.Buried, r.Bytes, r.LastID)
	for _, n := range r.Notes {
		if err == nil {
			_, err = fmt.Fprintln(w, n)
		}
	}
	return true, err
}

// readTheirs reads the files of beanstalkd's log.
func readTheirs(fs vfs.FS, dir string, numbers []int, skip bool, m *inspect.Meter) (*jobs, *Imported, error) {
	g := &theirReader{
		jobs:    jobs{fs: fs, byID: map[uint64]*job{}},
		report:  &Imported{Files: len(numbers)},
		meter:   m,
		skip:    skip,
		buriers: map[uint64]burial{},
	}
	for i, n := range numbers {
		name := filepath.Join(dir, beanstalkd.FileName(n))
		if i > 0 && numbers[i-1] != n-1 {
			g.report.note("%s is the first file after a gap: files are missing", name)
		}
		g.files = append(g.files, name)
		if err := g.read(int32(i), name); err != nil {
			return nil, nil, err
		}
	}
	m.End()
	g.rankBurials()
	g.count()
	return &g.jobs, g.report, nil
}

// theirReader is the state of readTheirs.
type theirReader struct {
	jobs
	report  *Imported
	meter   *inspect.Meter
	skip    bool
	names   record.Names
	records uint64              // so far
	torn    *record.DamageError // the end of a file, which must be the last one that has records

	// buriers has, for each buried job, the first record that told of its last
	// burial: a full record that compaction has written later does not tell the
	// order.
	buriers map[uint64]burial
}

type burial struct {
	recordNumber uint64 // the number of the record
	buries       uint32 // the job's burials then
}

func (g *theirReader) read(i int32, name string) (err error) {
	file, err := g.fs.OpenRead(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return err
	}
	r, err := beanstalkd.NewReader(file, size)
	var e beanstalkd.Entry
	last := int64(0)
	for err == nil {
		if err = r.Next(&e); err != nil {
			break
		}
		last = e.Offset
		g.meter.Add(0)
		err = g.take(i, &e)
	}
	g.meter.Done += size
	var (
		torn *beanstalkd.TornError
		bad  *beanstalkd.FormatError
		lost *record.DamageError
	)
	switch {
	case err == io.EOF:
		return nil
	case errors.As(err, &torn):
		g.report.note("%s: the end is torn: %v", name, torn)
		if g.torn == nil {
			g.torn = &record.DamageError{
				File: name, Offset: torn.Offset, What: torn.What + ", and later files were written: deletes may be lost",
			}
		}
		return nil
	case errors.As(err, &bad) && g.skip:
		g.report.note("%s: damaged, the rest of %d bytes is left out: %v", name, size-bad.Offset, bad)
		g.report.Skipped += size - bad.Offset
		return nil
	case errors.As(err, &bad):
		return &record.DamageError{File: name, Offset: bad.Offset, What: bad.What, Err: bad.Err}
	case errors.As(err, &lost):
		return err
	}
	return fmt.Errorf("%s: after offset %d: %w", name, last, err)
}

func (g *theirReader) take(file int32, e *beanstalkd.Entry) error {
	if g.torn != nil && !g.skip {
		return g.torn
	}
	g.records++
	g.lastID = max(g.lastID, e.ID)
	j := g.byID[e.ID]
	if e.State == beanstalkd.Invalid {
		delete(g.byID, e.ID)
		delete(g.buriers, e.ID)
		return nil
	}
	if e.State == beanstalkd.Buried {
		if b, ok := g.buriers[e.ID]; !ok || b.buries != e.Buries {
			g.buriers[e.ID] = burial{g.records, e.Buries}
		}
	} else {
		delete(g.buriers, e.ID)
	}
	if j == nil && e.Tube == nil {
		// Its full record was in a file that is gone, so that the job is deleted
		// or comes again further on.
		return nil
	}
	if j != nil && int32(j.size)+2 != e.BodySize {
		return &beanstalkd.FormatError{Offset: e.Offset, What: fmt.Sprintf("the size of job %d has changed", e.ID)}
	}
	if j == nil {
		j = &job{Record: journal.Record{Tube: g.names.Get(e.Tube)}, size: e.BodySize - 2}
		g.byID[e.ID] = j
	}
	if e.Tube != nil {
		j.file, j.body = file, e.Body
	}
	j.Record = journal.Record{
		ID: e.ID, State: journal.Ready, Pri: e.Pri, Delay: uint32(e.Delay / 1e9), TTR: uint32(e.TTR / 1e9),
		Created: e.Created, Reserves: e.Reserves, Timeouts: e.Timeouts, Releases: e.Releases,
		Buries: e.Buries, Kicks: e.Kicks, Tube: j.Tube,
	}
	j.Attempts = j.UsualAttempts()
	switch e.State {
	case beanstalkd.Delayed:
		j.State, j.Due = journal.Delayed, e.Deadline
	case beanstalkd.Buried:
		j.State = journal.Buried
	}
	return nil
}

// rankBurials numbers the buried jobs in their order.
func (g *theirReader) rankBurials() {
	var buried []*job
	for id, j := range g.byID {
		if j.State == journal.Buried {
			j.burial = g.buriers[id].recordNumber
			buried = append(buried, j)
		}
	}
	slices.SortFunc(buried, func(a, b *job) int { return cmp.Compare(a.burial, b.burial) })
	for i, j := range buried {
		j.BuryOrder = uint64(i + 1)
	}
}

func (g *theirReader) count() {
	tubes := map[string]bool{}
	for _, j := range g.byID {
		tubes[j.Tube] = true
		g.report.Bytes += int64(j.size)
		switch j.State {
		case journal.Ready:
			g.report.Ready++
		case journal.Delayed:
			g.report.Delayed++
		case journal.Buried:
			g.report.Buried++
		}
	}
	g.report.Tubes = len(tubes)
	g.report.LastID = g.lastID
}
