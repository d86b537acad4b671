package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/internal/faulty"
)

// quick is a small load that ends by a count.
func quick(addr bench.Address, scenario string) bench.Config {
	return bench.Config{Addr: addr, Scenario: scenario, Conns: 8, Count: 200, Seed: 7, ReplyTimeout: time.Minute}
}

func mustRun(t *testing.T, cfg bench.Config) *bench.Result {
	t.Helper()
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustSizes(t *testing.T, s string) bench.Sizes {
	t.Helper()
	z, err := bench.ParseSizes(s, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func mustMix(t *testing.T, s string) bench.Mix {
	t.Helper()
	m, err := bench.ParseMix(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const testMix = `
# a little of everything
40 put pri=0-1000 delay=0
40 reserve
30 delete
4 release pri=5 delay=0-1
2 bury
1 kick bound=10
2 touch
1 peek-ready
1 peek-buried
1 peek-delayed
1 stats
1 stats-job
1 stats-tube
1 list-tubes
`

// scenarioCases covers every scenario, and every option that changes what is sent.
func scenarioCases(t *testing.T, addr bench.Address) map[string]bench.Config {
	cases := make(map[string]bench.Config)
	for _, sc := range scenarios {
		cfg := quick(addr, sc.Name)
		if sc.Uses&Count == 0 {
			cfg.Count, cfg.Duration = 0, 50*time.Millisecond
		}
		if sc.Uses&Mix != 0 {
			cfg.Mix = mustMix(t, testMix)
		}
		cases[sc.Name] = cfg
	}
	with := func(name, scenario string, change func(*bench.Config)) {
		cfg := quick(addr, scenario)
		change(&cfg)
		cases[name] = cfg
	}
	with("mix", "mix", func(c *bench.Config) { c.Mix, c.Depth = mustMix(t, testMix), 4 })
	with("reserve-timeout", "reserve-timeout", func(c *bench.Config) { c.Count, c.Timeout = 16, time.Second })
	with("reserve-timeout of nothing", "reserve-timeout", func(c *bench.Config) { c.Timeout = 0 })
	with("priorities", "priorities", func(c *bench.Config) { c.Count, c.Conns, c.Depth = 8, 2, 4 })
	with("large", "large", func(c *bench.Config) { c.Depth = 3 })
	with("cycle pipelined", "cycle", func(c *bench.Config) { c.Depth = 32 })
	with("bury-kick pipelined", "bury-kick", func(c *bench.Config) { c.Depth = 5 })
	with("many-tubes pipelined", "many-tubes", func(c *bench.Config) { c.Depth, c.Tubes = 5, 30 })
	with("several threads", "cycle", func(c *bench.Config) { c.Threads = 3 })
	with("several threads, jobs go between them", "produce-consume", func(c *bench.Config) { c.Threads, c.Depth = 3, 4 })
	with("open loop", "cycle", func(c *bench.Config) { c.Rate = 5000 })
	with("open loop with workers", "produce-consume", func(c *bench.Config) { c.Rate = 5000 })
	with("for a time", "cycle", func(c *bench.Config) {
		c.Count, c.Duration, c.Warmup = 0, time.Second, 20*time.Millisecond
	})
	with("held, waiting and idle", "cycle", func(c *bench.Config) { c.Held, c.Waiting, c.Idle, c.FurtherTubes = 40, 5, 5, 5 })
	with("empty bodies", "cycle", func(c *bench.Config) { c.Size = mustSizes(t, "0") })
	with("bodies of all sizes", "produce-consume", func(c *bench.Config) { c.Size, c.Depth = mustSizes(t, "0-3000"), 4 })
	with("bodies left in the server", "put", func(c *bench.Config) { c.Size, c.Depth = mustSizes(t, "exp:300"), 4 })
	return cases
}

func TestEveryScenarioRunsCleanAgainstACorrectServer(t *testing.T) {
	t.Parallel()
	s := faulty.Start(t, "tcp", faulty.Faults{})
	t.Run("all", func(t *testing.T) {
		for name, cfg := range scenarioCases(t, s.Addr) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkClean(t, cfg)
			})
		}
	})
	if left := s.Jobs(); len(left) > 0 {
		t.Errorf("%d jobs are left in the server", len(left))
	}
}

func TestEveryKindOfAddressIsReached(t *testing.T) {
	for _, network := range []string{"unix", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
				l.Close()
			} else if network == "tcp6" {
				t.Skipf("this machine has no IPv6: %v", err)
			}
			checkClean(t, quick(faulty.Start(t, network, faulty.Faults{}).Addr, "produce-consume"))
		})
	}
}

