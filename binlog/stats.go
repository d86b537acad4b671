package binlog

import (
	"time"

	"trellis/binlog/journal"
)

// counters are guarded by the log's mu.
type counters struct {
	puts, updates, deletes, sets, moves uint64

	commits, commitRecords, commitBytes uint64
	largestCommit                       int
	writeTime                           time.Duration

	syncs              uint64
	syncTime, lastSync time.Duration

	created, dropped uint64 // segments
	spaceErrors      uint64 // attempts to allocate that failed
	refused          uint64 // appends that were refused with ErrRoom
}

// Stats are a Log's counters since Open, and its gauges.
type Stats struct {
	OldestSegment, CurrentSegment uint32
	Segments, Spares              int

	DiskBytes     int64 // of all segments' files
	UsedBytes     int64 // that were appended to them
	LiveBytes     int64 // of the jobs' latest full records, and the latest settings
	ReservedBytes int64 // for the deletes and tombstones to come
	FreeBytes     int64 // allocated and not used
	PendingBytes  int64 // appended and not yet written
	UnsyncedBytes int64 // written and not yet synced
	Jobs          int64 // and tombstones
	Settings      int64 // of dead letters

	Puts, Updates, Deletes uint64
	Sets                   uint64 // settings, and ends of settings
	Migrated               uint64 // jobs and settings that compaction has moved

	Commits, CommitRecords, CommitBytes uint64
	LargestCommit                       int // records
	WriteTime                           time.Duration
	Syncs                               uint64
	SyncTime, LastSync                  time.Duration

	SegmentsCreated, SegmentsRemoved uint64
	AppendWaits                      uint64 // appends that were refused with ErrRoom
	SpaceErrors                      uint64 // attempts to get disk space that failed
	Full                             bool   // new jobs are refused for want of disk space
	Failed                           bool   // nothing is committed any more
}

// Written is the number of records that clients' commands have appended.
func (s *Stats) Written() uint64 { return s.Puts + s.Updates + s.Deletes + s.Sets }

// Stats tells what the log has done and holds. It takes a lock for a moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, r := &l.count, &l.room
	s := Stats{
		Segments: len(l.segs), Spares: len(l.spares),
		DiskBytes: r.disk, UsedBytes: r.used, LiveBytes: r.live, ReservedBytes: r.reserved(),
		FreeBytes: r.free, PendingBytes: l.unwritten, Jobs: r.jobs, Settings: int64(len(l.settings)),
		Puts: c.puts, Updates: c.updates, Deletes: c.deletes, Sets: c.sets, Migrated: c.moves,
		Commits: c.commits, CommitRecords: c.commitRecords, CommitBytes: c.commitBytes,
		LargestCommit: c.largestCommit, WriteTime: c.writeTime,
		Syncs: c.syncs, SyncTime: c.syncTime, LastSync: c.lastSync,
		SegmentsCreated: c.created, SegmentsRemoved: c.dropped,
		AppendWaits: c.refused, SpaceErrors: c.spaceErrors,
		Full: r.full != nil || l.blocked.Load(), Failed: l.err != nil,
	}
	if len(l.segs) > 0 {
		s.OldestSegment, s.CurrentSegment = l.segs[0].Index, l.current().Index
	}
	if written, synced := l.written.Load(), l.synced.Load(); l.opts.Sync != SyncNever && written > synced {
		s.UnsyncedBytes = int64(written - synced)
	}
	return s
}

// Counters are the numbers that the command stats shows.
func (l *Log) Counters() journal.Counters {
	s := l.Stats()
	return journal.Counters{
		Oldest: s.OldestSegment, Current: s.CurrentSegment,
		Migrated: s.Migrated, Written: s.Written() + s.Migrated,
	}
}
