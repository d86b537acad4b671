//go:build !linux

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData is fsync, and on darwin F_FULLFSYNC, which reaches the medium.
func syncData(f *os.File) error { return f.Sync() }

func allocate(f *os.File, off, n int64) error { return WriteZeros(f, off, n) }

// ReadRandomly has the system read nothing of a file but what is asked for, where it can be told so.
func ReadRandomly(File) {}

func bootID() ([]byte, error) { return unix.SysctlRaw("kern.boottime") }