// checkClean runs cfg and looks at the result.
func checkClean(t *testing.T, cfg bench.Config) {
	counts := FindScenario(cfg.Scenario).Uses&Count != 0
	var run *bench.RunResult
	for tries := 0; run == nil || counts && cfg.Count == 0 && run.Units == 0 && tries < 5; tries++ { // a stall may take all the time
		res := mustRun(t, cfg)
		if err := res.Err(); err != nil {
			t.Fatal(err)
		}
		run = &res.Runs[0]
	}
	if !counts {
		return
	}
	if cfg.Count > 0 && run.Units != float64(cfg.Count) {
		t.Errorf("%v units, want %d", run.Units, cfg.Count)
	}
	if run.Units == 0 || run.Commands < run.Units || run.Metric(bench.UnitMetric) == nil {
		t.Errorf("figures are missing: %+v", run)
	}
}

func TestBooksCatchEveryFault(t *testing.T) {
	t.Parallel()
	cycle := []string{"put", "cycle", "produce-consume", "mix"}
	for _, c := range []struct {
		name      string
		faults    faulty.Faults
		want      bench.Violation
		scenarios []string
	}{
		{"a lost job", faulty.Faults{Lose: 10}, bench.ViolationLost, cycle},
		{"a job under two ids", faulty.Faults{Copy: 10}, bench.ViolationDuplicate, cycle},
		{"a job handed out twice", faulty.Faults{HandTwice: 5}, bench.ViolationDuplicate, cycle},
		{"a deleted job that comes again", faulty.Faults{Undelete: 10}, bench.ViolationDuplicate, cycle},
		{"an id given twice", faulty.Faults{SameID: 10}, bench.ViolationDuplicate, cycle},
		{"a corrupted body", faulty.Faults{Corrupt: 10}, bench.ViolationCorrupt, cycle},
		{"a truncated body", faulty.Faults{Truncate: 10}, bench.ViolationCorrupt, cycle},
		{"a body that belongs to another job", faulty.Faults{Swap: 5}, bench.ViolationCorrupt, []string{"put", "produce-consume"}},
		{"a delete that is refused", faulty.Faults{Refuse: 10}, bench.ViolationReply, cycle},
		{"a line that is not of the protocol", faulty.Faults{Garbage: 10}, bench.ViolationReply, cycle},
		{"a reply too many", faulty.Faults{Extra: 150}, bench.ViolationReply, []string{"cycle"}},
		{"a connection that is closed", faulty.Faults{Drop: 40}, bench.ViolationClosed, cycle},
		{"a reply that does not come", faulty.Faults{Mute: 150}, bench.ViolationMissing, []string{"put", "cycle"}},
		{"an error reply", faulty.Faults{Reject: 1}, bench.ViolationReply, []string{"put", "cycle"}},
		{"a delay that ends early", faulty.Faults{Early: true}, bench.ViolationEarly, []string{"delayed", "reserve-timeout"}},
		{"jobs out of order", faulty.Faults{AnyOrder: true}, bench.ViolationOrder, []string{"priorities"}},
	} {
		for _, scenario := range c.scenarios {
			t.Run(c.name+"/"+scenario, func(t *testing.T) {
				t.Parallel()
				patiently(t, func(patience time.Duration) error {
					s := faulty.Start(t, "tcp", c.faults)
					cfg := scenarioCases(t, s.Addr)[scenario]
					cfg.ReplyTimeout = patience
					if scenario == "delayed" {
						cfg.Count = 20
					}
					res, err := Run(t.Context(), cfg)
					if err != nil {
						return err
					}
					err = res.Err()
					if !errors.Is(err, bench.ErrBroken) {
						t.Fatalf("the fault was not noticed: %v", err)
					}
					for _, v := range res.Runs[0].Violations {
						if v.Kind == c.want && v.Count > 0 && len(v.Examples) > 0 {
							return nil
						}
					}
					return fmt.Errorf("want a violation %q, got %w", c.want, err)
				})
			})
		}
	}
}

