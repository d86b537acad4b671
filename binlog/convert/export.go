package convert

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
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

	// What beanstalkd's format cannot hold, and so was left out: settings of tubes;
	// the attempts of jobs that were kicked and have failed since, which begin anew; unique
	// keys and limits of jobs, and keys of deleted ones that are not free yet; fair keys,
	// groups and expiries of jobs. Held jobs, which wait for groups, are buried: what waits for
	// others must not run before them.
	Settings                                           int
	Attempts, Unique, Limited, Tombstones, Terms, Held int64
}

// exportFile is the size of beanstalkd's own files, unless it is told otherwise.
const exportFile = 10 << 20

// Export writes the jobs of the log in a directory that no server uses as a log
// of beanstalkd's, version 7, into another directory. That must exist and have no
// such log. Beanstalkd counts each burial of a buried job once more whenever it
// reads its log; the counts are written as they are. An error that wraps
// vfs.ErrLocked tells that a server has one of the directories.
func Export(fs vfs.FS, dir, to string) (_ *Exported, err error) {
	for _, d := range []string{dir, to} {
		lock, err := vfs.LockDir(fs, d)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
	}
	es, err := fs.List(to)
	if err != nil {
		return nil, err
	}
	if theirs := filesOf(es); len(theirs.numbers) > 0 {
		return nil, fmt.Errorf("%s has a log of beanstalkd's already: %s", to, beanstalkd.FileName(theirs.numbers[0]))
	}
	js, err := soundJobs(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	x := &exporter{fs: fs, dir: to, report: &Exported{LastID: js.lastID, Settings: len(js.settings)}}
	// Beanstalkd takes the order of burials from that of the records.
	order := js.sorted()
	buried := slices.DeleteFunc(slices.Clone(order), func(j *job) bool { return j.State != journal.Buried })
	slices.SortFunc(buried, func(a, b *job) int { return cmp.Compare(a.BuryOrder, b.BuryOrder) })
	order = slices.DeleteFunc(order, func(j *job) bool { return j.State == journal.Buried })
	err = js.each(append(order, buried...), x.add)
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

// soundJobs are the jobs of a log that is sound or torn.
func soundJobs(fs vfs.FS, dir string) (*jobs, error) {
	s, err := inspect.Directory(fs, dir, nil)
	if err != nil {
		return nil, err
	}
	if len(s.Segments) == 0 {
		return nil, errors.New("there is no log")
	}
	var files []inspect.File
	for _, f := range s.Segments {
		f.Size = f.Used
		files = append(files, f)
	}
	js, skipped, _, err := readSegments(fs, files, s.Seed, inspect.NewMeter("", 0, nil))
	if err != nil {
		return nil, err
	}
	if skipped > 0 {
		return nil, errors.New("what was sound a moment ago cannot be read now")
	}
	js.lastID = max(js.lastID, s.LastID)
	return js, nil
}

// exporter writes files of beanstalkd's.
type exporter struct {
	fs     vfs.FS
	dir    string
	report *Exported
	maxID  uint64 // of the jobs so far

	out vfs.Sequential
}

func (x *exporter) add(r *journal.Record) error {
	if r.State == journal.Deleted {
		if r.Keys.Unique != "" {
			x.report.Tombstones++
		}
		return nil
	}
	if r.Keys.Unique != "" {
		x.report.Unique++
	}
	if r.Keys.Limited != "" {
		x.report.Limited++
	}
	if r.Keys.Terms != nil {
		x.report.Terms++
	}
	j := beanstalkd.Job{
		ID: r.ID, Pri: r.Pri, Delay: int64(r.Delay) * 1e9, TTR: int64(max(r.TTR, 1)) * 1e9,
		Created: r.Created, State: beanstalkd.State(r.State),
		Reserves: r.Reserves, Timeouts: r.Timeouts, Releases: r.Releases, Buries: r.Buries, Kicks: r.Kicks,
	}
	switch r.State {
	case journal.Delayed:
		j.Deadline = r.Due
	case journal.Held:
		j.State = beanstalkd.Buried
		x.report.Held++
	}
	x.report.Jobs++
	if r.Attempts != r.UsualAttempts() {
		x.report.Attempts++
	}
	x.report.MaxBody = max(x.report.MaxBody, len(r.Body))
	x.maxID = max(x.maxID, r.ID)
	return x.full(&j, r.Tube, r.Body)
}

func (x *exporter) full(j *beanstalkd.Job, tube string, body []byte) error {
	if x.out.Open() && x.out.Size()+beanstalkd.FullSize(tube, len(body)) > exportFile {
		if err := x.finish(); err != nil {
			return err
		}
	}
	if !x.out.Open() {
		if err := x.out.Create(x.fs, filepath.Join(x.dir, beanstalkd.FileName(x.report.Files+1))); err != nil {
			return err
		}
		x.report.Files++
		x.out.Buf = beanstalkd.AppendVersion(x.out.Buf)
	}
	x.out.Buf = beanstalkd.AppendFull(x.out.Buf, j, tube, body)
	return x.out.Spill()
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
	x.out.Buf = beanstalkd.AppendShort(x.out.Buf, &j)
	return nil
}

// finish makes the file, if one is open, durable.
func (x *exporter) finish() error {
	if !x.out.Open() {
		return nil
	}
	_, err := x.out.Finish()
	return err
}

// remove removes what was written.
func (x *exporter) remove() error {
	err := x.out.Abandon()
	for n := range x.report.Files {
		err = errors.Join(err, x.fs.Remove(filepath.Join(x.dir, beanstalkd.FileName(n+1))))
	}
	return err
}
