package compare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
	"trellis/bench/internal/quantity"
	"trellis/bench/load"
)

// ClusterMatrix returns the measurements of what it costs to keep jobs on several servers. The first server should be
// one that syncs alone before it replies, the last a cluster, and their commands should have {http} in them.
func ClusterMatrix() []Measurement {
	return []Measurement{
		bareSync(),
		clusterLoad("put", 1, 1, latency("p50 of a put", "put", p50)),
		clusterLoad("put", 50, 1),
		clusterLoad("put", 1000, 1),
		clusterLoad("cycle", 50, 32),
		throughStandby(50, 32, 1.25),
		throughStandby(1000, 1, 0.5),
	}
}

// throughStandby is a load on a member that does not lead, between two on the leader. Its figures for the
// processor time that the leader and the third member need for a command are multiples of that without the
// standby, the former good up to cost.
func throughStandby(conns, depth int, cost float64) Measurement {
	cfg := matrixLoad("cycle", func(c *bench.Config) { c.Conns, c.Depth = conns, depth })
	multiple := func(name string, most float64) figure {
		goal := target{valueBelow, most}
		return figure{name: name, unit: quantity.Multiple, atLeast: goal, aim: goal}
	}
	return Measurement{
		name: "cycle, " + connections(conns, depth) + ", through a standby",
		figures: []figure{
			rateFigure.figure,
			multiple("CPU a command of the leader, through the standby / direct", cost),
			multiple("CPU a command of a follower, through another / direct", 1.35),
		},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			if !s.server.clustered() {
				return []float64{0, 0, 0}, nil
			}
			if err := s.prepare(ctx, "", &cfg); err != nil {
				return nil, err
			}
			standby := s.others[0]
			err := standby.await(ctx, standby.addr.Name, startTimeout, func() bool {
				_, err := load.Stats(&standby.addr, s.Token)
				return err == nil
			})
			if err != nil {
				return nil, err
			}
			var used []int64 // by the third member, when recording of each run begins and when it ends
			cfg.Sample = func() {
				if t, err := host.CPU(s.others[1].cmd.Process.Pid); err == nil {
					used = append(used, t.Total)
				}
			}
			runs, err := s.between(ctx, cfg, func() (*bench.RunResult, error) { return s.runOn(ctx, standby.addr, cfg) })
			if err != nil {
				return nil, err
			}
			follower := func(r *bench.RunResult) float64 { return runs.perCommand(r, used) }
			return []float64{runs[1].CommandRate, runs.times(cpuFigure.value), runs.times(follower)}, nil
		},
	}
}

// clusterLoad is a load with what it costs each member, and how the changes of its commands are put together.
// The figures given come first.
func clusterLoad(scenario string, conns, depth int, first ...measured) Measurement {
	cfg := matrixLoad(scenario, func(c *bench.Config) { c.Conns, c.Depth, c.Keep = conns, depth, scenario == "put" })
	leader := cpuFigure
	leader.name = "CPU a command, the server or the leader"
	m := Measurement{name: scenario + ", " + connections(conns, depth)}
	first = append(first, rateFigure, leader)
	m.figures = append(figuresOf(first),
		figure{name: "CPU a command, each of the others", unit: quantity.Nanoseconds, zero: true},
		figure{name: "batches", unit: quantity.PerSecond},
		figure{name: "commands a batch", unit: quantity.Number})
	m.measure = func(ctx context.Context, s *session) ([]float64, error) {
		if err := s.prepare(ctx, "", &cfg); err != nil {
			return nil, err
		}
		var o observation
		observed := cfg
		observed.Sample = func() { o.sample(s) }
		run, err := s.run(ctx, observed)
		if err != nil {
			return nil, err
		}
		others, batches, err := o.end()
		if err != nil && len(run.Violations) > 0 { // a server that broke keeps the figures of the load
			others, batches, err = 0, 0, nil
		}
		if err != nil {
			return nil, fmt.Errorf("observing %s: %w", s.server.Name, err)
		}
		perCommand, perBatch := 0.0, 0.0
		if run.Commands > 0 && len(s.others) > 0 {
			perCommand = float64(others.Nanoseconds()) / run.Commands / float64(len(s.others))
		}
		if batches > 0 {
			perBatch = run.CommandRate / batches
		}
		return append(valuesOf(first, run), perCommand, batches, perBatch), nil
	}
	return m
}

// An observation holds what a load does not tell: what the processes beside the one that serves clients use, and how
// many batches there are. The load calls sample; end may be called when the load has ended.
type observation struct {
	others  []time.Duration // their processor time at each sample
	batches []chan counted  // the counter of batches at each sample
	err     error
}

type counted struct {
	at    time.Time
	value float64
	err   error
}

// sample is called when recording begins and when it ends.
func (o *observation) sample(s *session) {
	used := time.Duration(0)
	for _, p := range s.others {
		t, err := host.CPU(p.cmd.Process.Pid)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			o.err = err
		}
		used += time.Duration(t.Total)
	}
	o.others = append(o.others, used)
	got := make(chan counted, 1)
	o.batches = append(o.batches, got)
	if !strings.Contains(s.server.Command, "{http}") {
		got <- counted{}
		return
	}
	name := "beanstalkd_binlog_commit_records_count"
	if s.server.clustered() {
		name = "beanstalkd_cluster_committed_entries"
	}
	addr := s.proc.http
	go func() { got <- scrape(addr, name) }()
}

// end returns the processor time that the others have used between the samples, and the batches a second, 0 if they are
// not known. It waits for metrics that are still being read.
func (o *observation) end() (others time.Duration, batches float64, err error) {
	if len(o.others) != 2 {
		return 0, 0, errors.New("the load was not recorded to its end")
	}
	var c [2]counted
	for i := range c {
		c[i] = <-o.batches[i]
		o.err = errors.Join(o.err, c[i].err)
	}
	if took := c[1].at.Sub(c[0].at).Seconds(); took > 0 {
		batches = (c[1].value - c[0].value) / took
	}
	return o.others[1] - o.others[0], batches, o.err
}

func scrape(addr, name string) counted {
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + addr + "/metrics")
	if err != nil {
		return counted{err: err}
	}
	defer r.Body.Close()
	at := time.Now()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			return counted{at, v, err}
		}
	}
	return counted{err: fmt.Errorf("the server does not tell %s", name)}
}

const (
	bareSyncs     = 200
	bareSyncBytes = 4096
)

// bareSync is what the disk needs for a write and a sync at the end of a file, without any server.
func bareSync() Measurement {
	return Measurement{
		name:    "the disk alone: write and sync of 4 KiB at the end of a file",
		figures: []figure{{name: "p50", unit: quantity.Nanoseconds}, {name: "p99", unit: quantity.Nanoseconds}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			dir, err := s.makeDir()
			if err != nil {
				return nil, err
			}
			s.dirs = append(s.dirs, dir)
			f, err := os.Create(filepath.Join(dir, "file"))
			if err != nil {
				return nil, err
			}
			defer f.Close()
			var took []float64
			block := make([]byte, bareSyncBytes)
			for range bareSyncs {
				began := time.Now()
				if _, err := f.Write(block); err != nil {
					return nil, err
				}
				if err := f.Sync(); err != nil {
					return nil, err
				}
				took = append(took, float64(time.Since(began)))
			}
			slices.Sort(took)
			return []float64{quantity.Median(took), took[len(took)*99/100]}, ctx.Err()
		},
	}
}
