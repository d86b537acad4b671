package bench

import (
	"testing"
	"time"
)

func TestOthersAreThoseWhoAreNeitherServerNorGenerator(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		name              string
		server, generator []int
		to                usage
		want              float64
	}{
		{"all is ours", []int{0}, []int{1}, usage{at: s, total: s, generator: s, processors: make([]processorTime, 2)}, 0},
		{"the server's processor", []int{0}, []int{1}, usage{at: s, total: s / 2, generator: s, processors: make([]processorTime, 2)}, 0.5},
		{"the generator's", []int{0}, []int{1}, usage{at: s, total: s, generator: s * 3 / 4, processors: make([]processorTime, 2)}, 0.25},
		{"one for both", []int{0}, []int{0}, usage{at: s, total: s / 2, generator: s / 4, processors: make([]processorTime, 1)}, 0.25},
		{"idle time", []int{0}, []int{1}, usage{at: s, generator: s, processors: []processorTime{{idle: s}, {}}}, 0},
		{"interrupts", []int{0}, []int{1}, usage{at: s, total: s / 2, generator: s, processors: []processorTime{{interrupts: s / 2}, {}}}, 0},
		{"a hypervisor that counts as ours", []int{0}, []int{1}, usage{at: s, total: s, generator: s, processors: []processorTime{{stolen: s / 10}, {}}}, 0.1},
		{"a server elsewhere", nil, []int{1}, usage{at: s, total: 5 * s, generator: s / 2, processors: []processorTime{{}, {idle: s / 2}}}, 0},
		{"too short to tell", []int{0}, []int{1}, usage{at: s / 100, processors: make([]processorTime, 2)}, 0},
		{"nothing is known", []int{0}, []int{1}, usage{at: s}, 0},
	} {
		m := &meter{serverCPUs: c.server, generatorCPUs: c.generator}
		from := usage{processors: make([]processorTime, len(c.to.processors))}
		if got := m.others(&from, &c.to); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
