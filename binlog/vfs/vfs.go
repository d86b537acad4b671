package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
)

// FS is a file system. All methods may be called from any goroutine.
type FS interface {
	// List returns a directory's entries, sorted by name.
	List(dir string) ([]Entry, error)

	// Create makes a file that does not exist yet, with that many bytes of disk
	// allocated to it that read as zero. If it fails there is no such file.
	Create(name string, size int64) (File, error)

	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)

	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)

	Remove(name string) error
	Rename(from, to string) error
	Mkdir(name string) error

	// OpenDir opens a directory, so that its entries can be made durable.
	OpenDir(name string) (Dir, error)

	// Lock locks a file against all other processes and all other calls of this
	// one, and creates it if need be. It never waits: a *LockedError tells who
	// holds it. Closing unlocks; the file stays.
	Lock(name string) (io.Closer, error)

	// Boot tells one start of the machine from another. Zero means unknown.
	Boot() uint64
}

// Entry is an entry of a directory.
type Entry struct {
	Name string
	Size int64 // bytes, of a regular file
	Dir  bool
}

// File is an open file. WriteAt may be called from one goroutine at a time, all
// else from any.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Sync makes the file's data durable, with as much of its metadata as
	// reading the data needs.
	Sync() error

	// Allocate grows the file to size, the new bytes allocated and zero. If it
	// fails the file has its old size.
	Allocate(size int64) error

	Truncate(size int64) error
	Size() (int64, error)
}

// Dir is an open directory. Its syncs need no further descriptor.
type Dir interface {
	io.Closer

	// Sync makes the directory's entries durable.
	Sync() error
}

// SyncDir makes a directory's entries durable.
func SyncDir(fs FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// LockedError tells that a lock is held.
type LockedError struct {
	Name string
	PID  int // of the holder; 0 if the system does not tell
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return e.Name + " is locked by another process"
	}
	return e.Name + " is locked by process " + strconv.Itoa(e.PID)
}

// ErrLocked tells that another process, or another part of this one, has a
// directory.
var ErrLocked = errors.New("the directory is in use")

// LockDir locks a directory by the file "lock" in it, until what it returns is
// closed. It never waits: an error that wraps ErrLocked names the holder.
func LockDir(fs FS, name string) (io.Closer, error) {
	lock, err := fs.Lock(filepath.Join(name, "lock"))
	if locked := (*LockedError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("log directory %s: %w: %w", name, ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", name, err)
	}
	return lock, nil
}
