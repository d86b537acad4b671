package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData leaves out the times of the file: without them most syncs need no
// commit of the file system's journal.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func allocate(f *os.File, off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, off, n)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return WriteZeros(f, off, n)
		}
		return err
	}
}

// ReadRandomly has the system read nothing of a file but what is asked for.
func ReadRandomly(f File) {
	if o, ok := f.(osFile); ok {
		_ = unix.Fadvise(int(o.Fd()), 0, 0, unix.FADV_RANDOM)
	}
}

func bootID() ([]byte, error) { return os.ReadFile("/proc/sys/kernel/random/boot_id") }
