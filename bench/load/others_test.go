package load

import (
	"testing"
	"time"

	"trellis/bench/internal/host"
)

// zeroTimes are those of n processors that have done nothing.
func zeroTimes(n int) map[int]host.ProcessorTime {
	all := make(map[int]host.ProcessorTime)
	for c := range n {
		all[c] = host.ProcessorTime{}
	}
	return all
}

func TestOthersAreThoseWhoAreNeitherServerNorGenerator(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		name              string
		server, generator []int
		to                usage
		want              float64
	}{
		{"all is ours", []int{0}, []int{1}, usage{at: s, server: host.CPUTime{Total: s}, generator: s, processors: zeroTimes(2)}, 0},
		{"the server's processor", []int{0}, []int{1}, usage{at: s, server: host.CPUTime{Total: s / 2}, generator: s, processors: zeroTimes(2)}, 0.5},
		{"the generator's", []int{0}, []int{1}, usage{at: s, server: host.CPUTime{Total: s}, generator: s * 3 / 4, processors: zeroTimes(2)}, 0.25},
		{"one for both", []int{0}, []int{0}, usage{at: s, server: host.CPUTime{Total: s / 2}, generator: s / 4, processors: zeroTimes(1)}, 0.25},
		{"idle time", []int{0}, []int{1}, usage{at: s, generator: s, processors: map[int]host.ProcessorTime{0: {Idle: s}, 1: {}}}, 0},
		{"interrupts", []int{0}, []int{1}, usage{at: s, server: host.CPUTime{Total: s / 2}, generator: s, processors: map[int]host.ProcessorTime{0: {Interrupts: s / 2}, 1: {}}}, 0},
		{"a hypervisor that counts as ours", []int{0}, []int{1}, usage{at: s, server: host.CPUTime{Total: s}, generator: s, processors: map[int]host.ProcessorTime{0: {Stolen: s / 10}, 1: {}}}, 0.1},
		{"a server elsewhere", nil, []int{1}, usage{at: s, server: host.CPUTime{Total: 5 * s}, generator: s / 2, processors: map[int]host.ProcessorTime{0: {}, 1: {Idle: s / 2}}}, 0},
		{"too short to tell", []int{0}, []int{1}, usage{at: s / 100, processors: zeroTimes(2)}, 0},
		{"nothing is known", []int{0}, []int{1}, usage{at: s}, 0},
	} {
		m := &meter{serverCPUs: c.server, generatorCPUs: c.generator}
		from := usage{processors: zeroTimes(len(c.to.processors))}
		if got := m.others(&from, &c.to); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
