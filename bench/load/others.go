package load

import (
	"slices"
	"time"
)

// othersShortest is the shortest time between readings for which others says anything: the kernel counts in steps of
// 10 ms.
const othersShortest = int64(time.Second / 2)

// others returns the part of processor time that other processes or a hypervisor had between two readings, from 0 to 1:
// on the server's processors or on the generator's, whichever is more. It is a lower bound, because interrupts count as
// the server's or the generator's.
func (m *meter) others(from, to *usage) float64 {
	server, generator := to.server.Total-from.server.Total, to.generator-from.generator
	if slices.ContainsFunc(m.serverCPUs, func(c int) bool { return slices.Contains(m.generatorCPUs, c) }) {
		all := slices.Concat(m.serverCPUs, m.generatorCPUs)
		slices.Sort(all)
		return othersOn(slices.Compact(all), from, to, server+generator)
	}
	return max(othersOn(m.serverCPUs, from, to, server), othersOn(m.generatorCPUs, from, to, generator))
}

// othersOn is others for some processors; used is what the server and the generator used of their time, in nanoseconds.
func othersOn(cpus []int, from, to *usage, used int64) float64 {
	elapsed := to.at - from.at
	if elapsed < othersShortest || len(cpus) == 0 {
		return 0
	}
	occupied, stolen := int64(0), int64(0)
	for _, c := range cpus {
		a, knownBefore := from.processors[c]
		b, known := to.processors[c]
		if !known || !knownBefore {
			return 0
		}
		occupied += elapsed - (b.Idle - a.Idle) - (b.Interrupts - a.Interrupts)
		stolen += b.Stolen - a.Stolen
	}
	// The kernel may count stolen time as used time, too.
	return float64(max(occupied-used, stolen, 0)) / float64(elapsed*int64(len(cpus)))
}
