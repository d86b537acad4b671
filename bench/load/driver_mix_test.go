package load

import (
	"testing"

	"trellis/bench"
)

func TestEveryCommandOfAMixHasAMetric(t *testing.T) {
	for _, command := range bench.MixCommands {
		if _, ok := mixMetrics[command]; !ok {
			t.Errorf("%s has none", command)
		}
	}
	if len(mixMetrics) != len(bench.MixCommands) {
		t.Errorf("%d metrics, %d commands", len(mixMetrics), len(bench.MixCommands))
	}
}

func TestAMixIsChosenByItsWeights(t *testing.T) {
	m := newMixTable(bench.Mix{Steps: []bench.MixStep{{Weight: 3, Command: "put"}, {Weight: 7, Command: "delete"}}})
	if m.total != 10 || m.steps[0].until != 3 || m.steps[1].until != 10 || m.steps[0].needsJob || !m.steps[1].needsJob {
		t.Errorf("got %+v", m)
	}
	w := newWorker(&shared{mix: m, counters: make([]counters, 1)}, 0)
	n := make(map[string]int)
	for range 10000 {
		n[w.choose().Command]++
	}
	// The seed is fixed, so that this always comes out alike.
	if n["put"] < 2800 || n["put"] > 3200 || n["put"]+n["delete"] != 10000 {
		t.Errorf("got %v", n)
	}
}
