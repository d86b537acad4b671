package metrics

import (
	"time"

	dto "github.com/prometheus/client_model/go"

	"trellis/binlog"
	"trellis/codec"
	"trellis/engine"
	"trellis/engine/stats"
)

// server is what the metrics of the server as a whole are read from.
type server struct {
	*stats.Server
	src    *Sources
	now    engine.Time
	binlog binlog.Stats // zero if there is none

	orphaned int // jobs of all tubes
}

func (s *server) uptime() time.Duration {
	if s.src.Uptime != nil {
		return s.src.Uptime()
	}
	return time.Duration(s.now)
}

var serverMetrics = list[*server]{
	gauges("state", "beanstalkd_current_jobs", "Jobs by state. Ready ones include the urgent.", by[*server]{
		{"ready", func(s *server) float64 { return float64(s.Ready) }},
		{"reserved", func(s *server) float64 { return float64(s.Reserved) }},
		{"delayed", func(s *server) float64 { return float64(s.Delayed) }},
		{"buried", func(s *server) float64 { return float64(s.Buried) }},
	}),
	gauge("beanstalkd_current_jobs_urgent", "Ready jobs with a priority under 1024.",
		func(s *server) float64 { return float64(s.Urgent) }),
	counter("beanstalkd_jobs_total", "Jobs that were put.",
		func(s *server) float64 { return float64(s.Puts) }),
	counter("beanstalkd_job_timeouts_total", "Reservations whose time to run ended before the worker was done.",
		func(s *server) float64 { return float64(s.Timeouts) }),
	counters("cause", "beanstalkd_retries_total",
		"Jobs that were delayed, as their tube's setting says, because a reservation had ended by release, "+
			"time-out or disconnect.", by[*server]{
			{"release", func(s *server) float64 { return float64(s.RetriesReleased) }},
			{"timeout", func(s *server) float64 { return float64(s.RetriesTimedOut) }},
			{"disconnect", func(s *server) float64 { return float64(s.RetriesDisconnected) }},
		}),
	counter("beanstalkd_dead_letters_total",
		"Jobs that were buried because their reservations had failed as often as their tube's setting says.",
		func(s *server) float64 { return float64(s.DeadLetters) }),
	gauge("beanstalkd_orphaned_jobs", "Reserved jobs that linger: their workers have lost their connections.",
		func(s *server) float64 { return float64(s.orphaned) }),
	gauge("beanstalkd_held_jobs", "Delayed jobs that wait until a group of jobs is done.",
		func(s *server) float64 { return float64(s.Held) }),
	gauge("beanstalkd_held_jobs_blocked", "Of these, jobs that wait for groups of which all jobs are buried.",
		func(s *server) float64 { return float64(s.Blocked) }),
	counter("beanstalkd_group_firings_total",
		"Held jobs that became ready, or began their delay, because their group was done.",
		func(s *server) float64 { return float64(s.Fired) }),
	counters("outcome", "beanstalkd_expired_total",
		"Jobs that were not started before they expired: deleted, or buried in the dead tube of their tube's setting.",
		by[*server]{
			{"deleted", func(s *server) float64 { return float64(s.ExpiredDeleted) }},
			{"buried", func(s *server) float64 { return float64(s.ExpiredBuried) }},
		}),
	gauge("beanstalkd_settings", "Tubes that have a setting, whether there is a tube of that name or not.",
		func(s *server) float64 { return float64(s.Settings) }),
	gauge("beanstalkd_job_memory_bytes", "Memory that is mapped for jobs and their bodies.",
		func(s *server) float64 { return float64(s.Memory) }),
	gauge("beanstalkd_job_memory_limit_bytes",
		"How much of it may be in use before puts are refused, with --body-memory. Not shown if there is no limit.",
		func(s *server) float64 {
			return shownIf(s.src.Limits.Memory > 0, float64(s.src.Limits.Memory+s.src.Limits.Bodies))
		}),
	gauge("beanstalkd_max_job_size_bytes", "The largest body that is accepted.",
		func(s *server) float64 { return float64(s.src.MaxJobSize) }),
	gauges("kind", "beanstalkd_current_keys",
		"Keys that jobs were put with, each by tube: unique, no two jobs have the same; limited, only some of "+
			"those that have the same may be reserved; fair, those that have the same take turns with others; "+
			"tombstone, unique keys that deleted jobs still keep. And groups, over all tubes.", by[*server]{
			{"unique", func(s *server) float64 { return float64(s.UniqueKeys) }},
			{"limited", func(s *server) float64 { return float64(s.LimitedKeys) }},
			{"fair", func(s *server) float64 { return float64(s.FairKeys) }},
			{"tombstone", func(s *server) float64 { return float64(s.Tombstones) }},
			{"group", func(s *server) float64 { return float64(s.Groups) }},
		}),
	gauge("beanstalkd_max_keys", "How many keys there may be, of all kinds together. Not shown if there is no limit.",
		func(s *server) float64 { return shownIf(s.src.Limits.Keys > 0, float64(s.src.Limits.Keys)) }),
	counter("beanstalkd_duplicate_puts_total",
		"Puts that made no job because another one had, or had had, the same unique key.",
		func(s *server) float64 { return float64(s.Duplicates) }),
	counters("command", "beanstalkd_commands_total", "Commands that were well formed.", byCommand()),
	gauge("beanstalkd_current_connections", "Open connections of clients that have not quit.",
		func(s *server) float64 { return float64(s.Connections) }),
	gauge("beanstalkd_current_producers", "Open connections that have put a job.",
		func(s *server) float64 { return float64(s.Producers) }),
	gauge("beanstalkd_current_workers", "Open connections that have reserved a job or waited for one.",
		func(s *server) float64 { return float64(s.Workers) }),
	gauge("beanstalkd_current_waiting", "Open connections that wait for a job.",
		func(s *server) float64 { return float64(s.Waiting) }),
	counter("beanstalkd_connections_total", "Connections that were opened.",
		func(s *server) float64 { return float64(s.Opened) }),
	gauge("beanstalkd_current_tubes", "Tubes that exist.",
		func(s *server) float64 { return float64(s.Tubes) }),
	gauge("beanstalkd_max_tubes", "How many tubes there may be. Not shown if there is no limit.",
		func(s *server) float64 { return shownIf(s.src.Limits.Tubes > 0, float64(s.src.Limits.Tubes)) }),
	counters("limit", "beanstalkd_refused_commands_total",
		"Commands that were answered OUT_OF_MEMORY because of a limit: on the memory of jobs, on that of "+
			"bodies, on tubes, on the tubes that one client watches, or on keys.", by[*server]{
			{"memory", func(s *server) float64 { return float64(s.RefusedMemory) }},
			{"bodies", func(s *server) float64 { return float64(s.RefusedBodies) }},
			{"tubes", func(s *server) float64 { return float64(s.RefusedTubes) }},
			{"watched", func(s *server) float64 { return float64(s.RefusedWatching) }},
			{"keys", func(s *server) float64 { return float64(s.RefusedKeys) }},
		}),
	gauge("beanstalkd_draining", "1 while new jobs are refused because of drain mode, 0 otherwise.",
		func(s *server) float64 { return oneIf(s.Draining) }),
}

var jobWait = newDurations("beanstalkd_job_wait_seconds",
	"How long jobs were ready before they were reserved.", -14, 17)

// processMetrics are read from the memory that the process can have.
var processMetrics = list[int64]{
	gauge("beanstalkd_process_memory_limit_bytes",
		"Memory that the process can have: the machine's, or less if a control group allows less.",
		func(limit int64) float64 { return shownIf(limit > 0, float64(limit)) }),
}

func byCommand() (all by[*server]) {
	for op := range codec.Op(codec.NumCommands) {
		all = append(all, by[*server]{{op.String(), func(s *server) float64 { return float64(s.Commands[op]) }}}...)
	}
	return all
}

var commandLabels = func() (l [codec.NumCommands]*dto.LabelPair) {
	for op := range l {
		l[op] = label("command", codec.Op(op).String())
	}
	return l
}()
