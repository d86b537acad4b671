package binlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"trellis/binlog/beanstalkd"
	"trellis/binlog/vfs"
)

// found is what the files of a log come to, when it is not replayed but turned
// into another one: each job's last state, and where its body is. It has memory
// for the jobs, not for their bodies.
type found struct {
	fs     vfs.FS
	files  []string // paths
	jobs   map[uint64]*foundJob
	lastID uint64
}

type foundJob struct {
	Record // without the body
	file   int32
	size   int32 // of the body
	body   int64 // where it starts in the file
	seen   uint64
}

// sorted returns the jobs as their bodies lie in the files.
func (f *found) sorted() []*foundJob {
	return slices.SortedFunc(maps.Values(f.jobs), func(a, b *foundJob) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.body, b.body))
	})
}

// each calls fn with all jobs, in that order or the given one, bodies included.
func (f *found) each(jobs []*foundJob, fn func(*Record) error) (err error) {
	open := int32(-1)
	var file vfs.File
	defer func() {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	var body []byte
	for _, j := range jobs {
		if j.file != open {
			if file != nil {
				if err := file.Close(); err != nil {
					return err
				}
			}
			if file, err = f.fs.OpenRead(f.files[j.file]); err != nil {
				return err
			}
			open = j.file
		}
		if cap(body) < int(j.size) {
			body = make([]byte, j.size)
		}
		body = body[:j.size]
		if n, err := file.ReadAt(body, j.body); n < len(body) {
			return fmt.Errorf("%s: body of job %d: %w", f.files[j.file], j.ID, err)
		}
		r := j.Record
		r.Body = body
		if err := fn(&r); err != nil {
			return err
		}
	}
	return nil
}

// gather reads the sound records of segments, and skips what is not.
func gather(fs vfs.FS, files []segmentFile, seed uint32, m *meter) (*found, *Salvage, error) {
	f := &found{fs: fs, jobs: map[uint64]*foundJob{}}
	s := &Salvage{}
	var deleted idSet
	orphans := map[uint64]bool{}
	var (
		sc    scanner
		tubes names
	)
	for i, sf := range files {
		f.files = append(f.files, sf.name)
		file, err := fs.OpenRead(sf.name)
		if err != nil {
			return nil, nil, err
		}
		h := sf.header
		if sf.wrong != "" {
			h = header{seed: seed, index: sf.index}
		}
		f.lastID = max(f.lastID, h.lastID)
		sc.reset(file, &h, sf.size)
		for b, gap := range sc.records() {
			if gap != nil {
				s.Skipped += gap.n
				continue
			}
			m.add(int64(len(b)))
			id := valueOf(b)
			switch kindOf(b) {
			case kindFull:
				f.lastID = max(f.lastID, id)
				if deleted.has(id) {
					continue
				}
				delete(orphans, id)
				j := &foundJob{file: int32(i)}
				decodeFull(b, &j.Record, &tubes)
				j.size = int32(len(j.Body))
				j.body = sc.off - int64(len(b)) + fullFixed + int64(len(j.Tube))
				j.Body = nil
				f.jobs[id] = j
			case kindUpdate:
				f.lastID = max(f.lastID, id)
				j := f.jobs[id]
				if j == nil {
					if !deleted.has(id) {
						orphans[id] = true
					}
					continue
				}
				was := j.Record
				decodeUpdate(b, &j.Record)
				j.Tube, j.TTR, j.Created = was.Tube, was.TTR, was.Created
			case kindDelete:
				f.lastID = max(f.lastID, id)
				deleted.add(id)
				delete(f.jobs, id)
				delete(orphans, id)
			case kindStart:
				var r startRecord
				r.decode(b)
				f.lastID = max(f.lastID, max(r.nextID, 1)-1)
			case kindEnd:
				f.lastID = max(f.lastID, id)
			}
		}
		if err := file.Close(); err != nil {
			return nil, nil, err
		}
	}
	m.tell(true)
	s.Jobs, s.Lost = int64(len(f.jobs)), int64(len(orphans))
	return f, s, nil
}

// gatherForeign reads the files of beanstalkd's log.
func gatherForeign(fs vfs.FS, dir string, numbers []int, skip bool, m *meter) (*found, *Import, error) {
	g := &foreign{
		found:   found{fs: fs, jobs: map[uint64]*foundJob{}},
		report:  &Import{Files: len(numbers)},
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
	m.tell(true)
	g.rankBurials()
	g.count()
	return &g.found, g.report, nil
}

// foreign is the state of gatherForeign.
type foreign struct {
	found
	report  *Import
	meter   *meter
	skip    bool
	tubes   names
	records uint64
	torn    *DamageError // the end of a file, which must be the last one that has records

	// buriers has the last burial that a record tells of for each job: its number,
	// and the job's count of burials then. A full record that compaction has
	// written does not tell the order.
	buriers map[uint64]burial
}

type burial struct {
	seen   uint64
	buries uint32
}

func (g *foreign) read(i int32, name string) (err error) {
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
		g.meter.add(0)
		err = g.take(i, &e)
	}
	g.meter.Done += size
	var (
		torn *beanstalkd.TornError
		bad  *beanstalkd.FormatError
		lost *DamageError
	)
	switch {
	case err == io.EOF:
		return nil
	case errors.As(err, &torn):
		g.report.note("%s: the end is torn: %v", name, torn)
		if g.torn == nil {
			g.torn = &DamageError{File: name, Offset: torn.Offset, What: torn.What + ", and later files were written: deletes may be lost"}
		}
		return nil
	case errors.As(err, &bad) && g.skip:
		g.report.note("%s: damaged, the rest of %d bytes is left out: %v", name, size-bad.Offset, bad)
		g.report.Skipped += size - bad.Offset
		return nil
	case errors.As(err, &bad):
		return &DamageError{File: name, Offset: bad.Offset, What: bad.What, Err: bad.Err}
	case errors.As(err, &lost):
		return err
	}
	return fmt.Errorf("%s: after offset %d: %w", name, last, err)
}

func (g *foreign) take(file int32, e *beanstalkd.Entry) error {
	if g.torn != nil && !g.skip {
		return g.torn
	}
	g.records++
	g.lastID = max(g.lastID, e.ID)
	j := g.jobs[e.ID]
	if e.State == beanstalkd.Invalid {
		delete(g.jobs, e.ID)
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
		j = &foundJob{Record: Record{Tube: g.tubes.get(e.Tube)}, size: e.BodySize - 2}
		g.jobs[e.ID] = j
	}
	if e.Tube != nil {
		j.file, j.body = file, e.Body
	}
	j.Record = Record{
		ID: e.ID, State: Ready, Pri: e.Pri, Delay: uint32(e.Delay / 1e9), TTR: uint32(e.TTR / 1e9),
		Created: e.Created, Reserves: e.Reserves, Timeouts: e.Timeouts, Releases: e.Releases,
		Buries: e.Buries, Kicks: e.Kicks, Tube: j.Tube,
	}
	switch e.State {
	case beanstalkd.Delayed:
		j.State, j.Due = Delayed, e.Deadline
	case beanstalkd.Buried:
		j.State = Buried
	}
	return nil
}

// rankBurials numbers the buried jobs in their order.
func (g *foreign) rankBurials() {
	var buried []*foundJob
	for id, j := range g.jobs {
		if j.State == Buried {
			j.seen = g.buriers[id].seen
			buried = append(buried, j)
		}
	}
	slices.SortFunc(buried, func(a, b *foundJob) int { return cmp.Compare(a.seen, b.seen) })
	for i, j := range buried {
		j.BuryOrder = uint64(i + 1)
	}
}

func (g *foreign) count() {
	tubes := map[string]bool{}
	for _, j := range g.jobs {
		tubes[j.Tube] = true
		g.report.Bytes += int64(j.size)
		switch j.State {
		case Ready:
			g.report.Ready++
		case Delayed:
			g.report.Delayed++
		case Buried:
			g.report.Buried++
		}
	}
	g.report.Tubes = len(tubes)
	g.report.LastID = g.lastID
}
