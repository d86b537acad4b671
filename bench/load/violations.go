package load

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"trellis/bench"
)

// violationExamples is how many violations of a kind are kept in words.
const violationExamples = 3

// violationLimit ends a run: a server that fails so often is not being measured any more.
const violationLimit = 1000

// violations counts what went wrong. Any goroutine may call its methods.
type violations struct {
	total    atomic.Int64
	mu       sync.Mutex
	counts   map[bench.Violation]int64
	examples map[bench.Violation][]string
}

func (v *violations) add(kind bench.Violation, format string, args ...any) {
	v.total.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.counts == nil {
		v.counts, v.examples = make(map[bench.Violation]int64), make(map[bench.Violation][]string)
	}
	v.counts[kind]++
	if len(v.examples[kind]) < violationExamples {
		v.examples[kind] = append(v.examples[kind], fmt.Sprintf(format, args...))
	}
}

func (v *violations) report() []bench.Report {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []bench.Report
	for _, kind := range slices.Sorted(maps.Keys(v.counts)) {
		all = append(all, bench.Report{Kind: kind, Count: v.counts[kind], Examples: v.examples[kind]})
	}
	return all
}
