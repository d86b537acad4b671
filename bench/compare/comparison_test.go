package compare

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/bench"
)

func small(scenario string, count int64) bench.Config {
	return bench.Config{Scenario: scenario, Conns: 5, Count: count, Size: bench.FixedSize(50), Seed: 1, ReplyTimeout: time.Minute}
}

func TestComparisonMeasuresAllServersInAllRounds(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", ""), fakeCommand(t, "b", "")}, Rounds: 2, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Measurement{
		Load(small("cycle", 50)),
		withAndWithout("with idle connections", small("cycle", 20), small("cycle", 20), rateFigure, target{valueBelow, 1e9}),
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
	cfg.ReplyTimeout = faultTimeout
	res, err := c.Run(t.Context(), []Measurement{Load(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, bench.ErrBroken) || !strings.Contains(err.Error(), "lossy") {
		t.Errorf("got %v", err)
	}
	if n := res.Rows[0].Cells[1].Notes; len(n) == 0 || n[0] != NoteBroken {
		t.Errorf("the cell does not say so: %v", n)
	}
}

func TestComparisonGoesOnWithoutAServerThatLacksAnOption(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", ""), fakeCommand(t, "b", "")}, Rounds: 1}
	res, err := c.Run(t.Context(), []Measurement{
		loadOn("an option", "broken", small("cycle", 10), rateFigure),
		Load(small("cycle", 10)),
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
	if _, err := c.Run(t.Context(), []Measurement{Load(small("cycle", 10))}); err == nil {
		t.Error("no error")
	}
}

func TestComparisonKeepsWhatWasMeasuredBeforeAFailure(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "")}, Rounds: 1}
	res, err := c.Run(t.Context(), []Measurement{Load(small("cycle", 10)), Recovery("recovery", "", small("put", 10))})
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
	res, err := c.Run(t.Context(), []Measurement{Load(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if n := res.Rows[0].Cells[0].Notes; !slices.Contains(n, NoteBehind) {
		t.Errorf("got %v", n)
	}
}
