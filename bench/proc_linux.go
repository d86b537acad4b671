package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

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
	const tick = 10e6
	u := usage{total: (user + sys) * tick, user: user * tick, sys: sys * tick}
	var ts unix.Timespec
	// The clock of a process is numbered by its inverted id; see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^pid<<3|2), &ts) == nil {
		u.total = ts.Nano()
	}
	return u, nil
}

// processMemory returns the resident memory of a process in bytes, 0 when it cannot be read. It walks the page tables:
// the counters in /proc/PID/status lag behind by as much as a thousand connections take.
func processMemory(pid int) int64 {
	rollup, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(rollup)) {
		if value, ok := strings.CutPrefix(line, "Rss:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// processStarved returns how long the threads of a process have waited for a processor, in nanoseconds.
func processStarved(pid int) int64 {
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	if err != nil {
		return 0
	}
	total := int64(0)
	for _, t := range tasks {
		total += starved(t)
	}
	return total
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

func kernelVersion() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}
