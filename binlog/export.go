package binlog

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"trellis/binlog/beanstalkd"
	"trellis/binlog/vfs"
)

// Exported tells what Export has written.
type Exported struct {
	Files   int
	Jobs    int64
	LastID  uint64
	MaxBody int // bytes

	// MaxJobSize is what beanstalkd's option -z must be at least: when it reads its
	// log it counts the end of a body, and throws away the rest of a file that has
	// a larger one.
	MaxJobSize int
}

// exportFile is the size of beanstalkd's own files, unless it is told otherwise.
const exportFile = 10 << 20

// Export writes the jobs of the log in a directory that no server uses as a log
// of beanstalkd's, version 7, into another directory. That must exist and have no
// such log. Beanstalkd counts each burial of a buried job once more whenever it
// reads its log; the counts are written as they are.
func Export(dir, to string) (*Exported, error) { return export(vfs.OS{}, dir, to) }

func export(fs vfs.FS, dir, to string) (_ *Exported, err error) {
	for _, d := range []string{dir, to} {
		lock, err := lockDir(fs, d)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
	}
	es, err := fs.List(to)
	if err != nil {
		return nil, err
	}
	if numbers, _, _ := foreignFiles(es); len(numbers) > 0 {
		return nil, fmt.Errorf("%s has a log of beanstalkd's already: %s", to, beanstalkd.FileName(numbers[0]))
	}
	s, err := inspect(fs, dir, nil)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	if len(s.segs) == 0 {
		return nil, fmt.Errorf("log directory %s: there is no log", dir)
	}
	f, rest, err := gather(fs, s.sound(), s.seed, &meter{})
	if err == nil && rest.Skipped > 0 {
		err = errors.New("what was sound a moment ago cannot be read now")
	}
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	f.lastID = max(f.lastID, s.lastID)
	x := &exporter{fs: fs, dir: to, report: &Exported{LastID: f.lastID}}
	// Beanstalkd takes the order of burials from that of the records.
	jobs := f.sorted()
	buried := slices.DeleteFunc(slices.Clone(jobs), func(j *foundJob) bool { return j.State != Buried })
	slices.SortFunc(buried, func(a, b *foundJob) int { return cmp.Compare(a.BuryOrder, b.BuryOrder) })
	jobs = slices.DeleteFunc(jobs, func(j *foundJob) bool { return j.State == Buried })
	err = f.each(append(jobs, buried...), x.add)
	if err == nil {
		err = x.lastID()
	}
	if err == nil {
		err = x.finish()
	}
	if err == nil {
		err = vfs.SyncDir(fs, to)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("export to %s: %w", to, err), x.remove())
	}
	x.report.MaxJobSize = x.report.MaxBody + 2
	return x.report, nil
}

// sound are the segments as far as they are sound.
func (s *survey) sound() []segmentFile {
	var fs []segmentFile
	for _, seg := range s.segs {
		fs = append(fs, segmentFile{index: seg.index, name: seg.name, size: seg.used, header: seg.header})
	}
	return fs
}

type exporter struct {
	fs     vfs.FS
	dir    string
	report *Exported
	maxID  uint64

	fileWriter
}

func (x *exporter) add(r *Record) error {
	j := beanstalkd.Job{
		ID: r.ID, Pri: r.Pri, Delay: int64(r.Delay) * 1e9, TTR: int64(max(r.TTR, 1)) * 1e9,
		Created: r.Created, State: beanstalkd.State(r.State),
		Reserves: r.Reserves, Timeouts: r.Timeouts, Releases: r.Releases, Buries: r.Buries, Kicks: r.Kicks,
	}
	if r.State == Delayed {
		j.Deadline = r.Due
	}
	x.report.Jobs++
	x.report.MaxBody = max(x.report.MaxBody, len(r.Body))
	x.maxID = max(x.maxID, r.ID)
	return x.full(&j, r.Tube, r.Body)
}

func (x *exporter) full(j *beanstalkd.Job, tube string, body []byte) error {
	if x.file != nil && x.size()+beanstalkd.FullSize(tube, len(body)) > exportFile {
		if err := x.finish(); err != nil {
			return err
		}
	}
	if x.file == nil {
		if err := x.create(x.fs, filepath.Join(x.dir, beanstalkd.FileName(x.report.Files+1))); err != nil {
			return err
		}
		x.report.Files++
		x.buf = beanstalkd.AppendVersion(x.buf)
	}
	x.buf = beanstalkd.AppendFull(x.buf, j, tube, body)
	return x.spill()
}

// lastID writes a job that has the greatest id and is deleted at once, or else
// beanstalkd would give ids again that were used.
func (x *exporter) lastID() error {
	if x.report.LastID <= x.maxID {
		return nil
	}
	j := beanstalkd.Job{ID: x.report.LastID, TTR: 1e9, BodySize: 2, State: beanstalkd.Ready}
	if err := x.full(&j, "default", nil); err != nil {
		return err
	}
	j.State = beanstalkd.Invalid
	x.buf = beanstalkd.AppendShort(x.buf, &j)
	return nil
}

// remove removes what was written.
func (x *exporter) remove() error {
	err := x.abandon()
	for n := range x.report.Files {
		err = errors.Join(err, x.fs.Remove(filepath.Join(x.dir, beanstalkd.FileName(n+1))))
	}
	return err
}
