package compare

import (
	"errors"
	"strings"
	"testing"

	"trellis/bench"
	"trellis/bench/internal/host"
)

func TestRecoveryFindsTheJobsOfBeanstalkd(t *testing.T) {
	c := &Comparison{Servers: []Server{beanstalkd(t, "-b {dir}")}, Rounds: 1, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Measurement{Recovery("recovery", "", small("put", 500))})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.find("recovery", "disk") == 0 || res.find("recovery", "time until stats are answered") == 0 {
		t.Errorf("figures are missing: %+v", res.Rows)
	}
	if res.LogsOn != host.FileSystem(c.Dir) {
		t.Errorf("logs on %q, want %q", res.LogsOn, host.FileSystem(c.Dir))
	}
}

func TestRecoveryMissesJobsThatWereAcknowledged(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "forgetful", "{dir}")}, Rounds: 1, Dir: t.TempDir()}
	cfg := small("put", 10)
	cfg.ReplyTimeout = faultTimeout
	res, err := c.Run(t.Context(), []Measurement{Recovery("recovery", "", cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, bench.ErrBroken) {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatRefusesItsOwnLogIsBroken(t *testing.T) {
	c := &Comparison{Servers: []Server{fakeCommand(t, "proud", "")}, Rounds: 1, Dir: t.TempDir()}
	res, err := c.Run(t.Context(), []Measurement{Recovery("recovery", "once {dir}", small("put", 10)), Load(small("cycle", 10))})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); !errors.Is(err, bench.ErrBroken) || !strings.Contains(err.Error(), "I do not know this log") {
		t.Errorf("got %v", err)
	}
	if lines := res.lines(); !strings.HasPrefix(lines[1][2], "fails") || res.find("cycle", "commands") == 0 {
		t.Errorf("got %q", lines)
	}
}
