//go:build !linux

package bench

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

func processCPU(int) (usage, error) { return usage{}, errors.ErrUnsupported }

func processMemory(int) int64 { return 0 }

func processPeak(int) int64 { return 0 }

func processorTimes() []processorTime { return nil }

func affinity(int) []int { return nil }

func spareProcessors() bool { return runtime.NumCPU() > 1 }

func processorModel() string { return "an unknown processor" }

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(st.Fstypename[:])
}

func kernelVersion() string { return "an unknown kernel" }