// One worker gives up, with units that it has not begun; the others must not wait for them.
func TestAWorkerThatGivesUpEndsTheRunOfAll(t *testing.T) {
	t.Parallel()
	s := faulty.Start(t, "tcp", faulty.Faults{Mute: 150}) // of 200 puts, one is not answered
	patiently(t, func(patience time.Duration) error {
		cfg := quick(s.Addr, "produce-consume")
		cfg.Conns, cfg.Producers, cfg.Threads, cfg.ReplyTimeout = 6, 3, 3, patience
		res, err := Run(t.Context(), cfg)
		if err != nil {
			return err
		}
		for _, v := range res.Runs[0].Violations {
			if v.Kind == bench.ViolationMissing {
				return nil
			}
		}
		return errors.New("nothing was missing")
	})
}

// The jobs of a connection come back when it is closed, and a job whose reply is missing may be there or not.
func TestNothingElseIsWrongWhenAConnectionBreaks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario string
		depth    int
		faults   faulty.Faults
		want     bench.Violation
	}{
		{"put", 1, faulty.Faults{Mute: 150}, bench.ViolationMissing},
		{"cycle", 1, faulty.Faults{Mute: 150}, bench.ViolationMissing},
		{"cycle", 8, faulty.Faults{Drop: 40}, bench.ViolationClosed},
		{"cycle", 1, faulty.Faults{Refuse: 10}, bench.ViolationReply},
	} {
		t.Run(fmt.Sprintf("%s, %s", c.scenario, c.want), func(t *testing.T) {
			t.Parallel()
			patiently(t, func(patience time.Duration) error {
				s := faulty.Start(t, "tcp", c.faults)
				cfg := quick(s.Addr, c.scenario)
				cfg.Depth, cfg.ReplyTimeout = c.depth, patience
				res, err := Run(t.Context(), cfg)
				if err != nil {
					return err
				}
				if v := res.Runs[0].Violations; len(v) != 1 || v[0].Kind != c.want {
					return fmt.Errorf("got %v, want %q alone", res.Err(), c.want)
				}
				if left := s.Jobs(); len(left) > 0 {
					return fmt.Errorf("%d jobs are left in the server", len(left))
				}
				return nil
			})
		})
	}
}

func TestRunsAreSummarised(t *testing.T) {
	s := faulty.Start(t, "tcp", faulty.Faults{})
	cfg := quick(s.Addr, "cycle")
	cfg.Runs = 3
	res := mustRun(t, cfg)
	if len(res.Runs) != 3 {
		t.Fatalf("%d runs, want 3", len(res.Runs))
	}
	if res.Median.Units != 200 || res.Least.CommandRate > res.Median.CommandRate || res.Median.CommandRate > res.Most.CommandRate {
		t.Errorf("not a summary: %+v %+v %+v", res.Least, res.Median, res.Most)
	}
}

func TestARunEndsOnAServerThatKeepsWhatItDeletes(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"put", "cycle"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			patiently(t, func(patience time.Duration) error {
				cfg := quick(faulty.Start(t, "tcp", faulty.Faults{Undelete: 1}).Addr, scenario)
				cfg.ReplyTimeout = patience
				res, err := Run(t.Context(), cfg)
				if err == nil && !errors.Is(res.Err(), bench.ErrBroken) {
					err = fmt.Errorf("got %v", res.Err())
				}
				return err
			})
		})
	}
}

