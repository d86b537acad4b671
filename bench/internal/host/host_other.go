//go:build !linux

package host

import (
	"errors"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func CPU(int) (CPUTime, error) { return CPUTime{}, errors.ErrUnsupported }

func Memory(int) int64 { return 0 }

func PeakMemory(int) int64 { return 0 }

func Processors() map[int]ProcessorTime { return nil }

func Affinity(int) []int { return nil }

func HasSeveralProcessors() bool { return runtime.NumCPU() > 1 }

func ProcessorModel() string { return "an unknown processor" }

func FileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(st.Fstypename[:])
}

func KernelVersion() string { return "an unknown kernel" }

func PinThread(cpus []int) error {
	if len(cpus) > 0 {
		return errors.New("binding to processors is not possible on this system")
	}
	return nil
}

func EndWithThread(*syscall.SysProcAttr) {}

func PinProcess(cpus []int) error { return PinThread(cpus) }
