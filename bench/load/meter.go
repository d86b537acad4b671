package load

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// A usage is the CPU time that had been used at a moment, in nanoseconds.
type usage struct {
	at         int64        // the moment, on the run's clock; 0: nothing was read
	server     host.CPUTime // by the server
	generator  int64        // by this process
	processors map[int]host.ProcessorTime
}

// A meter reads what the server has used: from the kernel when it runs on this machine, and otherwise from its `stats`.
type meter struct {
	pid int // 0: not on this machine, or not known
	// beside are further processes whose use counts as the server's; see bench.Config.
	beside []int
	ctl    *control
	// The process's CPU time when the meter was opened, by the kernel and by the server's stats.
	local, said int64
	// The processors that each side may use; none when they are not known, or the server is on another machine.
	serverCPUs, generatorCPUs []int
}

// openMeter finds out where the server of a load runs. The meter goes on to use ctl, and its caller may do so
// too, but not at the same time.
func openMeter(cfg *bench.Config, ctl *control) (*meter, error) {
	m := &meter{ctl: ctl, generatorCPUs: cfg.CPUs, beside: cfg.Beside}
	if len(cfg.CPUs) == 0 {
		m.generatorCPUs = host.Affinity(0)
	}
	stats, err := ctl.stats()
	if err != nil {
		return nil, err
	}
	if !cfg.Addr.Loopback() {
		return m, nil
	}
	m.serverCPUs = m.generatorCPUs
	pid, err := strconv.Atoi(stats["pid"])
	if err != nil {
		return m, nil
	}
	// When the server is in a container or behind a tunnel, its process id may be another process's here. The CPU times
	// tell: both are the same when it is one process.
	local, err := host.CPU(pid)
	if err != nil {
		return m, nil
	}
	m.local, m.said = local.Total, statedCPU(stats)
	if sameCPU(m.local, m.said) {
		m.pid, m.serverCPUs = pid, host.Affinity(pid)
	}
	return m, nil
}

// confirm compares the CPU times of the kernel and of the server again after the load, and reports whether they are one
// process's. When the meter was opened, a server that had just started could not be told from another idle process.
func (m *meter) confirm() bool {
	if m.pid == 0 {
		return true
	}
	stats, err := m.ctl.stats()
	if err != nil {
		return false
	}
	local, err := host.CPU(m.pid)
	if err != nil || !sameCPU(local.Total-m.local, statedCPU(stats)-m.said) {
		m.pid = 0
		return false
	}
	return true
}

func statedCPU(stats map[string]string) int64 {
	return seconds(stats["rusage-utime"]) + seconds(stats["rusage-stime"])
}

// sameCPU reports whether two CPU times that were read one after the other may be one process's.
func sameCPU(a, b int64) bool {
	diff := a - b
	return max(diff, -diff) < int64(time.Second/20)+a/20
}

func (m *meter) read() (usage, error) {
	var u usage
	if m.pid != 0 {
		var err error
		if u.server, err = host.CPU(m.pid); err != nil {
			return u, fmt.Errorf("reading the server's CPU time: %w", err)
		}
		for _, pid := range m.beside {
			more, err := host.CPU(pid)
			if err != nil {
				return u, fmt.Errorf("reading the CPU time of a process beside the server: %w", err)
			}
			u.server = u.server.Plus(more)
		}
	} else {
		stats, err := m.ctl.stats()
		if err != nil {
			return u, err
		}
		u.server.User, u.server.Sys = seconds(stats["rusage-utime"]), seconds(stats["rusage-stime"])
		u.server.Total = u.server.User + u.server.Sys
	}
	own, err := host.CPU(os.Getpid())
	if err == nil {
		u.generator, u.processors = own.Total, host.Processors()
	}
	return u, nil
}

// memory returns the server's resident memory in bytes, 0 when it is not known.
func (m *meter) memory() int64 {
	if m.pid == 0 {
		return 0
	}
	total := host.Memory(m.pid)
	for _, pid := range m.beside {
		total += host.Memory(pid)
	}
	return total
}
