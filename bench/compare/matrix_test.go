package compare

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/bench/load"
)

func TestMatricesNameEveryFigureOnce(t *testing.T) {
	for _, rows := range [][]Measurement{StandardMatrix(), DurabilityMatrix(), ClusterMatrix()} {
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
	for _, l := range otherScenarios() {
		l.cfg.Conns, l.cfg.Rate = min(l.cfg.Conns, 4), min(l.cfg.Rate, 50)
		l.cfg.Duration, l.cfg.Warmup = 20*time.Millisecond, 0
		t.Run(l.cfg.Scenario, func(t *testing.T) {
			s := &session{Comparison: &Comparison{}, server: fakeCommand(t, "a", ""), table: new(Table), notes: make(map[Note]bool)}
			defer s.close()
			m := l.measurement()
			if values, err := m.measure(t.Context(), s); err != nil || len(values) != len(m.figures) || s.table.Err() != nil {
				t.Errorf("%s: got %v, %v, %v", m.name, values, err, s.table.Err())
			}
		})
	}
}
