package replica

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/replica/internal/planted"
)

// space looks whether the disk is nearly full, on a goroutine of its own, because a disk may
// take long to say so. It keeps a file as a reserve: a fast disk may be full before space looks
// again, and a job can be deleted only if that can be written to the log. When the writer finds
// the disk full, it removes the reserve, and puts are refused from then on.
type space struct {
	node *Node
	low  atomic.Bool
	free atomic.Int64 // bytes, besides the reserve; below zero while nobody knows

	mu               sync.Mutex // guards what follows
	hasReserve       bool       // the reserve is allocated
	snapshotWantedAt int64      // Clock.Mono when a snapshot was last wanted; zero is never
}

const (
	spaceTime = time.Second // between two looks

	// reserve is what is left for what is on its way, deletes and raft, when puts are refused.
	// Twice maxUncommitted is less.
	reserve     = 256 << 20
	reserveName = "reserve"

	// wantPause is between two snapshots that are wanted because of the disk: each reads all
	// jobs, and may find too little space.
	wantPause = int64(30 * time.Second)

	// shortLogPause is the same while the log is short, so that little but the last snapshot can
	// become smaller.
	shortLogPause = int64(5 * time.Minute)
)

func (s *space) run() {
	if s.node.opts.Free == nil {
		return
	}
	if err := s.node.opts.FS.Remove(s.path()); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may not be whole
		s.node.opts.Log.Warn("the reserve of before stays", "error", err)
	}
	for {
		s.look()
		select {
		case <-s.node.stopped:
			return
		case <-time.After(spaceTime):
		}
	}
}

func (s *space) path() string { return filepath.Join(s.node.opts.Dir, reserveName) }

// look finds out whether the next snapshot, which will be about as long as the last one, fits
// on the disk besides the reserve, with the log up to then: deletes, reservations and their ends are
// recorded in any case.
func (s *space) look() {
	free, err := s.node.opts.Free()
	if err != nil {
		s.node.opts.Log.Warn("nobody knows how much space is left", "dir", s.node.opts.Dir, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.node.store.current().Bytes + max(0, s.longLog()-s.node.log.Size())
	if !s.hasReserve && free >= next+s.node.opts.Reserve && s.allocate() {
		free -= s.node.opts.Reserve
	}
	s.free.Store(free)
	if low := !s.hasReserve || free < next; s.set(low) {
		s.wantSnapshot()
	}
}

// longLog is how long the log is when a snapshot is wanted because of the disk.
func (s *space) longLog() int64 { return s.node.opts.Reserve / 4 }

// allocate makes the reserve. With mu held.
func (s *space) allocate() bool {
	f, err := s.node.opts.FS.Create(s.path(), s.node.opts.Reserve)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.node.opts.Log.Warn("no reserve could be allocated", "error", err)
	}
	s.hasReserve = err == nil
	return s.hasReserve
}

// release gives the reserve to the log, which has found the disk full. It returns false if
// there is none. A snapshot that is being taken would take the reserve as well.
func (s *space) release() bool {
	if s.node.opts.Free == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(true)
	if !s.hasReserve {
		return false
	}
	s.hasReserve = false
	if err := s.node.opts.FS.Remove(s.path()); err != nil {
		s.node.opts.Log.Warn("the reserve cannot be used", "error", err)
		return false
	}
	s.node.applier.post(func() error {
		s.node.applier.voidSnapshot()
		return nil
	})
	return true
}

// set notes whether the disk is nearly full.
func (s *space) set(low bool) bool {
	if planted.Has(planted.EarlyAnswer) {
		low = false // the leader would refuse puts, and nothing would be answered early
	}
	if s.low.Swap(low) != low {
		s.node.opts.Log.Warn("space on the disk", "dir", s.node.opts.Dir, "free", s.free.Load(), "low", low)
	}
	return low
}

// wantSnapshot has a snapshot taken from time to time: the log, or the last snapshot, may be full
// of jobs that were deleted. With mu held.
func (s *space) wantSnapshot() {
	now, pause := s.node.opts.Clock.Mono(), wantPause
	if s.node.log.Size() < s.longLog() {
		pause = shortLogPause
	}
	if s.snapshotWantedAt != 0 && now-s.snapshotWantedAt < pause {
		return
	}
	s.snapshotWantedAt = now
	s.node.applier.requestSnapshot()
}

// checkSpace refuses puts unless a majority of the voters is alive and has free space: a
// commit would need a member whose disk is nearly full. A member that has not reported yet
// counts as having space. While no majority is alive nothing is committed anyway, and
// nothing changes here.
func (c *consensus) checkSpace() {
	if c.leadership == nil {
		return
	}
	voters, alive, room := c.conf.GetVoters(), 0, 0
	for _, id := range voters {
		if !c.alive(id) {
			continue
		}
		alive++
		if !c.reports[id].fullDisk {
			room++
		}
	}
	if alive > len(voters)/2 {
		c.leadership.setLow(room <= len(voters)/2)
	}
}

func (l *Leadership) setLow(low bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaceLow = low
}
