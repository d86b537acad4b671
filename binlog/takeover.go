package binlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trellis/binlog/beanstalkd"
	"trellis/binlog/vfs"
)

// A log that is imported or salvaged is built up in a directory of its own. The
// name of that directory then changes, and that is the moment from which the new
// log is the one that counts: the old files are moved aside, and the new ones
// into their place. A crash before that moment leaves the old log as it was; one
// after it is made up for by the next Open.
const (
	buildDir = "takeover.tmp"
	doneDir  = "takeover.done"
	planName = "plan" // what to move aside
)

// Import tells what came over from a log of beanstalkd's.
type Import struct {
	Files  int
	Aside  string // the directory that has the files now
	LastID uint64 // the greatest id that the files tell of

	Ready, Delayed, Buried int64
	Tubes                  int
	Bytes                  int64 // of the bodies

	Skipped int64    // bytes of damaged files that were left out
	Notes   []string // what was not as it should be
}

func (i *Import) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// Salvage tells what came over from a damaged log.
type Salvage struct {
	Aside   string // the directory that has the old files now
	Jobs    int64
	Lost    int64 // jobs that are known to have been there, and are gone
	Skipped int64 // bytes that were no sound records
}

// takeOver ends a move that a crash has interrupted, and imports a log of
// beanstalkd's if that is what the directory has.
func (l *Log) takeOver() error {
	es, err := l.fs.List(l.dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		switch {
		case e.Dir && e.Name == doneDir:
			if err := l.moveIn(); err != nil {
				return fmt.Errorf("end the takeover: %w", err)
			}
			return nil
		case e.Dir && e.Name == buildDir:
			if err := l.removeDir(filepath.Join(l.dir, buildDir)); err != nil {
				return err
			}
		}
	}
	numbers, total, mixed := foreignFiles(es)
	if len(numbers) == 0 {
		return nil
	}
	if mixed {
		return fmt.Errorf("%w: %s and %s: move away the files of the one that is not to be used",
			ErrMixed, prefix+"*", "binlog.*")
	}
	m := &meter{Progress: Progress{Phase: "import", Total: total}, call: l.opts.Progress}
	f, report, err := gatherForeign(l.fs, l.dir, numbers, l.opts.SkipDamaged, m)
	if err != nil {
		return fmt.Errorf("import beanstalkd's log: %w", err)
	}
	var old []string
	for _, name := range f.files {
		old = append(old, filepath.Base(name))
	}
	report.Aside, err = l.replaceBy(f, "beanstalkd", old, &builder{index: 1, seed: rand.Uint32() | 1})
	if err != nil {
		return fmt.Errorf("import beanstalkd's log: %w", err)
	}
	l.recovery.Imported = report
	for _, n := range report.Notes {
		l.log.Warn("import of beanstalkd's log: " + n)
	}
	l.log.Info("beanstalkd's log was imported",
		"files", report.Files, "kept-in", report.Aside, "tubes", report.Tubes, "ready", report.Ready,
		"delayed", report.Delayed, "buried", report.Buried, "body-bytes", report.Bytes, "last-id", report.LastID)
	return nil
}

// foreignFiles are the numbers of beanstalkd's files and how many bytes they have.
// Mixed tells that there are segments too.
func foreignFiles(es []vfs.Entry) (numbers []int, size int64, mixed bool) {
	for _, e := range es {
		if e.Dir {
			continue
		}
		if n, ok := beanstalkd.FileNumber(e.Name); ok {
			numbers = append(numbers, n)
			size += e.Size
		}
		mixed = mixed || segmentIndex(e.Name) != 0
	}
	slices.Sort(numbers)
	return numbers, size, mixed
}

// salvage replaces a damaged log by what is sound in it.
func (l *Log) salvage(s *survey) error {
	seed := s.seed
	if seed == 0 {
		return errors.New("no segment has a sound header: nothing can be read")
	}
	b := &builder{seed: seed}
	var old []string
	for _, f := range s.files {
		old = append(old, filepath.Base(f.name))
		b.index = f.index + 1
		if f.wrong == "" {
			b.base = max(b.base, f.header.base+Pos(align(f.size)))
		} else {
			b.base += Pos(align(f.size))
		}
	}
	for _, f := range s.spare {
		old = append(old, filepath.Base(f.name))
		b.index = f.index + 1
	}
	// What is not needed any more is removed in its order, but may fail to be: then
	// the deletes of a file's jobs have gone with a later one.
	files := s.files
	for i := len(files) - 1; i > 0; i-- {
		if next := files[i-1].index + 1; next < files[i].index && next < s.named {
			files = files[i:]
			break
		}
	}
	m := &meter{Progress: Progress{Phase: "salvage", Total: s.bytes()}, call: l.opts.Progress}
	f, report, err := gather(l.fs, files, seed, m)
	if err != nil {
		return err
	}
	// The records of the last ids may be among those that are damaged.
	f.lastID += idGap(s.run.interval)
	report.Aside, err = l.replaceBy(f, "damaged", old, b)
	if err != nil {
		return err
	}
	l.recovery.Salvaged = report
	l.log.Warn("a damaged log was salvaged", slog.Group("log",
		"jobs", report.Jobs, "lost-for-certain", report.Lost, "skipped-bytes", report.Skipped, "old-files-in", report.Aside))
	return nil
}

