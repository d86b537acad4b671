package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func small(scenario string, count int64) Config {
	return Config{Scenario: scenario, Conns: 5, Count: count, Size: fixedSize(50), Seed: 1}
}

func TestEveryScenarioRunsCleanAgainstBeanstalkd(t *testing.T) {
	p, err := beanstalkd(t, "").start(t.Context(), "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	for name, cfg := range scenarioCases(t, p.addr) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkClean(t, cfg)
		})
	}
}

func TestLocalServersAreMeasuredByTheKernel(t *testing.T) {
	p, err := beanstalkd(t, "").start(t.Context(), "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	cfg := small("put", 40000)
	cfg.Addr, cfg.Depth, cfg.Keep = p.addr, 32, true
	run := mustRun(t, cfg).Runs[0]
	if run.ServerLocal != (processMemory(os.Getpid()) > 0) {
		t.Errorf("server local: %v", run.ServerLocal)
	}
	if run.CPUPerCommand <= 0 || run.CPUPerCommand > 1e6 {
		t.Errorf("CPU time of %v ns a command", run.CPUPerCommand)
	}
	if run.ServerLocal && (run.BytesPerJob < 50 || run.BytesPerJob > 5000) {
		t.Errorf("%v bytes a job", run.BytesPerJob)
	}
}

func TestComparisonMeasuresAllServersInAllRounds(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", ""), fakeCommand(t, "b", "")}, Rounds: 2, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Row{
		LoadRow(small("cycle", 50)),
		timesRow("with idle connections", small("cycle", 20), small("cycle", 20), rateFigure, target{valueBelow, 1e9}),
		{name: "much too large", figures: []figure{{name: "x"}}, needCPUs: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	for _, r := range res.Rows {
		for _, cell := range r.Cells {
			if r.skipped == "" && len(cell.Values) != 2 {
				t.Errorf("%s, %s: %d values, want 2", r.Name, r.Figure, len(cell.Values))
			}
		}
	}
	var md bytes.Buffer
	if err := res.WriteMarkdown(&md, "the command"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`the command`", "| cycle | commands |", "needs 1048576 processors", "1000000000.000: yes", "version fake"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("%q is not in\n%s", want, md.String())
		}
	}
	if err := res.WriteTable(&md); err != nil {
		t.Error(err)
	}
	if err := res.WriteJSON(&md); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(c.Dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestComparisonReportsAServerThatBreaksThePromises(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "good", ""), fakeCommand(t, "lossy", "lossy")}, Rounds: 1}
	cfg := small("put", 200)
	cfg.Patience = patienceOfFaults
	res, err := c.Run(t.Context(), []Row{LoadRow(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "lossy") {
		t.Errorf("got %v", err)
	}
	if n := res.Rows[0].Cells[1].Notes; len(n) == 0 || n[0] != NoteBroken {
		t.Errorf("the cell does not say so: %v", n)
	}
}

func TestComparisonGoesOnWithoutAServerThatLacksAnOption(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", ""), fakeCommand(t, "b", "")}, Rounds: 1}
	res, err := c.Run(t.Context(), []Row{
		loadRow("an option", "broken", small("cycle", 10), rateFigure),
		LoadRow(small("cycle", 10)),
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := res.lines()
	if !strings.HasPrefix(lines[1][2], "cannot") || strings.HasPrefix(lines[2][2], "cannot") {
		t.Errorf("got %q", lines)
	}
}

func TestRecoveryFindsTheJobsOfBeanstalkd(t *testing.T) {
	c := &Comparison{Servers: []Server{beanstalkd(t, "-b {dir}")}, Rounds: 1, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Row{RecoveryRow("recovery", "", small("put", 500))})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.find("recovery", "disk") == 0 || res.find("recovery", "time until stats are answered") == 0 {
		t.Errorf("figures are missing: %+v", res.Rows)
	}
}

func TestRecoveryMissesJobsThatWereAcknowledged(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "forgetful", "{dir}")}, Rounds: 1, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Row{RecoveryRow("recovery", "", small("put", 10))})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, ErrBroken) {
		t.Errorf("got %v", err)
	}
}

func TestMatricesNameEveryFigureOnce(t *testing.T) {
	for _, rows := range [][]Row{StandardMatrix(), DurabilityMatrix()} {
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

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := ComparisonRow{Cells: []Cell{{Values: []float64{10, 20, 40}}, {Values: []float64{5, 20, 80}}}}
	r.finish()
	if c := r.Cells[1]; c.Median != 20 || c.Ratio != 1 || c.RatioLeast != 0.5 || c.RatioMost != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target       target
		value, ratio float64
		want         bool
	}{
		{target{ratioBelow, 0.8}, 100, 0.8, true},
		{target{ratioBelow, 0.8}, 0, 0.81, false},
		{target{ratioAbove, 12}, 0, 12.1, true},
		{target{ratioAbove, 12}, 100, 11, false},
		{target{valueBelow, 220}, 219, 9, true},
		{target{valueBelow, 220}, 221, 0, false},
		{target{valueAbove, 1.5}, 1.6, 0, true},
		{target{valueAbove, 1.5}, 1.4, 2, false},
		{target{}, 1, 1, true},
	} {
		if got := c.target.met(c.value, c.ratio); got != c.want {
			t.Errorf("%+v: value %v, ratio %v: got %v", c.target, c.value, c.ratio, got)
		}
	}
}

func TestMarkdownReplacesWhatIsBetweenTheMarks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	for _, text := range []string{"one\n", "two\nlines\n"} {
		if err := UpdateMarkdown(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if want := markBegin + text + markEnd; err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("no marks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UpdateMarkdown(file, []byte("x")); err == nil {
		t.Error("a file without marks was changed")
	}
}

func TestParseServer(t *testing.T) {
	for in, want := range map[string]Server{
		"a=/x/beanstalkd -l {host} -p {port}": {"a", "/x/beanstalkd -l {host} -p {port}"},
		"/x/beanstalkd -p {port}":             {"beanstalkd", "/x/beanstalkd -p {port}"},
		"srv --port={port}":                   {"srv", "srv --port={port}"},
	} {
		if got, err := ParseServer(in); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a=", "beanstalkd -p 11300"} {
		if _, err := ParseServer(in); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestRowsWithSeveralLoads(t *testing.T) {
	c := &Comparison{}
	if runtime.GOOS == "linux" {
		c.ServerCPUs, c.LoadCPUs = []int{0}, []int{0, 0}
	}
	table := &Comparisons{Rows: []ComparisonRow{{Name: closedLoopRow, Figure: rateFigure.name, Cells: []Cell{{Median: 6000}}}}}
	rows := map[string]Row{"open loop": openLoopRow(small("cycle", 50))}
	if len(c.ServerCPUs) > 0 {
		rows["two loops"] = twoLoopsRow(small("cycle", 50))
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
	if _, err := openLoopRow(small("cycle", 50)).measure(t.Context(), s); err == nil {
		t.Error("the open loop has a rate without the closed loop's")
	}
}
