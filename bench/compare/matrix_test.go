package compare

import (
	"slices"
	"strings"
	"testing"

	"trellis/bench"
	"trellis/bench/load"
)

func TestMatricesNameEveryFigureOnce(t *testing.T) {
	for _, rows := range [][]Measurement{StandardMatrix(), DurabilityMatrix(), ClusterMatrix(), SpillMatrix()} {
		seen := make(map[string]bool)
		for _, r := range rows {
			for _, f := range r.figures {
				if name := r.name + ": " + f.name; seen[name] {
					t.Errorf("%q is there twice", name)
				} else {
					seen[name] = true
				}
			}
		}
	}
}

func TestTheStandardMatrixHasEveryScenario(t *testing.T) {
	all := StandardMatrix()
	for _, sc := range load.Scenarios() {
		has := func(m Measurement) bool {
			return slices.Contains(strings.FieldsFunc(m.name, func(r rune) bool { return r == ' ' || r == ',' }), sc.Name)
		}
		i := slices.IndexFunc(all, has)
		if i < 0 {
			t.Errorf("%s is missing", sc.Name)
			continue
		}
		if len(all[i].figures) == 0 {
			t.Errorf("%s has no figures", sc.Name)
		}
	}
}

func TestTheLoadsOfTheOtherScenariosRun(t *testing.T) {
	for _, sc := range load.Scenarios() {
		if sc.Row == nil {
			continue
		}
		small := *sc
		small.Row = &load.Row{Set: func(c *bench.Config) {
			if sc.Row.Set != nil {
				sc.Row.Set(c)
			}
			c.Conns, c.Rate = min(c.Conns, 4), min(c.Rate, 50)
			c.Warmup = 0
		}}
		t.Run(sc.Name, func(t *testing.T) { measureQuickly(t, scenarioRow(&small), fakeCommand(t, "a", "")) })
	}
}
