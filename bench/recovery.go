package bench

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"
)

// A Recovery is what it takes a server to come back with its jobs.
type Recovery struct {
	// Took is the time from the start of the process until `stats` was answered.
	Took time.Duration
	// Disk is the size of the server's directory in bytes, before the start.
	Disk int64
	// Lost is the number of jobs that had been acknowledged and are not there.
	Lost int64
}

// recovery puts jobs into a server with a log, kills it without warning, and starts it again.
func (s *session) recovery(ctx context.Context, args string, cfg Config) (*Recovery, error) {
	if err := s.start(ctx, args, s.ServerCPUs); err != nil {
		return nil, err
	}
	if len(s.dirs) == 0 {
		return nil, fmt.Errorf("the command of %s does not say {dir}, so nothing is kept to recover from", s.server.Name)
	}
	dir := s.dirs[len(s.dirs)-1]
	cfg.Keep = true
	if _, err := s.run(ctx, cfg); err != nil {
		return nil, err
	}
	s.proc.kill()
	s.proc = nil
	r := &Recovery{Disk: diskUsage(dir)}
	if err := s.restart(ctx, args, dir, s.ServerCPUs); err != nil {
		return nil, err
	}
	ctl, err := dialControl(&s.proc.addr)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	stats, err := ctl.stats("stats")
	if err != nil {
		return nil, err
	}
	r.Took = time.Since(s.proc.begun)
	ready, err := strconv.ParseInt(stats["current-jobs-ready"], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("stats without current-jobs-ready: %w", err)
	}
	if r.Lost = cfg.Count - ready; r.Lost != 0 {
		s.notes[NoteBroken] = true
		s.table.Broken = append(s.table.Broken, fmt.Sprintf("%s: %d jobs were acknowledged, %d are there after a restart", s.server.Name, cfg.Count, ready))
	}
	return r, nil
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
