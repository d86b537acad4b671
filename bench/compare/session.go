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
	proc   *process
}

// start starts the session's server afresh.
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

// makeDir makes a directory for a server's log.
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

// restart starts it on a directory that it may have used before.
func (s *session) restart(ctx context.Context, args, dir string, cpus []int) (err error) {
	s.proc, err = s.server.start(ctx, args, dir, cpus)
	return err
}

// allCPUs are all processors that the comparison uses, the servers' first.
func (s *session) allCPUs() []int { return append(slices.Clone(s.ServerCPUs), s.LoadCPUs...) }

func (s *session) stop() {
	if s.proc != nil {
		s.proc.stop()
		s.proc = nil
	}
}

func (s *session) close() {
	s.stop()
	for _, d := range s.dirs {
		os.RemoveAll(d)
	}
}

// run puts a load on the server.
func (s *session) run(ctx context.Context, cfg bench.Config) (*bench.RunResult, error) {
	cfg.Addr, cfg.Runs, cfg.CPUs = s.proc.addr, 1, s.LoadCPUs
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

// broke notes that the server broke its promises.
func (s *session) broke(err error) {
	s.notes[NoteBroken] = true
	s.table.Broken = append(s.table.Broken, fmt.Sprintf("%s: %v", s.server.Name, err))
}
