package metrics

import (
	"strings"
	"time"

	"trellis/codec"
	"trellis/engine/stats"
)

// The names of messagebird/beanstalkd_exporter, which Prometheus's list of
// exporters names for beanstalkd: the keys of the commands stats and stats-tube,
// dashes turned to underscores, those of stats-tube with tube_ in front and the
// tube as label. Like there, all of them are gauges. Not shown are its keys whose
// values are no numbers, and its label instance, which Prometheus adds itself.

var legacyMetrics = append(legacyCommands(), list[*server]{
	gauge("current_jobs_urgent", "The number of ready jobs with a priority under 1024.",
		func(s *server) float64 { return float64(s.Urgent) }),
	gauge("current_jobs_ready", "The number of ready jobs.",
		func(s *server) float64 { return float64(s.Ready) }),
	gauge("current_jobs_reserved", "The number of reserved jobs.",
		func(s *server) float64 { return float64(s.Reserved) }),
	gauge("current_jobs_delayed", "The number of delayed jobs.",
		func(s *server) float64 { return float64(s.Delayed) }),
	gauge("current_jobs_buried", "The number of buried jobs.",
		func(s *server) float64 { return float64(s.Buried) }),
	gauge("job_timeouts", "The number of reservations whose time to run ended.",
		func(s *server) float64 { return float64(s.Timeouts) }),
	gauge("total_jobs", "The number of jobs that were put.",
		func(s *server) float64 { return float64(s.Puts) }),
	gauge("max_job_size", "The largest body of a job in bytes.",
		func(s *server) float64 { return float64(s.src.MaxJobSize) }),
	gauge("current_tubes", "The number of tubes.",
		func(s *server) float64 { return float64(s.Tubes) }),
	gauge("current_connections", "The number of open connections.",
		func(s *server) float64 { return float64(s.Connections) }),
	gauge("current_producers", "The number of open connections that have put a job.",
		func(s *server) float64 { return float64(s.Producers) }),
	gauge("current_workers", "The number of open connections that have reserved a job.",
		func(s *server) float64 { return float64(s.Workers) }),
	gauge("current_waiting", "The number of open connections that wait for a job.",
		func(s *server) float64 { return float64(s.Waiting) }),
	gauge("total_connections", "The number of connections that were opened.",
		func(s *server) float64 { return float64(s.Opened) }),
	gauge("rusage_utime", "The processor time in seconds that the process has used in user mode.",
		func(s *server) float64 { user, _ := s.src.Usage(); return user.Seconds() }),
	gauge("rusage_stime", "The processor time in seconds that the process has used in system mode.",
		func(s *server) float64 { _, system := s.src.Usage(); return system.Seconds() }),
	gauge("uptime", "The number of seconds since the server has started.",
		func(s *server) float64 { return float64(s.uptime() / time.Second) }),
	gauge("binlog_oldest_index", "The number of the oldest binlog file, 0 without a binlog.",
		func(s *server) float64 { return float64(s.binlog.OldestSegment) }),
	gauge("binlog_current_index", "The number of the binlog file that is written to, 0 without a binlog.",
		func(s *server) float64 { return float64(s.binlog.CurrentSegment) }),
	gauge("binlog_records_migrated", "The number of records that compaction has moved.",
		func(s *server) float64 { return float64(s.binlog.Migrated) }),
	gauge("binlog_records_written", "The number of records that were written.",
		func(s *server) float64 { return float64(s.binlog.Written + s.binlog.Migrated) }),
	gauge("binlog_max_size", "The size in bytes of a binlog file.",
		func(s *server) float64 { return float64(s.src.SegmentSize) }),
	gauge("draining", "Whether new jobs are refused because of drain mode.",
		func(s *server) float64 { return oneIf(s.Draining) }),
}...)

// legacyCommands are the counts of the commands that stats counts.
func legacyCommands() (all list[*server]) {
	for op := range codec.NumStock {
		switch op {
		case codec.OpReserveJob, codec.OpKickJob, codec.OpQuit: // stats does not count them
		default:
			all = append(all, gauge("cmd_"+strings.ReplaceAll(op.String(), "-", "_"), "The number of "+op.String()+" commands.",
				func(s *server) float64 { return float64(s.Commands[op]) }))
		}
	}
	return all
}

var legacyTubeMetrics = list[*stats.Tube]{
	gauge("tube_current_jobs_urgent", "The number of ready jobs of this tube with a priority under 1024.",
		func(t *stats.Tube) float64 { return float64(t.Urgent) }, "tube"),
	gauge("tube_current_jobs_ready", "The number of ready jobs of this tube.",
		func(t *stats.Tube) float64 { return float64(t.Ready) }, "tube"),
	gauge("tube_current_jobs_reserved", "The number of reserved jobs of this tube.",
		func(t *stats.Tube) float64 { return float64(t.Reserved) }, "tube"),
	gauge("tube_current_jobs_delayed", "The number of delayed jobs of this tube.",
		func(t *stats.Tube) float64 { return float64(t.Delayed) }, "tube"),
	gauge("tube_current_jobs_buried", "The number of buried jobs of this tube.",
		func(t *stats.Tube) float64 { return float64(t.Buried) }, "tube"),
	gauge("tube_total_jobs", "The number of jobs that were put into this tube.",
		func(t *stats.Tube) float64 { return float64(t.Puts) }, "tube"),
	gauge("tube_current_using", "The number of connections that use this tube.",
		func(t *stats.Tube) float64 { return float64(t.Using) }, "tube"),
	gauge("tube_current_watching", "The number of connections that watch this tube.",
		func(t *stats.Tube) float64 { return float64(t.Watching) }, "tube"),
	gauge("tube_current_waiting", "The number of connections that wait for a job of this tube.",
		func(t *stats.Tube) float64 { return float64(t.Waiting) }, "tube"),
	gauge("tube_cmd_delete", "The number of jobs of this tube that were deleted.",
		func(t *stats.Tube) float64 { return float64(t.Deletes) }, "tube"),
	gauge("tube_cmd_pause_tube", "The number of pause-tube commands for this tube.",
		func(t *stats.Tube) float64 { return float64(t.Pauses) }, "tube"),
	gauge("tube_pause", "The number of seconds for which this tube is paused.",
		func(t *stats.Tube) float64 { return t.Pause.Seconds() }, "tube"),
	gauge("tube_pause_time_left", "The number of seconds until the pause of this tube ends.",
		func(t *stats.Tube) float64 { return t.PauseLeft.Seconds() }, "tube"),
}
