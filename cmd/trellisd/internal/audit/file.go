package audit

import (
	"fmt"
	"os"
	"time"
)

// lookInterval is how often, at most, it is looked whether the file is still at its path.
const lookInterval = time.Second

// file is a file that is appended to. One goroutine at a time may use it.
type file struct {
	path     string
	file     *os.File
	lastLook time.Time
}

func openFile(path string) (*file, error) {
	f := &file{path: path, lastLook: time.Now()}
	var err error
	f.file, err = f.open()
	return f, err
}

// open makes a file that only its owner can read: it says who does what.
func (f *file) open() (*os.File, error) {
	return os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// Write appends a line to the file that is at the path now.
func (f *file) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(f.lastLook) >= lookInterval {
		f.lastLook = now
		if err := f.follow(); err != nil {
			return 0, fmt.Errorf("looking for a new file: %w", err)
		}
	}
	return f.file.Write(p)
}

// follow opens the file at the path if it is another one than that which is open.
func (f *file) follow() error {
	is, err := f.file.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(f.path); err == nil && os.SameFile(is, at) {
		return nil
	}
	fresh, err := f.open()
	if err != nil {
		return err
	}
	old := f.file
	f.file = fresh
	return old.Close()
}

func (f *file) close() error { return f.file.Close() }
