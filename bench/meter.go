package bench

import (
	"fmt"
	"strconv"
	"time"
)

// A usage is what a process has used at a moment, in nanoseconds.
type usage struct {
	total     int64
	user, sys int64 // coarser than total, and good for their proportion only
	starved   int64 // how long its threads have waited for a processor; 0 when not known
}

// A meter reads what the server has used: from the kernel when it runs on this machine, and otherwise from its `stats`.
type meter struct {
	pid int // 0: not on this machine
	ctl *control
}

// openMeter finds out where the server runs. The connection is for the meter's use only.
func openMeter(a *Address, ctl *control) (*meter, error) {
	m := &meter{ctl: ctl}
	stats, err := ctl.stats("stats")
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(stats["pid"])
	if err != nil || !a.loopback {
		return m, nil
	}
	// The number may belong to another process, when the server lives in a container or behind a tunnel. Both tell
	// the same CPU time when it is one process.
	local, err := processCPU(pid)
	if err != nil {
		return m, nil
	}
	said := seconds(stats["rusage-utime"]) + seconds(stats["rusage-stime"])
	if diff := local.total - said; diff > -int64(time.Second/20) && diff < int64(time.Second/20)+local.total/20 {
		m.pid = pid
	}
	return m, nil
}

// read returns what the server has used.
func (m *meter) read() (usage, error) {
	if m.pid != 0 {
		u, err := processCPU(m.pid)
		if err != nil {
			return u, fmt.Errorf("reading the server's CPU time: %w", err)
		}
		u.starved = processStarved(m.pid)
		return u, nil
	}
	stats, err := m.ctl.stats("stats")
	if err != nil {
		return usage{}, err
	}
	user, sys := seconds(stats["rusage-utime"]), seconds(stats["rusage-stime"])
	return usage{total: user + sys, user: user, sys: sys}, nil
}

// memory returns the server's resident memory in bytes, 0 when it is not known.
func (m *meter) memory() int64 {
	if m.pid == 0 {
		return 0
	}
	return processMemory(m.pid)
}
