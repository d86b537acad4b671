package host

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// tick is the step in which the kernel counts most times, in nanoseconds.
const tick = 10e6

// CPU returns the CPU time of all threads of a process, also of those that have ended.
func CPU(pid int) (CPUTime, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return CPUTime{}, err
	}
	stat, err := p.Stat()
	if err != nil {
		return CPUTime{}, err
	}
	u := CPUTime{Total: int64(stat.UTime+stat.STime) * tick, User: int64(stat.UTime) * tick, Sys: int64(stat.STime) * tick}
	var ts unix.Timespec
	// The clock of a process is numbered by its inverted id; see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^pid<<3|2), &ts) == nil {
		u.Total = ts.Nano()
	}
	return u, nil
}

// Memory returns the resident memory of a process in bytes, 0 when it cannot be read. Where this process
// may, it has the kernel walk the page tables: the counters that everybody may read lag behind by as much as
// a thousand connections take.
func Memory(pid int) int64 {
	if p, err := procfs.NewProc(pid); err == nil {
		if sum, err := p.ProcSMapsRollup(); err == nil && sum.Rss > 0 {
			return int64(sum.Rss)
		}
	}
	return int64(status(pid).VmRSS)
}

// PeakMemory returns the most resident memory that a process ever had in bytes, 0 when it cannot be read.
func PeakMemory(pid int) int64 { return int64(status(pid).VmHWM) }

// status returns what the kernel tells of a process, zero when it cannot be read.
func status(pid int) (s procfs.ProcStatus) {
	if p, err := procfs.NewProc(pid); err == nil {
		s, _ = p.NewStatus()
	}
	return s
}

// Processors returns the times of all processors by their numbers, nil when they cannot be read.
func Processors() map[int]ProcessorTime {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil
	}
	all := make(map[int]ProcessorTime)
	ns := func(seconds float64) int64 { return int64(seconds * 1e9) }
	for n, t := range stat.CPU {
		all[int(n)] = ProcessorTime{Idle: ns(t.Idle + t.Iowait), Interrupts: ns(t.IRQ + t.SoftIRQ), Stolen: ns(t.Steal)}
	}
	return all
}

// Affinity returns the numbers of the processors that a process may use, 0 standing for the calling thread.
func Affinity(pid int) []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(pid, &set) != nil {
		return nil
	}
	var cpus []int
	for n := range len(set) * 64 {
		if set.IsSet(n) {
			cpus = append(cpus, n)
		}
	}
	return cpus
}

// HasSeveralProcessors reports whether this machine has more than one processor, whichever this process may use.
var HasSeveralProcessors = sync.OnceValue(func() bool { return len(Processors()) > 1 })

// ProcessorModel returns the name of the first processor.
func ProcessorModel() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 && all[0].ModelName != "" {
			return all[0].ModelName
		}
	}
	return "an unknown processor"
}

// fileSystems are names of file systems by the numbers that statfs has for them.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2fc12fc1: "zfs",
	unix.F2FS_SUPER_MAGIC: "f2fs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	unix.TMPFS_MAGIC: InMemory,
}

// FileSystem returns the type of the file system that a directory is on, such as "ext4" or InMemory.
func FileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	if name, ok := fileSystems[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("type %#x", uint32(st.Type))
}

// KernelVersion returns the name and the release of the kernel.
func KernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "Linux"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}

// PinThread binds the calling thread to some processors, when any are named.
func PinThread(cpus []int) error { return pin(0, cpus) }

// pin binds a thread, 0 standing for the calling one.
func pin(tid int, cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("binding to the processors %v: %w", cpus, err)
	}
	return nil
}

// EndWithThread asks the system to kill the process that is started with attr when the thread that starts it ends.
// Elsewhere than on Linux it does nothing.
func EndWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// PinProcess binds all threads of this process, and those to come, to some processors, when any are named.
func PinProcess(cpus []int) error {
	threads, err := procfs.AllThreads(os.Getpid())
	if err != nil {
		return fmt.Errorf("listing the threads of this process: %w", err)
	}
	for _, t := range threads {
		if err := pin(t.PID, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
