package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/binlog"
	"trellis/codec"
	"trellis/engine"
)

// The names of messagebird/beanstalkd_exporter, which Prometheus's list of
// exporters names for beanstalkd: the keys of the commands stats and stats-tube,
// dashes turned to underscores, those of stats-tube with tube_ in front and the
// tube as label. Like there, all of them are gauges. Not shown are its keys whose
// values are no numbers, and its label instance, which Prometheus adds itself.

type legacyServer struct {
	*engine.Snapshot
	collector *collector
	uptime    float64      // whole seconds
	binlog    binlog.Stats // zero if there is none
}

var legacyServerKeys = func() (keys []legacyKey[legacyServer]) {
	add := func(key, help string, value func(s *legacyServer) float64) {
		keys = append(keys, legacyKey[legacyServer]{gauge(legacyName(key), help), value})
	}
	add("current-jobs-urgent", "The number of ready jobs with a priority under 1024.",
		func(s *legacyServer) float64 { return float64(s.Urgent) })
	add("current-jobs-ready", "The number of ready jobs.",
		func(s *legacyServer) float64 { return float64(s.Ready) })
	add("current-jobs-reserved", "The number of reserved jobs.",
		func(s *legacyServer) float64 { return float64(s.Reserved) })
	add("current-jobs-delayed", "The number of delayed jobs.",
		func(s *legacyServer) float64 { return float64(s.Delayed) })
	add("current-jobs-buried", "The number of buried jobs.",
		func(s *legacyServer) float64 { return float64(s.Buried) })
	for op := range codec.NumStock {
		switch op {
		case codec.OpReserveJob, codec.OpKickJob, codec.OpQuit: // stats does not count them
		default:
			add("cmd-"+op.String(), "The number of "+op.String()+" commands.",
				func(s *legacyServer) float64 { return float64(s.Commands[op]) })
		}
	}
	add("job-timeouts", "The number of reservations whose time to run ended.",
		func(s *legacyServer) float64 { return float64(s.Timeouts) })
	add("total-jobs", "The number of jobs that were put.",
		func(s *legacyServer) float64 { return float64(s.Puts) })
	add("max-job-size", "The largest body of a job in bytes.",
		func(s *legacyServer) float64 { return float64(s.collector.src.MaxJobSize) })
	add("current-tubes", "The number of tubes.",
		func(s *legacyServer) float64 { return float64(s.Tubes) })
	add("current-connections", "The number of open connections.",
		func(s *legacyServer) float64 { return float64(s.Connections) })
	add("current-producers", "The number of open connections that have put a job.",
		func(s *legacyServer) float64 { return float64(s.Producers) })
	add("current-workers", "The number of open connections that have reserved a job.",
		func(s *legacyServer) float64 { return float64(s.Workers) })
	add("current-waiting", "The number of open connections that wait for a job.",
		func(s *legacyServer) float64 { return float64(s.Waiting) })
	add("total-connections", "The number of connections that were opened.",
		func(s *legacyServer) float64 { return float64(s.Opened) })
	add("rusage-utime", "The processor time in seconds that the process has used in user mode.",
		func(s *legacyServer) float64 { user, _ := s.collector.src.Usage(); return user.Seconds() })
	add("rusage-stime", "The processor time in seconds that the process has used in system mode.",
		func(s *legacyServer) float64 { _, system := s.collector.src.Usage(); return system.Seconds() })
	add("uptime", "The number of seconds since the server has started.",
		func(s *legacyServer) float64 { return s.uptime })
	add("binlog-oldest-index", "The number of the oldest binlog file, 0 without a binlog.",
		func(s *legacyServer) float64 { return float64(s.binlog.OldestSegment) })
	add("binlog-current-index", "The number of the binlog file that is written to, 0 without a binlog.",
		func(s *legacyServer) float64 { return float64(s.binlog.CurrentSegment) })
	add("binlog-records-migrated", "The number of records that compaction has moved.",
		func(s *legacyServer) float64 { return float64(s.binlog.Migrated) })
	add("binlog-records-written", "The number of records that were written.",
		func(s *legacyServer) float64 { return float64(s.binlog.Written() + s.binlog.Migrated) })
	add("binlog-max-size", "The size in bytes of a binlog file.",
		func(s *legacyServer) float64 { return float64(s.collector.src.SegmentSize) })
	add("draining", "Whether new jobs are refused because of drain mode.",
		func(s *legacyServer) float64 { return oneIf(s.Draining) })
	return keys
}()

var legacyTubeKeys = func() (keys []legacyKey[engine.TubeSnapshot]) {
	add := func(key, help string, value func(t *engine.TubeSnapshot) float64) {
		keys = append(keys, legacyKey[engine.TubeSnapshot]{gauge("tube_"+legacyName(key), help, "tube"), value})
	}
	add("current-jobs-urgent", "The number of ready jobs of this tube with a priority under 1024.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Urgent) })
	add("current-jobs-ready", "The number of ready jobs of this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Ready) })
	add("current-jobs-reserved", "The number of reserved jobs of this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Reserved) })
	add("current-jobs-delayed", "The number of delayed jobs of this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Delayed) })
	add("current-jobs-buried", "The number of buried jobs of this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Buried) })
	add("total-jobs", "The number of jobs that were put into this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Puts) })
	add("current-using", "The number of connections that use this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Using) })
	add("current-watching", "The number of connections that watch this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Watching) })
	add("current-waiting", "The number of connections that wait for a job of this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Waiting) })
	add("cmd-delete", "The number of jobs of this tube that were deleted.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Deletes) })
	add("cmd-pause-tube", "The number of pause-tube commands for this tube.",
		func(t *engine.TubeSnapshot) float64 { return float64(t.Pauses) })
	add("pause", "The number of seconds for which this tube is paused.",
		func(t *engine.TubeSnapshot) float64 { return t.Pause.Seconds() })
	add("pause-time-left", "The number of seconds until the pause of this tube ends.",
		func(t *engine.TubeSnapshot) float64 { return t.PauseLeft.Seconds() })
	return keys
}()

type legacyKey[T any] struct {
	*family
	value func(*T) float64
}

func legacyName(key string) string { return strings.ReplaceAll(key, "-", "_") }

func (c *collector) collectLegacy(
	ch chan<- prometheus.Metric, now engine.Time, s *engine.Snapshot, tubes []engine.TubeSnapshot, log *binlog.Stats,
) {
	uptime := time.Duration(now)
	if c.src.Uptime != nil {
		uptime = c.src.Uptime()
	}
	server := legacyServer{Snapshot: s, collector: c, uptime: float64(uptime / time.Second)}
	if log != nil {
		server.binlog = *log
	}
	for _, k := range legacyServerKeys {
		ch <- k.with(k.value(&server))
	}
	for i := range tubes {
		name := label("tube", tubes[i].Name)
		for _, k := range legacyTubeKeys {
			ch <- k.with(k.value(&tubes[i]), name)
		}
	}
}