func TestTheSameSeedMakesTheSameBodies(t *testing.T) {
	t.Parallel()
	bodiesOf := func(seed uint64) string {
		s := faulty.Start(t, "tcp", faulty.Faults{})
		cfg := quick(s.Addr, "put")
		cfg.Seed, cfg.Keep, cfg.Conns, cfg.Size = seed, true, 1, mustSizes(t, "10-200")
		if err := mustRun(t, cfg).Err(); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		jobs := s.Jobs()
		for _, id := range slices.Sorted(maps.Keys(jobs)) {
			fmt.Fprintln(&all, jobs[id])
		}
		return all.String()
	}
	first, again := bodiesOf(3), bodiesOf(3)
	if first != again {
		t.Error("one seed made two loads")
	}
	if first == bodiesOf(4) {
		t.Error("two seeds made one load")
	}
}

func TestOpenLoopCountsFromWhenAUnitWasDue(t *testing.T) {
	s := faulty.Start(t, "tcp", faulty.Faults{})
	cfg := quick(s.Addr, "cycle")
	cfg.Conns, cfg.Count, cfg.Rate = 1, 300, 1e7 // far more than the server can do
	run := mustRun(t, cfg).Runs[0]
	unit, reserve := run.Metric(bench.UnitMetric), run.Metric("reserve")
	// The last unit was due almost at the start, so that it took nearly all the time; its commands did not.
	if float64(unit.Max) < 0.8*run.Seconds*1e9 || reserve.P50 > unit.P50 {
		t.Errorf("a stall is hidden: %v s in all, units %+v, reserves %+v", run.Seconds, unit, reserve)
	}
}

func TestOpenLoopRecordsEveryUnitThatWasDue(t *testing.T) {
	s := faulty.Start(t, "tcp", faulty.Faults{})
	cfg := quick(s.Addr, "cycle")
	cfg.Conns, cfg.Count, cfg.Rate = 1, 0, 20000 // far more than one connection can do
	cfg.Warmup, cfg.Duration = 10*time.Millisecond, 100*time.Millisecond
	run := mustRun(t, cfg).Runs[0]
	if n := run.Metric(bench.UnitMetric).Count; n < 1999 || n > 2001 {
		t.Errorf("%d units were recorded, 2000 were due", n)
	}
}

func TestOpenLoopGivesUpWhatCannotBeginInTime(t *testing.T) {
	cfg := bench.Config{Scenario: "cycle"}
	s := &shared{cfg: &cfg, counters: make([]counters, 1), base: time.Now()}
	w := newWorker(s, 0)
	w.window, w.recording, w.budget = times{record: 1000, stop: 2000}, true, -1
	w.nextDue, w.interval = 905, 10
	w.advance(2000 + longestTail - 1)
	if w.stopping || w.unbegun > 0 {
		t.Errorf("stopping: %v, %d units given up before the time", w.stopping, w.unbegun)
	}
	w.advance(2000 + longestTail)
	w.rec.flush()
	if h := w.rec.hists[metricUnit]; !w.stopping || h == nil || h.TotalCount() != 100 || w.mayBegin(2000+longestTail) {
		t.Errorf("stopping: %v, recorded %v, want the 100 units from 1000 to 2000", w.stopping, h)
	}
}

func TestAFailedRunTakesItsJobsOut(t *testing.T) {
	s := faulty.Start(t, "tcp", faulty.Faults{Reject: 7})
	cfg := quick(s.Addr, "cycle")
	cfg.FurtherTubes = 10
	if res, err := Run(t.Context(), cfg); err == nil {
		t.Errorf("no error: %+v", res)
	}
	if left := s.Jobs(); len(left) > 0 {
		t.Errorf("%d jobs are left in the server", len(left))
	}
}

