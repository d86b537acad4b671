package compare

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"trellis/bench"
	"trellis/bench/internal/host"
	"trellis/bench/load"
)

// A session is one server in one round of one measurement.
type session struct {
	*Comparison
	server Server
	table  *Table
	notes  map[Note]bool // of this server's cell
	dirs   []string
	proc   *process   // the one that clients are connected to
	others []*process // further members of its cluster, or a proxy in front of it
}

func (s *session) start(ctx context.Context, args string, cpus []int) error {
	s.stop()
	dir := ""
	if strings.Contains(s.server.Command+args, "{dir}") {
		var err error
		if dir, err = s.makeDir(); err != nil {
			return err
		}
		s.dirs = append(s.dirs, dir)
	}
	return s.restart(ctx, args, dir, cpus)
}

func (s *session) makeDir() (string, error) {
	under := s.Dir
	if under == "" {
		if under = os.TempDir(); host.FileSystem(under) == host.InMemory {
			under = "."
		}
	}
	if s.table != nil {
		s.table.LogsOn = host.FileSystem(under)
	}
	return os.MkdirTemp(under, "trellis-bench-")
}

// restart starts the server on a directory that it may have used before.
func (s *session) restart(ctx context.Context, args, dir string, cpus []int) (err error) {
	all, err := s.server.start(ctx, args, dir, s.Token, cpus)
	if err == nil {
		s.proc, s.others = all[0], all[1:]
	}
	return err
}

// allCPUs are all processors that the comparison uses, the servers' first.
func (s *session) allCPUs() []int { return append(slices.Clone(s.ServerCPUs), s.LoadCPUs...) }

func (s *session) stop() {
	switch {
	case s.proc == nil:
	case s.server.clustered():
		killAll(append(s.others, s.proc)) // a leader that is asked to end looks for a successor first
	default:
		killAll(s.others)
		s.proc.stop()
	}
	s.proc, s.others = nil, nil
}

func (s *session) close() {
	s.stop()
	for _, d := range s.dirs {
		os.RemoveAll(d)
	}
}

func (s *session) run(ctx context.Context, cfg bench.Config) (*bench.RunResult, error) {
	return s.runOn(ctx, s.proc.addr, cfg)
}

// runOn is run at another address of the server.
func (s *session) runOn(ctx context.Context, addr bench.Address, cfg bench.Config) (*bench.RunResult, error) {
	cfg = s.complete(addr, cfg)
	res, err := load.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := res.Err(); err != nil {
		s.broke(err)
	}
	r := &res.Runs[0]
	if r.GeneratorFull() {
		s.notes[NoteFull] = true
	}
	if r.MachineBusy() {
		s.notes[NoteStarved] = true
	}
	if r.Behind(cfg.Rate) {
		s.notes[NoteBehind] = true
	}
	return r, nil
}

// complete adds to a load what the comparison says of all loads.
func (s *session) complete(addr bench.Address, cfg bench.Config) bench.Config {
	cfg.Addr, cfg.Runs, cfg.Token = addr, 1, s.Token
	if cfg.CPUs == nil {
		cfg.CPUs = s.LoadCPUs
	}
	if s.Longest > 0 {
		cfg.Duration, cfg.Warmup = min(cfg.Duration, s.Longest), min(cfg.Warmup, s.Longest)
	}
	return cfg
}

func (s *session) broke(err error) {
	s.notes[NoteBroken] = true
	s.table.Broken = append(s.table.Broken, fmt.Sprintf("%s: %v", s.server.Name, err))
}