// replaceBy makes what was found the directory's log, and moves the old files
// into a new sub-directory, whose path it returns.
func (l *Log) replaceBy(f *found, aside string, old []string, b *builder) (string, error) {
	build := filepath.Join(l.dir, buildDir)
	if err := l.fs.Mkdir(build); err != nil {
		return "", err
	}
	b.fs, b.dir, b.limit, b.lastID, b.boot = l.fs, build, l.opts.SegmentSize, f.lastID, l.boot
	err := f.each(f.sorted(), b.add)
	if err == nil {
		err = b.last()
	}
	if err == nil {
		aside, err = l.plan(build, aside, old)
	}
	if err != nil {
		return "", errors.Join(spaceError(err), b.abandon(), l.removeDir(build))
	}
	if err := l.fs.Rename(build, filepath.Join(l.dir, doneDir)); err != nil {
		return "", err
	}
	if err := vfs.SyncDir(l.fs, l.dir); err != nil {
		return "", err
	}
	return filepath.Join(l.dir, aside), l.moveIn()
}

// plan writes down what is to be done once the new log counts.
func (l *Log) plan(build, aside string, old []string) (string, error) {
	es, err := l.fs.List(l.dir)
	if err != nil {
		return "", err
	}
	name := aside
	for n := 2; slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", aside, n)
	}
	text := strings.Join(append([]string{name}, old...), "\n") + "\n"
	file, err := l.fs.Create(filepath.Join(build, planName), 0)
	if err != nil {
		return "", err
	}
	_, err = file.WriteAt([]byte(text), 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	return name, vfs.SyncDir(l.fs, build)
}

// moveIn does what the plan says. All of it may have been done before.
func (l *Log) moveIn() error {
	done := filepath.Join(l.dir, doneDir)
	es, err := l.fs.List(done)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == planName }) {
		plan, err := l.readFile(filepath.Join(done, planName))
		if err != nil {
			return err
		}
		lines := strings.Fields(plan)
		if len(lines) == 0 {
			return fmt.Errorf("%s is empty", filepath.Join(done, planName))
		}
		aside := filepath.Join(l.dir, lines[0])
		if err := l.fs.Mkdir(aside); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := vfs.SyncDir(l.fs, l.dir); err != nil {
			return err
		}
		for _, name := range lines[1:] {
			err := l.fs.Rename(filepath.Join(l.dir, name), filepath.Join(aside, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := errors.Join(vfs.SyncDir(l.fs, aside), vfs.SyncDir(l.fs, l.dir)); err != nil {
			return err
		}
		for _, e := range es {
			if e.Name != planName {
				if err := l.fs.Rename(filepath.Join(done, e.Name), filepath.Join(l.dir, e.Name)); err != nil {
					return err
				}
			}
		}
		if err := errors.Join(vfs.SyncDir(l.fs, l.dir), vfs.SyncDir(l.fs, done)); err != nil {
			return err
		}
	}
	return l.removeDir(done)
}

func (l *Log) readFile(name string) (string, error) {
	file, err := l.fs.OpenRead(name)
	if err != nil {
		return "", err
	}
	size, err := file.Size()
	b := make([]byte, size)
	if err == nil {
		if n, e := file.ReadAt(b, 0); n < len(b) {
			err = e
		}
	}
	return string(b), errors.Join(err, file.Close())
}

func (l *Log) removeDir(dir string) error {
	es, err := l.fs.List(dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if err := l.fs.Remove(filepath.Join(dir, e.Name)); err != nil {
			return err
		}
	}
	return errors.Join(l.fs.Remove(dir), vfs.SyncDir(l.fs, l.dir))
}

// builder writes segments one after the other, sealed and durable.
type builder struct {
	fs     vfs.FS
	dir    string
	limit  int64 // of a segment's size, unless a record is larger
	seed   uint32
	index  uint32 // of the next segment
	base   Pos    // of the next segment
	lastID uint64
	boot   uint64
	first  uint32

	fileWriter
	start uint32
}

func (b *builder) add(r *Record) error {
	n := align(fullFixed + int64(len(r.Tube)) + int64(len(r.Body)))
	if n > maxWords*8 {
		return fmt.Errorf("job %d: a body of %d bytes: %w", r.ID, len(r.Body), ErrInvalid)
	}
	if b.file != nil && b.size()+n > b.limit-smallSize {
		if err := b.end(); err != nil {
			return err
		}
	}
	if b.file == nil {
		if err := b.begin(); err != nil {
			return err
		}
	}
	encodeFull(b.extend(int(n)), b.start, r)
	return b.spill()
}

func (b *builder) begin() error {
	if b.first == 0 {
		b.first = b.index
	}
	if err := b.create(b.fs, filepath.Join(b.dir, segmentName(b.index))); err != nil {
		return err
	}
	b.start = checksumStart(b.seed, b.index)
	h := header{
		seed: b.seed, index: b.index, oldest: b.first, base: b.base, synced: b.base,
		lastID: b.lastID, created: time.Now().UnixNano(), boot: b.boot,
	}
	h.encode(b.extend(headerSize))
	return nil
}

// end seals the segment.
func (b *builder) end() error {
	encodeSmall(b.extend(smallSize), b.start, kindEnd, b.lastID)
	b.index++
	b.base += Pos(b.size())
	return b.finish()
}

// last seals the last segment. There is at least one: it tells the ids that were
// used.
func (b *builder) last() error {
	if b.file == nil {
		if b.first != 0 {
			return nil
		}
		if err := b.begin(); err != nil {
			return err
		}
	}
	return b.end()
}
