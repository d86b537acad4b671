package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tick is the step in which the kernel counts most times, in nanoseconds.
const tick = 10e6

// processCPU returns the CPU time of all threads of a process, also of those that have ended. The total is exact, its
// parts come in ticks of 10 ms.
func processCPU(pid int) (usage, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return usage{}, err
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	sys, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return usage{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	u := usage{total: (user + sys) * tick, user: user * tick, sys: sys * tick}
	var ts unix.Timespec
	// The clock of a process is numbered by its inverted id; see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^pid<<3|2), &ts) == nil {
		u.total = ts.Nano()
	}
	return u, nil
}

// processMemory returns the resident memory of a process in bytes, 0 when it cannot be read. The kernel walks the page
// tables for it where this process may look at the other so closely: the counters that everybody may read lag behind by
// as much as a thousand connections take.
func processMemory(pid int) int64 {
	if n := memoryLine(pid, "smaps_rollup", "Rss:"); n > 0 {
		return n
	}
	return memoryLine(pid, "status", "VmRSS:")
}

// processPeak returns the most resident memory that a process ever had in bytes, 0 when it cannot be read.
func processPeak(pid int) int64 { return memoryLine(pid, "status", "VmHWM:") }

// memoryLine returns what the line of a process's file that begins so says in kB, in bytes.
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

// processorTimes returns the times of all processors by their numbers, nil when they cannot be read.
func processorTimes() []processorTime {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	var all []processorTime
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
			all = append(all, processorTime{})
		}
		all[n] = processorTime{idle: ticks(4) + ticks(5), interrupts: ticks(6) + ticks(7), stolen: ticks(8)}
	}
	return all
}

// affinity returns the numbers of the processors that a process may use, 0 standing for the calling thread.
func affinity(pid int) []int {
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

// spareProcessors tells whether this machine has more than one processor, whichever of them this process may use.
var spareProcessors = sync.OnceValue(func() bool {
	online, err := os.ReadFile("/sys/devices/system/cpu/online") // such as 0-3 or 0,2
	return err == nil && bytes.ContainsAny(online, ",-")
})

// processorModel returns the name of the first processor.
func processorModel() string {
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
	unix.F2FS_SUPER_MAGIC: "f2fs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.TMPFS_MAGIC: inMemory,
}

// fileSystem returns the type of the file system that a directory is on.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	if name, ok := fileSystems[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("type %#x", uint32(st.Type))
}

func kernelVersion() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}