func TestCleaningWatchesABoundedNumberOfTubes(t *testing.T) {
	f := faulty.Start(t, "tcp", faulty.Faults{})
	ctl, err := dialControl(&f.Addr, "", controlTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	s := &shared{cfg: &bench.Config{ReplyTimeout: time.Minute}, bodies: newBodies(bench.FixedSize(10), 1), base: time.Now()}
	s.book = newBook(&s.violations, s.bodies, false)
	for i := range 2*watchedAtOnce + 500 {
		s.tubes = append(s.tubes, fmt.Sprint("tube-", i))
	}
	for seq, tube := range []int{0, watchedAtOnce, len(s.tubes) - 1} {
		body := s.bodies.append(nil, uint64(seq), 10)
		if _, err := ctl.ask("use "+s.tubes[tube], replyUsing); err != nil {
			t.Fatal(err)
		}
		r, err := ctl.ask(fmt.Sprintf("put 0 0 10 10\r\n%s", body), replyInserted)
		if err != nil {
			t.Fatal(err)
		}
		s.book.inserted(r.id, uint64(seq), 0, 0)
	}
	for range 2 { // the second time it begins with the tubes of the end
		if err := s.cleanUp(ctl); err != nil {
			t.Fatal(err)
		}
	}
	s.book.close(false)
	if v := s.report(); v != nil || len(f.Jobs()) > 0 {
		t.Errorf("%d jobs are left, violations %v", len(f.Jobs()), v)
	}
	if n := f.MostWatched(); n > 2*watchedAtOnce {
		t.Errorf("%d tubes were watched at once", n)
	}
}

func TestCleaningSendsNothingBehindAReserveThatTimesOut(t *testing.T) {
	t.Parallel()
	s := faulty.Start(t, "tcp", faulty.Faults{Forgetful: true})
	for _, scenario := range []string{"put", "cycle", "bury-kick", "mix"} {
		cfg := scenarioCases(t, s.Addr)[scenario]
		cfg.Depth, cfg.Tubes = 1, 3 // with more, the load itself sends commands behind such a reserve
		t.Run(scenario, func(t *testing.T) { checkClean(t, cfg) })
	}
	if left := s.Jobs(); len(left) > 0 {
		t.Errorf("%d jobs are left in the server", len(left))
	}
}

func TestAnInterruptedRunEnds(t *testing.T) {
	t.Parallel()
	s := faulty.Start(t, "tcp", faulty.Faults{})
	cfg := quick(s.Addr, "cycle")
	cfg.Count, cfg.Duration = 0, time.Hour
	cfg.ReplyTimeout = time.Hour // what had been on its way keeps nobody waiting
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(p bench.Progress) {
		if p.Commands > 0 {
			cancel()
		}
	}
	res, err := Run(ctx, cfg)
	if !errors.Is(err, errAborted) {
		t.Errorf("got %v", err)
	}
	if res == nil || res.Runs[0].Commands == 0 || res.Median.CommandRate == 0 {
		t.Errorf("what was measured before is gone: %+v", res)
	}
	if left := s.Jobs(); len(left) > 0 {
		t.Errorf("%d jobs are left in the server", len(left))
	}
}

func TestAnInterruptionIsHeededBeforeTheServerHasAnswered(t *testing.T) {
	l, addr := listen(t)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil { // and never answer
			defer c.Close()
			_, _ = c.Read(make([]byte, 100))
			cancel()
			_, _ = c.Read(make([]byte, 1)) // the end of the connection
		}
	}()
	cfg := quick(addr, "cycle")
	cfg.ReplyTimeout = time.Hour
	if _, err := Run(ctx, cfg); !errors.Is(err, errAborted) {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	addr, err := bench.ParseAddress("unix:" + t.TempDir() + "/nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), quick(addr, "cycle")); err == nil {
		t.Error("no error")
	}
}

// patiently runs a load that waits for what a faulty server does not send. On a machine that stands still meanwhile, a
// correct reply seems to be missing too: then the load gets more patience.
func patiently(t *testing.T, run func(patience time.Duration) error) {
	t.Helper()
	for patience := 2 * time.Second; ; patience *= 4 {
		err := run(patience)
		if err == nil {
			return
		}
		if patience > time.Minute {
			t.Error(err)
			return
		}
		t.Logf("with a patience of %v: %v", patience, err)
	}
}
