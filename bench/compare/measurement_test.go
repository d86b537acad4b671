package compare

import (
	"context"
	"math"
	"runtime"
	"slices"
	"testing"

	"trellis/bench"
)

func TestMeasurementsShowWhatTheirScenarioIsAbout(t *testing.T) {
	for scenario, want := range map[string][]string{
		"cycle":           {"commands", "p99.9 of a unit"},
		"produce-consume": {"p99 of a unit", "p50 from put to reserved"},
		"waiting":         {"p99 from put to reserved", "memory a connection"},
		"reserve-timeout": {"p99 of how late"},
		"idle":            {"memory a connection", "server CPU"},
	} {
		cfg := small(scenario, 0)
		if slices.Contains(want, "memory a connection") {
			cfg.Conns = bench.MemoryConns
		}
		var names []string
		for _, f := range Load(cfg).figures {
			names = append(names, f.name)
		}
		for _, w := range want {
			if !slices.Contains(names, w) {
				t.Errorf("%s: %q is not among %q", scenario, w, names)
			}
		}
		if scenario == "idle" && len(names) != len(want) {
			t.Errorf("idle: got %q", names)
		}
	}
}

func TestMeasurementsWithSeveralLoads(t *testing.T) {
	c := &Comparison{}
	if runtime.GOOS == "linux" {
		c.ServerCPUs, c.LoadCPUs = []int{0}, []int{0, 0}
	}
	table := &Table{Rows: []Row{{Name: closedLoop, Figure: rateFigure.name, Cells: []Cell{{Median: 6000}}}}}
	rows := map[string]Measurement{"open loop": openLoop(small("cycle", 50))}
	if len(c.ServerCPUs) > 0 {
		rows["two loops"] = twoProcessors(small("cycle", 50))
	}
	for name, row := range rows {
		s := &session{Comparison: c, server: fakeCommand(t, "a", ""), table: table, notes: make(map[Note]bool)}
		values, err := row.measure(t.Context(), s)
		s.close()
		if err != nil || len(values) != len(row.figures) || values[0] <= 0 {
			t.Errorf("%s: got %v, %v", name, values, err)
		}
	}
	table.Rows = nil
	s := &session{Comparison: c, server: fakeCommand(t, "a", ""), table: table}
	if _, err := openLoop(small("cycle", 50)).measure(t.Context(), s); err == nil {
		t.Error("the open loop has a rate without the closed loop's")
	}
}

func TestAServerThatBreaksHasNoMultipleOfItself(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux binds to processors")
	}
	c := &Comparison{ServerCPUs: []int{0}, LoadCPUs: []int{0, 0}}
	s := &session{Comparison: c, server: fakeCommand(t, "a", "dropping"), table: new(Table), notes: make(map[Note]bool)}
	defer s.close()
	if values, err := twoProcessors(small("cycle", 50)).measure(t.Context(), s); err != nil || len(values) != 1 || values[0] != 0 {
		t.Errorf("got %v, %v, want 0: not known", values, err)
	}
}

func TestAnOpenLoopWithoutARateEndsNoComparison(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "")}, Rounds: 1}
	unknown := Measurement{
		name: closedLoop, figures: []figure{rateFigure.figure},
		measure: func(context.Context, *session) ([]float64, error) { return nil, nil },
	}
	res, err := c.Run(t.Context(), []Measurement{unknown, openLoop(small("cycle", 10)), Load(small("cycle", 10))})
	if err != nil {
		t.Fatal(err)
	}
	last := res.Rows[len(res.Rows)-1]
	if lines := res.lines(); lines[2][2] != "cannot" || len(last.Cells[0].Values) != 1 {
		t.Errorf("got %q", lines)
	}
}

func TestARunBetweenTwoOthersIsAMultipleOfTheirMean(t *testing.T) {
	for _, x := range []struct {
		commands [3]float64
		used     []int64
		want     float64
	}{
		{[3]float64{10, 10, 10}, []int64{0, 100, 100, 400, 500, 600}, 3},
		{[3]float64{10, 20, 10}, []int64{5, 105, 205, 605, 605, 805}, 4. / 3},
		{[3]float64{10, 10, 10}, []int64{0, 100, 100, 100, 500, 600}, 0},
		{[3]float64{10, 10, 10}, []int64{0, 0, 100, 400, 500, 600}, 0},
		{[3]float64{10, 10, 0}, []int64{0, 100, 100, 400, 500, 600}, 0},
		{[3]float64{10, 10, 10}, []int64{0, 100, 100, 400, 500}, 0},
		{[3]float64{10, 10, 10}, nil, 0},
	} {
		var runs enclosed
		for i, n := range x.commands {
			runs[i] = &bench.RunResult{Summary: bench.Summary{Commands: n}}
		}
		got := runs.times(func(r *bench.RunResult) float64 { return runs.perCommand(r, x.used) })
		if math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%v commands that used %d: got %v times, want %v", x.commands, x.used, got, x.want)
		}
	}
}
