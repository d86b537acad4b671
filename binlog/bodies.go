package binlog

import (
	"math/rand/v2"
	"path/filepath"
	"slices"

	"trellis/binlog/internal/bodies"
	"trellis/binlog/internal/elevator"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Load asks for bodies, each of which Hooks.Fetched is told once, or why there is none. It never waits. Any
// goroutine may call it, with no lock that Hooks.Fetched takes. Only a log whose Hooks have Fetched has it.
func (l *Log) Load(fetches []journal.Fetch) {
	l.mu.Lock()
	started := l.bodies != nil
	if !started { // an owner's timer was faster than Start
		l.early = append(l.early, fetches...)
	}
	l.mu.Unlock()
	if started {
		l.bodies.Load(fetches)
	}
}

// Hurry has what was appended written and synced now, not only when its time has come. It does not wait.
func (l *Log) Hurry() {
	if l.pending.Load() > 0 {
		l.waker.wake()
	}
	wake(l.hurrySyncer)
}

// ReadStats are counters of what was read, by lanes.
type ReadStats = bodies.Stats

// Reads tells what was read. Any goroutine may call it.
func (l *Log) Reads() ReadStats {
	if l.bodies == nil {
		return ReadStats{}
	}
	return l.bodies.Stats()
}

// startBodies gets ready to read bodies.
func (l *Log) startBodies() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.bodies.Load(l.early) }()
	end := l.current().place(l.current().used)
	for _, c := range slices.Concat(l.flight.chunks, l.batch.chunks) { // an owner's timer was faster than Start
		end = c.seg.place(c.off)
		break
	}
	l.bodies = bodies.New(bodies.Options{
		Salt: func(segment uint32) record.Salt { return record.NewSalt(l.seed, segment) },
		Open: func(segment uint32) (vfs.File, error) {
			return l.fs.OpenRead(l.path(segment))
		},
		Other: l.otherSegment,
		Needs: func() elevator.Load {
			commits := l.opts.Sync == SyncAlways && (l.pending.Load() > 0 || l.written.Load() > l.synced.Load())
			return elevator.Load{Commits: commits, Compaction: l.slow.Load()}
		},
		Flush:   l.waker.wake,
		Fetched: l.fetched,
	}, end)
}

// fetched tells the owner what was read, and the operator what could not be.
func (l *Log) fetched(found []journal.Fetched) {
	if n := bodies.Report(l.log, l.path, found); n > 0 {
		l.mu.Lock()
		l.count.Unreadable += uint64(n)
		l.mu.Unlock()
	}
	l.hooks.Fetched(found)
}

func (l *Log) path(segment uint32) string { return filepath.Join(l.dir, record.FileName(segment)) }

// otherSegment is any segment but the given one, if there is another, and its length in bytes.
func (l *Log) otherSegment(but uint32) (segment uint32, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := rand.IntN(len(l.segs))
	if l.segs[i].Index == but {
		i = (i + 1) % len(l.segs)
	}
	return l.segs[i].Index, l.segs[i].used
}
