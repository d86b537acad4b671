//go:build !linux

package vfs

import (
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"
)

// syncData is fsync, and on darwin F_FULLFSYNC, which reaches the medium.
func syncData(f *os.File) error { return f.Sync() }

func allocate(f *os.File, off, n int64) error { return writeZeros(f, off, n) }

func boot() uint64 {
	at, err := unix.SysctlRaw("kern.boottime")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(at)
	return h.Sum64()
}
