package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

func TestConnectionsAreWeighedWhileTheyAreOpen(t *testing.T) {
	p, err := beanstalkd(t, "").start(t.Context(), "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	for scenario, waiting := range map[string]int{"waiting": 0, "cycle": enoughConns} {
		cfg := small(scenario, 50)
		cfg.Addr, cfg.Waiting = p.addr, waiting
		if waiting == 0 {
			cfg.Conns = enoughConns
		}
		run := mustRun(t, cfg).Runs[0]
		if run.ServerLocal && (run.BytesPerConn == 0 || run.BytesPerConn > 1e5) {
			t.Errorf("%s: %v bytes a connection", scenario, run.BytesPerConn)
		}
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
			if r.Skipped == "" && len(cell.Values) != 2 {
				t.Errorf("%s, %s: %d values, want 2", r.Name, r.Figure, len(cell.Values))
			}
		}
	}
	var md bytes.Buffer
	if err := res.WriteMarkdown(&md, "the command"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`the command`", "| cycle | commands |", "needs 1048576 processors", "≤ 1000000000.000: yes", "version fake"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("%q is not in\n%s", want, md.String())
		}
	}
	if err := res.WriteTable(&md); err != nil {
		t.Error(err)
	}
	md.Reset()
	if err := res.WriteJSON(&md); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"machine": "`, `"target": "≤ 1000000000.000",`, `"met": true`, `"skipped": "needs`} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("%q is not in\n%s", want, md.String())
		}
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

func TestAComparisonOfNoRoundsIsRefused(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "")}}
	if _, err := c.Run(t.Context(), []Row{LoadRow(small("cycle", 10))}); err == nil {
		t.Error("no error")
	}
}

func TestComparisonKeepsWhatWasMeasuredBeforeAFailure(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "")}, Rounds: 1}
	res, err := c.Run(t.Context(), []Row{LoadRow(small("cycle", 10)), RecoveryRow("recovery", "", small("put", 10))})
	if err == nil || !strings.Contains(err.Error(), "{dir}") {
		t.Errorf("got %v", err)
	}
	if res == nil || len(res.Rows) == 0 || len(res.Rows[0].Cells[0].Values) != 1 {
		t.Errorf("got %+v", res)
	}
}

func TestComparisonNotesARateThatIsNotReached(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "")}, Rounds: 1}
	cfg := small("cycle", 50)
	cfg.Rate = 1e9
	res, err := c.Run(t.Context(), []Row{LoadRow(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if n := res.Rows[0].Cells[0].Notes; !slices.Contains(n, NoteBehind) {
		t.Errorf("got %v", n)
	}
}

func TestRowsShowWhatTheirScenarioIsAbout(t *testing.T) {
	for scenario, want := range map[string][]string{
		"cycle":           {"commands", "p99.9 of a unit"},
		"produce-consume": {"p99 of a unit", "p50 from put to reserved"},
		"waiting":         {"p99 from put to reserved", "memory a connection"},
		"reserve-timeout": {"p99 of how late"},
		"idle":            {"memory a connection", "server CPU"},
	} {
		cfg := small(scenario, 0)
		if slices.Contains(want, "memory a connection") {
			cfg.Conns = enoughConns
		}
		var names []string
		for _, f := range LoadRow(cfg).figures {
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
	if res.LogsOn != fileSystem(c.Dir) {
		t.Errorf("logs on %q, want %q", res.LogsOn, fileSystem(c.Dir))
	}
}

func TestRecoveryMissesJobsThatWereAcknowledged(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "forgetful", "{dir}")}, Rounds: 1, Dir: t.TempDir()}
	cfg := small("put", 10)
	cfg.Patience = patienceOfFaults
	res, err := c.Run(t.Context(), []Row{RecoveryRow("recovery", "", cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, ErrBroken) {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatRefusesItsOwnLogIsBroken(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "proud", "")}, Rounds: 1, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Row{RecoveryRow("recovery", "once {dir}", small("put", 10)), LoadRow(small("cycle", 10))})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "I do not know this log") {
		t.Errorf("got %v", err)
	}
	if lines := res.lines(); !strings.HasPrefix(lines[1][2], "fails") || res.find("cycle", "commands") == 0 {
		t.Errorf("got %q", lines)
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
	f := figure{unit: bytesEach}
	for _, c := range []struct {
		target       target
		value, ratio float64
		want         string
	}{
		{target{ratioBelow, 0.8}, 100, 0.8, "ratio ≤ 0.80: yes"},
		{target{ratioBelow, 0.8}, 0, 0.81, "ratio ≤ 0.80: no"},
		{target{ratioBelow, 0.8}, 100, 0, "ratio ≤ 0.80"},
		{target{ratioAbove, 12}, 0, 12.1, "ratio ≥ 12.0: yes"},
		{target{ratioAbove, 12}, 100, 11, "ratio ≥ 12.0: no"},
		{target{valueBelow, 220}, 219, 9, "≤ 220 B: yes"},
		{target{valueBelow, 220}, 221, 0, "≤ 220 B: no"},
		{target{valueBelow, 220}, 0, 1, "≤ 220 B"},
		{target{valueAbove, 2}, 3, 0, "≥ 2 B: yes"},
		{target{valueAbove, 2}, 1, 2, "≥ 2 B: no"},
		{target{}, 1, 1, ""},
	} {
		if got := f.judge(c.target, c.value, c.ratio).String(); got != c.want {
			t.Errorf("%+v: value %v, ratio %v: got %q, want %q", c.target, c.value, c.ratio, got, c.want)
		}
	}
}

func TestARatioNeedsAllValues(t *testing.T) {
	f := figure{atLeast: target{ratioBelow, 1}}
	for _, second := range [][]float64{nil, {1}, {1, 0}} {
		r := ComparisonRow{figure: f, Cells: []Cell{{Values: []float64{2, 2}}, {Values: second}}}
		r.finish()
		if r.Cells[1].Ratio != 0 || r.AtLeast.Met != nil {
			t.Errorf("%v: got %+v", second, r)
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
