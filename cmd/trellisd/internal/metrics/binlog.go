package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/binlog"
)

var binlogMetrics = list[*binlog.Stats]{
	gauge("beanstalkd_binlog_segments", "Segments of the binlog that hold records.",
		func(s *binlog.Stats) float64 { return float64(s.Segments) }),
	gauge("beanstalkd_binlog_oldest_segment", "Number of the oldest of them.",
		func(s *binlog.Stats) float64 { return float64(s.OldestSegment) }),
	gauge("beanstalkd_binlog_current_segment", "Number of the segment that is written to.",
		func(s *binlog.Stats) float64 { return float64(s.CurrentSegment) }),
	gauge("beanstalkd_binlog_jobs", "Jobs that the binlog holds, and deleted jobs that still keep their unique key.",
		func(s *binlog.Stats) float64 { return float64(s.Jobs) }),
	gauge("beanstalkd_binlog_disk_bytes", "Size of the binlog's files, those included that are kept ready.",
		func(s *binlog.Stats) float64 { return float64(s.DiskBytes) }),
	gauge("beanstalkd_binlog_live_bytes", "Bytes of the records that jobs still need.",
		func(s *binlog.Stats) float64 { return float64(s.LiveBytes) }),
	gauge("beanstalkd_binlog_dead_bytes",
		"Bytes of records that nothing needs any more and that compaction has not removed yet.",
		func(s *binlog.Stats) float64 { return float64(s.UsedBytes - s.LiveBytes) }),
	gauge("beanstalkd_binlog_free_bytes", "Bytes that are allocated on the disk and not used yet.",
		func(s *binlog.Stats) float64 { return float64(s.FreeBytes) }),
	gauge("beanstalkd_binlog_pending_bytes", "Bytes of records that are not written yet.",
		func(s *binlog.Stats) float64 { return float64(s.PendingBytes) }),
	gauge("beanstalkd_binlog_unsynced_bytes", "Bytes that are written and not yet synced to the disk.",
		func(s *binlog.Stats) float64 { return float64(s.UnsyncedBytes) }),
	counter("beanstalkd_binlog_records_written_total", "Records that commands have written.",
		func(s *binlog.Stats) float64 { return float64(s.Written) }),
	counter("beanstalkd_binlog_records_migrated_total", "Records that compaction has moved.",
		func(s *binlog.Stats) float64 { return float64(s.Migrated) }),
	counter("beanstalkd_binlog_segments_created_total", "Segments that were begun.",
		func(s *binlog.Stats) float64 { return float64(s.SegmentsCreated) }),
	counter("beanstalkd_binlog_segments_removed_total", "Segments that were removed.",
		func(s *binlog.Stats) float64 { return float64(s.SegmentsRemoved) }),
	counter("beanstalkd_binlog_append_waits_total",
		"Attempts to record something that found no room and were put off until there was some.",
		func(s *binlog.Stats) float64 { return float64(s.AppendWaits) }),
	counter("beanstalkd_binlog_space_errors_total", "Attempts to get disk space that failed.",
		func(s *binlog.Stats) float64 { return float64(s.SpaceErrors) }),
	gauge("beanstalkd_binlog_full", "1 while new jobs are refused for want of disk space, 0 otherwise.",
		func(s *binlog.Stats) float64 { return oneIf(s.Full) }),
	gauge("beanstalkd_binlog_failed",
		"1 if a write or sync has failed, so that nothing is committed any more, 0 otherwise.",
		func(s *binlog.Stats) float64 { return oneIf(s.Failed) }),
}

// Commits counts what commits cost. It is the binlog's [binlog.Observer]. Any
// goroutine may call its methods.
type Commits struct {
	records, bytes, write, sync prometheus.Histogram
}

// NewCommits makes Commits with nothing counted.
func NewCommits() *Commits {
	return &Commits{
		records: newDistribution("beanstalkd_binlog_commit_records",
			"Records of a commit.", prometheus.ExponentialBuckets(1, 2, 14)),
		bytes: newDistribution("beanstalkd_binlog_commit_bytes",
			"Bytes of a commit.", prometheus.ExponentialBuckets(64, 4, 12)),
		write: newDistribution("beanstalkd_binlog_write_seconds",
			"How long a commit took to be written.", shortTimes),
		sync: newDistribution("beanstalkd_binlog_sync_seconds",
			"How long a sync to the disk took.", shortTimes),
	}
}

// Committed implements [binlog.Observer].
func (c *Commits) Committed(records int, bytes int64, write time.Duration) {
	c.records.Observe(float64(records))
	c.bytes.Observe(float64(bytes))
	c.write.Observe(write.Seconds())
}

// Synced implements [binlog.Observer].
func (c *Commits) Synced(d time.Duration) { c.sync.Observe(d.Seconds()) }

var _ binlog.Observer = (*Commits)(nil)
