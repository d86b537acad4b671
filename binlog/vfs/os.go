package vfs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"syscall"
)

// OS is the operating system's file system. Files are made with mode 0600 and
// directories with 0700: bodies of jobs are nobody else's business.
type OS struct{}

// IsNoSpace reports whether an error means that the disk, or the user's share of
// it, is full, or that a file may not become larger.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

type osFile struct{ *os.File }

func (OS) List(dir string) ([]Entry, error) {
	des, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for _, de := range des {
		fi, err := de.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		es = append(es, Entry{Name: de.Name(), Size: fi.Size(), Dir: fi.IsDir()})
	}
	return es, nil
}

func (OS) Create(name string, size int64) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := (osFile{f}).Allocate(size); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return osFile{f}, nil
}

func (OS) Open(name string) (File, error)     { return open(name, os.O_RDWR) }
func (OS) OpenRead(name string) (File, error) { return open(name, os.O_RDONLY) }

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (OS) Remove(name string) error     { return os.Remove(name) }
func (OS) Rename(from, to string) error { return os.Rename(from, to) }
func (OS) Mkdir(name string) error      { return os.Mkdir(name, 0o700) }

func (OS) Boot() uint64 {
	id, err := bootID()
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(id)
	return h.Sum64()
}

func (OS) OpenDir(name string) (Dir, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f osFile) Sync() error {
	if err := syncData(f.File); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

func (f osFile) Allocate(size int64) error {
	old, err := f.Size()
	if err != nil || size <= old {
		return err
	}
	if err := allocate(f.File, old, size-old); err != nil {
		return errors.Join(fmt.Errorf("allocate %d bytes for %s: %w", size-old, f.Name(), err), f.Truncate(old))
	}
	return nil
}

// WriteZeros writes n zeros from off on.
func WriteZeros(f io.WriterAt, off, n int64) error {
	zeros := make([]byte, min(n, 1<<20))
	for n > 0 {
		m, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off += int64(m)
		n -= int64(m)
	}
	return nil
}

// The kernel's lock is the process's, not the descriptor's: it does not keep two
// callers in one process apart, and closing any descriptor of the file releases it.
// So a process opens such a file once at a time.
var held = struct {
	sync.Mutex
	files map[fileID]bool
}{files: map[fileID]bool{}}

type fileID struct{ dev, ino uint64 }

type osLock struct {
	f  *os.File
	id fileID
}

func (OS) Lock(name string) (io.Closer, error) {
	held.Lock()
	defer held.Unlock()
	if fi, err := os.Stat(name); err == nil && held.files[idOf(fi)] {
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	held.files[idOf(fi)] = true
	return &osLock{f, idOf(fi)}, nil
}

func (l *osLock) Close() error {
	held.Lock()
	defer held.Unlock()
	delete(held.files, l.id)
	return l.f.Close()
}

func idOf(fi os.FileInfo) fileID {
	st := fi.Sys().(*syscall.Stat_t)
	return fileID{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // their types differ between systems
}

// lockFile takes the same lock as beanstalkd does, so that neither server works
// in a directory of the other.
func lockFile(f *os.File) error {
	lk := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lk)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	e := &LockedError{Name: f.Name()}
	lk = syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lk); err == nil && lk.Type != syscall.F_UNLCK {
		e.PID = int(lk.Pid)
	}
	return e
}
