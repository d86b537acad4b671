package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
	"trellis/bench/load"
)

// A recovered is what it takes a server to come back with its jobs. What cannot be told is zero.
type recovered struct {
	took time.Duration // from the start of the process until `stats` was answered
	cpu  time.Duration // the processor time until then
	peak float64       // the most resident memory until then, as a multiple of what the server had before the kill
	disk int64         // bytes of the server's directory before the start
}

// errNotBack is returned for a server that does not start again after a kill.
var errNotBack = errors.New("the server does not come back after a kill")

// recovery puts jobs into a server with a log, kills it without warning, and starts it again. Then all jobs are taken
// out, and compared with what was put. It returns nil when the server does not come back.
func (s *session) recovery(ctx context.Context, args string, cfg bench.Config) (*recovered, error) {
	if s.server.clustered() {
		return nil, fmt.Errorf("%s is a cluster, and recovery is that of a server alone", s.server.Name)
	}
	if err := s.start(ctx, args, s.ServerCPUs); err != nil {
		return nil, err
	}
	if len(s.dirs) == 0 {
		return nil, fmt.Errorf("the command of %s does not say {dir}, so nothing is kept to recover from", s.server.Name)
	}
	r := new(recovered)
	cfg.Keep = false
	cfg.AfterLoad = func() (bench.Address, error) { return s.comeBack(ctx, args, r) }
	_, err := s.run(ctx, cfg)
	if errors.Is(err, errNotBack) {
		s.broke(err)
		return nil, nil
	}
	return r, err
}

// comeBack kills the server, starts it again on its directory and fills in r. It returns the server's new address.
func (s *session) comeBack(ctx context.Context, args string, r *recovered) (bench.Address, error) {
	dir := s.dirs[len(s.dirs)-1]
	before := host.Memory(s.proc.cmd.Process.Pid)
	s.proc.kill()
	s.proc = nil
	r.disk = diskUsage(dir)
	if err := s.restart(ctx, args, dir, s.ServerCPUs); err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errNotBack, err)
		}
		return bench.Address{}, err
	}
	if _, err := load.Stats(&s.proc.addr, s.Token); err != nil {
		return bench.Address{}, fmt.Errorf("%w: %w", errNotBack, err)
	}
	r.took = time.Since(s.proc.startTime)
	pid := s.proc.cmd.Process.Pid
	if used, err := host.CPU(pid); err == nil {
		r.cpu = time.Duration(used.Total)
	}
	if before > 0 {
		r.peak = float64(host.PeakMemory(pid)) / float64(before)
	}
	return s.proc.addr, nil
}

func diskUsage(dir string) int64 {
	total := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
