package convert

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

const (
	buildDir = "takeover.tmp"
	doneDir  = "takeover.done"
	planName = "plan"
)

// Takeover replaces the log in a directory, which is locked, by another one that
// has the same jobs. The old files are kept in a sub-directory.
type Takeover struct {
	FS          vfs.FS
	Dir         string
	SegmentSize int64                  // of the new segments, bytes, unless a record is larger
	SkipDamaged bool                   // leave out what is damaged of beanstalkd's log
	Progress    func(inspect.Progress) // may be nil
}

// Salvaged tells what came over from a damaged log.
type Salvaged struct {
	Aside   string // path of the directory that has the old files now
	Jobs    int64
	Lost    int64 // jobs that are known to have been there, and are gone
	Skipped int64 // bytes that were no sound records
}

// Salvage replaces damaged segments by new ones with what is sound in them. The
// idGap ids behind the greatest that was found are left out, because the records
// of the last ids may be among those that are damaged.
func (t *Takeover) Salvage(s *inspect.Survey, idGap uint64) (*Salvaged, error) {
	if s.Seed == 0 {
		return nil, errors.New("no segment has a sound header: nothing can be read")
	}
	w := &sealed.Writer{Seed: s.Seed}
	var old []string
	for _, f := range s.Files {
		old = append(old, filepath.Base(f.Name))
		w.Index = f.Index + 1
		size := journal.Pos(f.Size+7) &^ 7
		if f.Wrong == nil {
			w.Base = max(w.Base, f.Header.Base+size)
		} else {
			w.Base += size
		}
	}
	for _, f := range s.Spare {
		old = append(old, filepath.Base(f.Name))
		w.Index = f.Index + 1
	}
	// Compaction removes the oldest file first, but may fail to: then the deletes of
	// that file's jobs have gone with a later one.
	files := s.Files
	for i := len(files) - 1; i > 0; i-- {
		if next := files[i-1].Index + 1; next < files[i].Index && next < s.Named {
			files = files[i:]
			break
		}
	}
	js, skipped, lost, err := readSegments(t.FS, files, s.Seed, inspect.NewMeter("salvage", s.Bytes(), t.Progress))
	if err != nil {
		return nil, err
	}
	js.lastID += idGap
	report := &Salvaged{Lost: lost, Skipped: skipped}
	for _, j := range js.byID {
		if j.State != journal.Deleted {
			report.Jobs++
		}
	}
	report.Aside, err = t.replaceBy(js, "damaged", old, w)
	if err != nil {
		return nil, err
	}
	return report, nil
}

// Import ends a takeover that a crash has interrupted, and replaces a log of
// beanstalkd's by segments if that is what the directory has. It returns nil if
// there is none.
func (t *Takeover) Import() (*Imported, error) {
	es, err := t.FS.List(t.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		switch {
		case e.Dir && e.Name == doneDir:
			if err := t.moveIn(); err != nil {
				return nil, fmt.Errorf("end the takeover: %w", err)
			}
			return nil, nil
		case e.Dir && e.Name == buildDir:
			if err := t.removeDir(filepath.Join(t.Dir, buildDir)); err != nil {
				return nil, err
			}
		}
	}
	theirs := filesOf(es)
	if len(theirs.numbers) == 0 {
		return nil, nil
	}
	if theirs.hasSegments {
		return nil, ErrMixed
	}
	js, report, err := readTheirs(t.FS, t.Dir, theirs.numbers, t.SkipDamaged,
		inspect.NewMeter("import", theirs.bytes, t.Progress))
	if err != nil {
		return nil, fmt.Errorf("import beanstalkd's log: %w", err)
	}
	var old []string
	for _, name := range js.files {
		old = append(old, filepath.Base(name))
	}
	report.Aside, err = t.replaceBy(js, "beanstalkd", old, &sealed.Writer{Index: 1, Seed: rand.Uint32() | 1})
	if err != nil {
		return nil, fmt.Errorf("import beanstalkd's log: %w", err)
	}
	return report, nil
}

// replaceBy makes jobs the directory's log, and moves the old files into a new
// sub-directory, whose path it returns.
func (t *Takeover) replaceBy(js *jobs, aside string, old []string, w *sealed.Writer) (string, error) {
	build := filepath.Join(t.Dir, buildDir)
	if err := t.FS.Mkdir(build); err != nil {
		return "", err
	}
	w.FS, w.Dir, w.Limit, w.LastID, w.Boot = t.FS, build, t.SegmentSize, js.lastID, t.FS.Boot()
	err := js.write(w)
	if err == nil {
		aside, err = t.plan(build, aside, old)
	}
	if err != nil {
		return "", errors.Join(err, w.Abandon(), t.removeDir(build))
	}
	if err := t.FS.Rename(build, filepath.Join(t.Dir, doneDir)); err != nil {
		return "", err
	}
	if err := vfs.SyncDir(t.FS, t.Dir); err != nil {
		return "", err
	}
	return filepath.Join(t.Dir, aside), t.moveIn()
}

// plan writes down what is to be done once the new log counts, and returns the
// name of the directory for the old files.
func (t *Takeover) plan(build, aside string, old []string) (string, error) {
	es, err := t.FS.List(t.Dir)
	if err != nil {
		return "", err
	}
	name := aside
	for n := 2; slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", aside, n)
	}
	text := strings.Join(append([]string{name}, old...), "\n") + "\n"
	if err := vfs.WriteFile(t.FS, filepath.Join(build, planName), []byte(text)); err != nil {
		return "", err
	}
	return name, vfs.SyncDir(t.FS, build)
}

// moveIn does what the plan says. All of it may have been done before.
func (t *Takeover) moveIn() error {
	done := filepath.Join(t.Dir, doneDir)
	es, err := t.FS.List(done)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == planName }) {
		plan, err := readFile(t.FS, filepath.Join(done, planName))
		if err != nil {
			return err
		}
		lines := strings.Fields(plan)
		if len(lines) == 0 {
			return fmt.Errorf("%s is empty", filepath.Join(done, planName))
		}
		aside := filepath.Join(t.Dir, lines[0])
		if err := t.FS.Mkdir(aside); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := vfs.SyncDir(t.FS, t.Dir); err != nil {
			return err
		}
		for _, name := range lines[1:] {
			err := t.FS.Rename(filepath.Join(t.Dir, name), filepath.Join(aside, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := errors.Join(vfs.SyncDir(t.FS, aside), vfs.SyncDir(t.FS, t.Dir)); err != nil {
			return err
		}
		for _, e := range es {
			if e.Name != planName {
				if err := t.FS.Rename(filepath.Join(done, e.Name), filepath.Join(t.Dir, e.Name)); err != nil {
					return err
				}
			}
		}
		if err := errors.Join(vfs.SyncDir(t.FS, t.Dir), vfs.SyncDir(t.FS, done)); err != nil {
			return err
		}
	}
	return t.removeDir(done)
}

func readFile(fs vfs.FS, name string) (string, error) {
	file, err := fs.OpenRead(name)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, math.MaxInt64))
	return string(b), errors.Join(err, file.Close())
}

// removeDir removes a sub-directory and its files.
func (t *Takeover) removeDir(dir string) error {
	return errors.Join(vfs.RemoveAll(t.FS, dir), vfs.SyncDir(t.FS, t.Dir))
}
