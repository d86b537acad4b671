package binlog

import (
	"time"

	"trellis/binlog/journal"
)

// Stats are a Log's gauges, and its counters since Open.
type Stats struct {
	OldestSegment, CurrentSegment uint32
	Segments                      int

	DiskBytes     int64 // of all segments' files, and of their indexes
	UsedBytes     int64 // that were appended to them
	LiveBytes     int64 // of the jobs' latest full records, and the latest settings
	FreeBytes     int64 // allocated and not used
	PendingBytes  int64 // appended and not yet written
	UnsyncedBytes int64 // written and not yet synced
	Jobs          int64 // and tombstones
	Stuck         int   // segments that compaction cannot empty because they are damaged
	Unindexed     int   // full segments without an index; 0 without Options.Indexes
	Full          bool  // new jobs are refused for want of disk space
	Failed        bool  // nothing is committed any more
	LastSync      time.Duration

	// Counters.
	Written                          uint64 // records that clients' commands have appended
	Migrated                         uint64 // jobs and settings that compaction has moved
	Syncs                            uint64
	SegmentsCreated, SegmentsRemoved uint64
	AppendWaits                      uint64 // appends that were refused with ErrRoom
	SpaceErrors                      uint64 // attempts to get disk space that failed
	Unreadable                       uint64 // bodies that were asked for and are damaged
}

// Stats tells what the log has done and holds. It takes a lock for a moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, r := l.count, &l.room
	s.Segments, s.Jobs = len(l.segs), r.jobs
	s.DiskBytes, s.UsedBytes, s.LiveBytes, s.FreeBytes, s.PendingBytes = r.disk, r.used, r.live, r.free, l.unwritten
	s.Full, s.Failed = r.full != nil || l.blocked.Load(), l.err != nil
	for _, seg := range l.segs {
		if seg.stuck {
			s.Stuck++
		}
		if l.index != nil && seg.sealed && seg.file == nil && seg.indexed == 0 {
			s.Unindexed++
		}
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
		Migrated: s.Migrated, Written: s.Written + s.Migrated,
	}
}
