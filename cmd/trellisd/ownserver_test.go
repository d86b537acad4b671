package main

import (
	"errors"
	"strings"
	"testing"

	"trellis/cmd/internal/operate"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine"
	"trellis/reactor"
)

// A leader that was cut off from the other members goes on to execute what will never be
// committed, until it notices.
func TestTheConsoleOfALeaderThatIsCutOffTellsNothingOfItsJobs(t *testing.T) {
	e := engine.New(engine.Config{})
	r, err := reactor.New(reactor.Config{Engine: e, Now: func() engine.Time { return 0 }, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Abort)
	e.Drain(true)
	leads, asked := true, 0
	serving := &metrics.Serving{Engine: e, Reactor: r, Now: func() engine.Time { return 0 }, Current: func() bool {
		asked++
		return leads
	}}
	s := &ownServer{monitor: new(monitor), opt: new(options.Options), src: metrics.Sources{Serving: func() *metrics.Serving { return serving }}}
	tells := func() map[string]bool {
		_, counts := s.Counts()
		text := ""
		for _, p := range s.Problems() {
			text += p.Text
		}
		memory := false
		for _, l := range s.memory() {
			memory = memory || l.Key == "Of jobs"
		}
		err := s.Tubes(func(*operate.Tube) {})
		if err != nil && !errors.Is(err, errNotLeading) {
			t.Error(err)
		}
		return map[string]bool{
			"counts": counts, "tubes": err == nil, "waits": s.Waits() != nil, "problems": strings.Contains(text, "Draining"), "memory": memory,
		}
	}
	told := tells()
	for what, told := range told {
		if !told {
			t.Errorf("a leader does not tell its %s", what)
		}
	}
	if asked != len(told) {
		t.Errorf("a leader was asked %d times whether it leads", asked)
	}
	leads = false
	for what, told := range tells() {
		if told {
			t.Errorf("a leader that is cut off tells its %s", what)
		}
	}
	found := false
	for _, p := range s.Problems() {
		found = found || p.Severe && strings.Contains(p.Text, "still leads")
	}
	if !found {
		t.Errorf("that it is cut off is no problem: %v", s.Problems())
	}
}

// Where bodies have a limit of their own, only what else jobs take is compared with that of jobs.
func TestTheConsoleComparesWithTheLimitOfJobsWhatThatBounds(t *testing.T) {
	e := engine.New(engine.Config{})
	now := func() engine.Time { return 0 }
	r, err := reactor.New(reactor.Config{Engine: e, Now: now, Loops: 1, MaxJobSize: 100_000})
	servertest.NoError(t, err)
	t.Cleanup(r.Abort)
	conn, err := r.Connect(t.Context())
	servertest.NoError(t, err)
	c := servertest.ClientOn(t, conn)
	c.Send("put 0 0 9 100000", strings.Repeat("x", 100_000))
	c.Want("INSERTED 1")
	s := &ownServer{monitor: new(monitor), opt: new(options.Options), src: metrics.Sources{Serving: func() *metrics.Serving {
		return &metrics.Serving{Engine: e, Reactor: r, Now: now}
	}}}
	taken := e.Snapshot(0)
	for _, x := range []struct {
		limits engine.Limits
		near   bool
	}{
		{engine.Limits{Memory: taken.Memory}, true},
		{engine.Limits{Memory: taken.Memory, Bodies: 1 << 30}, false},
		{engine.Limits{Memory: taken.Memory - taken.Bodies, Bodies: 1 << 30}, true},
	} {
		s.src.Limits = x.limits
		near := false
		for _, p := range s.Problems() {
			near = near || strings.HasPrefix(p.Text, "Jobs take ")
		}
		if near != x.near {
			t.Errorf("%+v is nearly reached: %v", x.limits, near)
		}
	}
}
