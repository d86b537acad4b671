package reload

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Glance is how often the system is asked whether files were written or replaced.
	Glance = 500 * time.Millisecond
	// Interval is how often files are read, whatever the system says.
	Interval = 10 * time.Second
)

// settling is the time between two looks that must see the same.
const settling = 100 * time.Millisecond

// MaxSize is the most bytes that a file may have.
const MaxSize = 16 << 20

// Files are files that are loaded together. Make them with [Load]. Any goroutine may call
// their methods.
type Files struct {
	outcomes Outcomes
	paths    []string
	load     func(contents [][]byte) error

	mu      sync.Mutex        // held while the files are read and loaded
	lastSum [sha256.Size]byte // guarded by mu; of what was loaded last, or could not be

	states []os.FileInfo // at the last glance; nil where there was no file; used by the goroutine of Watch
}

// Outcomes count what becomes of changes of files, and log it. Any goroutine may call their
// methods.
type Outcomes struct {
	What string // names the files in messages and metrics
	Log  *slog.Logger

	loaded, failed, mistakes atomic.Uint64
	failing                  atomic.Bool
}

// Stats are what has happened to files since they were loaded first.
type Stats struct {
	What           string
	Loaded, Failed uint64 // how often they were loaded again, and could not be, or not as a whole
	Mistakes       uint64 // in changes that were loaded without them
	Failing        bool   // the last time they could not be, or not as a whole
}

// Stats returns the counts.
func (o *Outcomes) Stats() Stats {
	return Stats{
		What: o.What, Loaded: o.loaded.Load(), Failed: o.failed.Load(), Mistakes: o.mistakes.Load(),
		Failing: o.failing.Load(),
	}
}

// Add adds what has become of a change: err tells why files are not in force, or not as a whole.
func (o *Outcomes) Add(err error) {
	if err == nil {
		o.loaded.Add(1)
		o.failing.Store(false)
		o.Log.Info("a changed file was loaded", "what", o.What)
		return
	}
	o.failed.Add(1)
	o.failing.Store(true)
	var partial *PartialError
	if !errors.As(err, &partial) {
		o.Log.Error("a changed file cannot be loaded; what was loaded before stays in force", "what", o.What, "error", err)
		return
	}
	n := len(partial.Mistakes)
	o.mistakes.Add(uint64(n))
	for _, mistake := range partial.Mistakes[:min(n, maxReported)] {
		o.Log.Error("a changed file has a mistake; it was loaded without it", "what", o.What, "error", mistake)
	}
	if n > maxReported {
		o.Log.Error("a changed file has more mistakes than are logged", "what", o.What, "unreported", n-maxReported)
	}
}

// maxReported is how many mistakes in one state of a file are logged one by one.
const maxReported = 20

// PartialError is what a load returns that has put in force what is right in the files, and
// left out what is not.
type PartialError struct {
	Mistakes []error // at least one
}

// Error tells the first mistake, and how many follow.
func (e *PartialError) Error() string {
	if len(e.Mistakes) == 1 {
		return e.Mistakes[0].Error()
	}
	return fmt.Sprintf("%v; mistakes that follow: %d", e.Mistakes[0], len(e.Mistakes)-1)
}

// Unwrap lets [errors.As] find each mistake.
func (e *PartialError) Unwrap() []error { return e.Mistakes }

// Load loads files for the first time, and fails if that fails. load is given what is in
// them, in the order of paths, and is called on one goroutine at a time.
func Load(what string, paths []string, load func(contents [][]byte) error, log *slog.Logger) (*Files, error) {
	f := &Files{outcomes: Outcomes{What: what, Log: log}, paths: paths, load: load}
	contents, sum, err := f.read()
	if err != nil {
		return nil, err
	}
	f.lastSum = sum
	return f, load(contents)
}

// read reads the files. The sum tells one state of theirs from another, also when they
// cannot be read.
func (f *Files) read() (contents [][]byte, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, path := range f.paths {
		b, readErr := readFile(path)
		if readErr != nil {
			err = readErr
			b = []byte(readErr.Error())
		}
		// With its length, what moves from one file to the next makes a difference.
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
		contents = append(contents, b)
	}
	return contents, [sha256.Size]byte(h.Sum(nil)), err
}

func readFile(path string) ([]byte, error) {
	// To open a pipe could take for ever, and what was read from it is gone.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err == nil && len(b) > MaxSize {
		err = fmt.Errorf("%s: it has more than %d bytes", path, MaxSize)
	}
	return b, err
}

// Look loads the files again if they have changed, or could not be loaded the last time:
// a certificate may be valid by now. When they have changed it takes 200 ms.
func (f *Files) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	contents, sum, err := f.read()
	if sum == f.lastSum {
		if f.Stats().Failing && err == nil && f.load(contents) == nil {
			f.outcomes.Add(nil)
		}
		return
	}
	time.Sleep(settling)
	contents, sum, err = f.read()
	time.Sleep(settling)
	if _, again, _ := f.read(); again != sum {
		return // until they are left alone
	}
	if sum != f.lastSum {
		_ = f.use(contents, sum, err)
	}
}

// Paths are the names of the files.
func (f *Files) Paths() []string { return f.paths }

// Reload loads the files as they are now, whether they have changed or not: who asks for it
// has written them to the end. It fails as Look does, which is also logged.
func (f *Files) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.use(f.read())
}

// use loads what was read. f.mu is held.
func (f *Files) use(contents [][]byte, sum [sha256.Size]byte, err error) error {
	f.lastSum = sum
	if err == nil {
		err = f.load(contents)
	}
	f.outcomes.Add(err)
	return err
}

// Stats returns the counts. Any goroutine may call it.
func (f *Files) Stats() Stats { return f.outcomes.Stats() }

// glance reports whether the system knows of a change since the last glance. It misses one that leaves
// size and time of a file as they were, and comes with a delay from a file on a network.
func (f *Files) glance() (changed bool) {
	states := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		states[i], _ = os.Stat(path)
		changed = changed || f.states == nil || !sameState(states[i], f.states[i])
	}
	f.states = states
	return changed
}

func sameState(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Watch looks at files, if there are any, when a glance shows a change and every [Interval], until
// stop is called, once. stop waits for a look that is under way.
func Watch(files ...*Files) (stop func()) {
	if len(files) == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(Glance)
	go func() {
		defer close(ended)
		defer ticker.Stop()
		looked := time.Now()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			all := time.Since(looked) >= Interval
			if all {
				looked = time.Now()
			}
			for _, f := range files {
				if f.glance() || all {
					f.Look()
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
