package reload

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Interval is how often files are looked at.
const Interval = 10 * time.Second

// settling is the time between two looks that must see the same.
const settling = 100 * time.Millisecond

// MaxSize is the most bytes that a file may have.
const MaxSize = 16 << 20

// Files are files that are loaded together. Make them with [Load].
type Files struct {
	// What names them in messages and metrics.
	What string

	paths []string
	load  func(contents [][]byte) error
	log   *slog.Logger
	seen  [sha256.Size]byte // of what was loaded last, or could not be

	loaded, failed atomic.Uint64
	failing        atomic.Bool
}

// Load loads files for the first time, and fails if that fails. load is given what is in
// them, in the order of paths, and is called on one goroutine at a time.
func Load(what string, paths []string, load func(contents [][]byte) error, log *slog.Logger) (*Files, error) {
	f := &Files{What: what, paths: paths, load: load, log: log}
	contents, sum, err := f.read()
	if err != nil {
		return nil, err
	}
	f.seen = sum
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
// a certificate may be valid by now. When they have changed it takes 200 ms. One goroutine
// at a time may call it: of files that are watched, the one of Watch.
func (f *Files) Look() {
	contents, sum, err := f.read()
	if sum == f.seen {
		if f.failing.Load() && err == nil && f.load(contents) == nil {
			f.succeeded()
		}
		return
	}
	time.Sleep(settling)
	contents, sum, err = f.read()
	time.Sleep(settling)
	if _, again, _ := f.read(); again != sum {
		return // until they are left alone
	}
	if sum == f.seen {
		return
	}
	f.seen = sum
	if err == nil {
		err = f.load(contents)
	}
	if err != nil {
		f.failed.Add(1)
		f.failing.Store(true)
		f.log.Error("a changed file cannot be loaded; what was loaded before stays in force", "what", f.What, "error", err)
		return
	}
	f.succeeded()
}

func (f *Files) succeeded() {
	f.loaded.Add(1)
	f.failing.Store(false)
	f.log.Info("a changed file was loaded", "what", f.What)
}

// Stats are what has happened to files since they were loaded first.
type Stats struct {
	What           string
	Loaded, Failed uint64 // changes that were loaded, and that could not be
	Failing        bool   // the last change could not be loaded
}

// Stats returns the counts. Any goroutine may call it.
func (f *Files) Stats() Stats {
	return Stats{What: f.What, Loaded: f.loaded.Load(), Failed: f.failed.Load(), Failing: f.failing.Load()}
}

// Watch looks at files, if there are any, every [Interval] until stop is called, once. stop
// waits for a look that is under way.
func Watch(files ...*Files) (stop func()) {
	if len(files) == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(Interval)
	go func() {
		defer close(ended)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			for _, f := range files {
				f.Look()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
