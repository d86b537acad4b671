package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// A Recovery is what it takes a server to come back with its jobs. What cannot be told is zero.
type Recovery struct {
	// Took is the time from the start of the process until `stats` was answered, CPU the processor time until then.
	Took, CPU time.Duration
	// Peak is the most resident memory until then, as a multiple of what the server had before it was killed.
	Peak float64
	// Disk is the size of the server's directory in bytes, before the start.
	Disk int64
}

// errNotBack is returned for a server that does not start any more after a kill.
var errNotBack = errors.New("the server does not come back after a kill")

// recovery puts jobs into a server with a log, kills it without warning, and starts it again. Then all jobs are taken out,
// and compared with what was put. It returns nil when the server does not come back.
func (s *session) recovery(ctx context.Context, args string, cfg Config) (*Recovery, error) {
	if err := s.start(ctx, args, s.ServerCPUs); err != nil {
		return nil, err
	}
	if len(s.dirs) == 0 {
		return nil, fmt.Errorf("the command of %s does not say {dir}, so nothing is kept to recover from", s.server.Name)
	}
	r := new(Recovery)
	cfg.Keep = false
	cfg.afterLoad = func() (*control, error) { return s.comeBack(ctx, args, r) }
	_, err := s.run(ctx, cfg)
	if errors.Is(err, errNotBack) {
		s.broke(err)
		return nil, nil
	}
	return r, err
}

// comeBack kills the server, starts it again on its directory and fills in r. It returns a connection to it.
func (s *session) comeBack(ctx context.Context, args string, r *Recovery) (*control, error) {
	dir := s.dirs[len(s.dirs)-1]
	before := processMemory(s.proc.cmd.Process.Pid)
	s.proc.kill()
	s.proc = nil
	r.Disk = diskUsage(dir)
	if err := s.restart(ctx, args, dir, s.ServerCPUs); err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errNotBack, err)
		}
		return nil, err
	}
	ctl, err := dialControl(&s.proc.addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotBack, err)
	}
	if _, err := ctl.stats("stats"); err != nil {
		ctl.Close()
		return nil, fmt.Errorf("%w: %w", errNotBack, err)
	}
	r.Took = time.Since(s.proc.begun)
	pid := s.proc.cmd.Process.Pid
	if used, err := processCPU(pid); err == nil {
		r.CPU = time.Duration(used.total)
	}
	if before > 0 {
		r.Peak = float64(processPeak(pid)) / float64(before)
	}
	return ctl, nil
}

// diskUsage returns the sum of the sizes of the files in dir.
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
