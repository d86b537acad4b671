package compare

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"trellis/bench"
	"trellis/bench/internal/quantity"
	"trellis/bench/load"
)

// SpillLimit is how many bytes of bodies the last server of SpillMatrix should keep in memory.
const SpillLimit = 64_000_000

// SpillMatrix returns the measurements of what it costs to keep most bodies on disk only. The first server should keep
// a log and all bodies in memory, the last no more than SpillLimit.
func SpillMatrix() []Measurement {
	cycle := matrixLoad("cycle", func(c *bench.Config) { c.Depth = 32 })
	return []Measurement{
		loadOn("cycle, 50 connections, 32 pipelined, all bodies in memory", "", cycle,
			rateFigure.with(target{ratioAbove, 0.8}, target{ratioAbove, 0.95}), cpuFigure),
		overflow(10 * SpillLimit / spillBody),
	}
}

// spillBody is how long each body of a backlog is.
const spillBody = 1024

// overflow puts a backlog. Beside it, while more is put, there are cycles in a tube of their own; then it is taken out,
// with other cycles beside that.
func overflow(jobs int64) Measurement {
	load := func(scenario string, conns, depth int) bench.Config {
		return matrixLoad(scenario, func(c *bench.Config) { c.Conns, c.Depth, c.Warmup = conns, depth, 0 })
	}
	fill, grow := load("put", 50, 32), load("put", 10, 1)
	fill.Count = jobs
	grow.Rate, grow.Duration = 10000, 4*time.Second
	for _, cfg := range []*bench.Config{&fill, &grow} {
		cfg.Size, cfg.Keep = bench.FixedSize(spillBody), true
	}
	unit := func(name string) measured { return latency(name, bench.UnitMetric, p99) }
	puts := []measured{
		taken("puts", quantity.PerSecond, rateFigure.value).with(target{ratioAbove, 0.6}, target{ratioAbove, 0.8}),
		taken("memory a job", quantity.Bytes, func(r *bench.RunResult) float64 { return r.BytesPerJob }).with(
			target{valueBelow, 80 + (1.25*SpillLimit+300e6)/float64(jobs)}, target{}),
	}
	beside := []measured{
		taken("commands of cycles in a short tube while it grows", quantity.PerSecond, rateFigure.value).with(
			target{ratioAbove, 0.8}, target{ratioAbove, 0.95}),
		unit("p99 of such a cycle"),
	}
	bystander := unit("p99 of a cycle of another connection meanwhile").with(target{valueBelow, 10e6}, target{})
	drained := figure{
		name: "jobs, reserved and deleted", unit: quantity.PerSecond,
		atLeast: target{ratioAbove, 0.5}, aim: target{ratioAbove, 0.75},
	}
	m := Measurement{
		name:    fmt.Sprintf("%s jobs of 1 KB, 50 connections, 32 pipelined", quantity.Whole(float64(jobs))),
		figures: append(figuresOf(append(puts, beside...)), drained, bystander.figure),
	}
	m.measure = func(ctx context.Context, s *session) (values []float64, err error) {
		if err := s.prepare(ctx, "", &fill); err != nil {
			return nil, err
		}
		// Each load that waits occupies a processor of Go's; here there are two at a time.
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 8))
		run, err := s.run(ctx, fill)
		if err != nil {
			return nil, err
		}
		values = valuesOf(puts, run)
		if run, err = s.whileItGrows(ctx, grow, load("cycle", 10, 4)); err != nil {
			return nil, err
		}
		values = append(values, valuesOf(beside, run)...)
		rate, run, err := s.drain(ctx, fill, load("cycle", 1, 1))
		if run == nil {
			return nil, err
		}
		return append(values, rate, bystander.value(run)), nil
	}
	return m
}

// whileItGrows is a run beside another load, which lasts longer.
func (s *session) whileItGrows(ctx context.Context, other, cfg bench.Config) (*bench.RunResult, error) {
	other = s.complete(s.proc.addr, other)
	grown := make(chan error, 1)
	go func() {
		res, err := load.Run(ctx, other)
		if err == nil {
			err = res.Err()
		}
		grown <- err
	}()
	run, err := s.run(ctx, cfg)
	if e := <-grown; err == nil {
		err = e
	}
	return run, err
}

// drain takes the jobs of a load out, and makes a run meanwhile. rate is how many a second came. The run is nil when
// the server broke.
func (s *session) drain(ctx context.Context, of, cfg bench.Config) (rate float64, run *bench.RunResult, err error) {
	stats, err := load.Stats(&s.proc.addr, s.Token)
	if err != nil {
		return 0, nil, err
	}
	of = s.complete(s.proc.addr, of)
	d, err := load.NewDrain(&of)
	if err != nil {
		return 0, nil, err
	}
	type result struct {
		jobs int
		took time.Duration
		err  error
	}
	drained := make(chan result, 1)
	go func() {
		began := time.Now()
		jobs, err := d.Run(ctx)
		drained <- result{jobs, time.Since(began), err}
	}()
	run, err = s.run(ctx, cfg)
	r := <-drained
	want, _ := strconv.Atoi(stats["current-jobs-ready"])
	switch {
	case err != nil || ctx.Err() != nil:
		return 0, nil, err
	case r.err == nil && r.jobs != want:
		r.err = fmt.Errorf("%d of %d jobs came back", r.jobs, want)
		fallthrough
	case r.err != nil:
		s.broke(r.err)
		return 0, nil, nil
	}
	return float64(r.jobs) / r.took.Seconds(), run, nil
}
