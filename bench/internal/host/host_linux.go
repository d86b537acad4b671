package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// tick is the step in which the kernel counts most times, in nanoseconds.
const tick = 10e6

// CPU returns the CPU time of all threads of a process, also of those that have ended.
func CPU(pid int) (CPUTime, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return CPUTime{}, err
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return CPUTime{}, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	sys, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return CPUTime{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	u := CPUTime{Total: (user + sys) * tick, User: user * tick, Sys: sys * tick}
	var ts unix.Timespec
	// The clock of a process is numbered by its inverted id; see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^pid<<3|2), &ts) == nil {
		u.Total = ts.Nano()
	}
	return u, nil
}

// Memory returns the resident memory of a process in bytes, 0 when it cannot be read. Where this process may, it has the
// kernel walk the page tables: the counters that everybody may read lag behind by as much as a thousand connections
// take.
func Memory(pid int) int64 {
	if n := memoryLine(pid, "smaps_rollup", "Rss:"); n > 0 {
		return n
	}
	return memoryLine(pid, "status", "VmRSS:")
}

// PeakMemory returns the most resident memory that a process ever had in bytes, 0 when it cannot be read.
func PeakMemory(pid int) int64 { return memoryLine(pid, "status", "VmHWM:") }

// memoryLine returns the size in bytes that a line of /proc/pid/file states in kB behind begin, 0 when it cannot be read.
func memoryLine(pid int, file, begin string) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, begin); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// Processors returns the times of all processors, indexed by their numbers, nil when they cannot be read.
func Processors() []ProcessorTime {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	var all []ProcessorTime
	for line := range strings.Lines(string(stat)) {
		// cpu0 user nice system idle iowait irq softirq steal; some numbers may be missing between the lines.
		fields := strings.Fields(line)
		n, err := strconv.Atoi(strings.TrimPrefix(fields[0], "cpu"))
		if err != nil || len(fields) < 9 {
			continue
		}
		ticks := func(i int) int64 {
			v, _ := strconv.ParseInt(fields[i], 10, 64)
			return v * tick
		}
		for len(all) <= n {
			all = append(all, ProcessorTime{})
		}
		all[n] = ProcessorTime{Idle: ticks(4) + ticks(5), Interrupts: ticks(6) + ticks(7), Stolen: ticks(8)}
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

// HasSeveralProcessors tells whether this machine has more than one processor, whichever of them this process may use.
var HasSeveralProcessors = sync.OnceValue(func() bool {
	online, err := os.ReadFile("/sys/devices/system/cpu/online") // such as 0-3 or 0,2
	return err == nil && bytes.ContainsAny(online, ",-")
})

// ProcessorModel returns the name of the first processor.
func ProcessorModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if value, ok := strings.CutPrefix(line, "model name"); ok {
				return strings.TrimLeft(strings.TrimSpace(value), ": ")
			}
		}
	}
	return "an unknown processor"
}

// fileSystems are names of file systems by the numbers that statfs has for them.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2fc12fc1: "zfs",
	unix.F2FS_SUPER_MAGIC: "f2fs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.TMPFS_MAGIC: InMemory,
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
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}

// PinThread binds the calling thread to some processors, when any are named.
func PinThread(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to the processors %v: %w", cpus, err)
	}
	return nil
}

// EndWithThread has the system kill the process that is started with attr when the thread that starts it ends. Elsewhere than
// on Linux it does nothing.
func EndWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// PinProcess binds all threads of this process, and those to come, to some processors, when any are named.
func PinProcess(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("listing the threads of this process: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(tid, &set)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("binding to the processors %v: %w", cpus, err)
		}
	}
	return nil
}
