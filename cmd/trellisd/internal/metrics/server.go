package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/codec"
	"trellis/engine"
)

var (
	currentJobs = gauge("beanstalkd_current_jobs",
		"Jobs by state. Ready ones include the urgent.", "state")
	currentJobsUrgent = gauge("beanstalkd_current_jobs_urgent",
		"Ready jobs with a priority under 1024.")
	jobs = counter("beanstalkd_jobs_total",
		"Jobs that were put.")
	jobTimeouts = counter("beanstalkd_job_timeouts_total",
		"Reservations whose time to run ended before the worker was done.")
	deadLetters = counter("beanstalkd_dead_letters_total",
		"Jobs that were buried because their reservations had failed as often as their tube's setting says.")
	jobWait = newDurations("beanstalkd_job_wait_seconds",
		"How long jobs were ready before they were reserved.", -14, 17)
	jobMemory = gauge("beanstalkd_job_memory_bytes",
		"Memory that is mapped for jobs and their bodies.")
	jobMemoryLimit = gauge("beanstalkd_job_memory_limit_bytes",
		"How much of it may be in use before puts are refused. Not shown if there is no limit.")
	processMemoryLimit = gauge("beanstalkd_process_memory_limit_bytes",
		"Memory that the process can have: the machine's, or less if a control group allows less.")
	maxJobSize = gauge("beanstalkd_max_job_size_bytes",
		"The largest body that is accepted.")

	currentKeys = gauge("beanstalkd_current_keys",
		"Keys that jobs were put with, each by tube: unique, no two jobs have the same; limited, only some of "+
			"those that have the same may be reserved; tombstone, unique keys that deleted jobs still keep.", "kind")
	maxKeys = gauge("beanstalkd_max_keys",
		"How many keys there may be, of all kinds together. Not shown if there is no limit.")
	duplicates = counter("beanstalkd_duplicate_puts_total",
		"Puts that made no job because another one had, or had had, the same unique key.")

	commands = counter("beanstalkd_commands_total",
		"Commands that were well formed.", "command")

	currentConnections = gauge("beanstalkd_current_connections",
		"Open connections of clients that have not quit.")
	currentProducers = gauge("beanstalkd_current_producers",
		"Open connections that have put a job.")
	currentWorkers = gauge("beanstalkd_current_workers",
		"Open connections that have reserved a job or waited for one.")
	currentWaiting = gauge("beanstalkd_current_waiting",
		"Open connections that wait for a job.")
	connections = counter("beanstalkd_connections_total",
		"Connections that were opened.")

	currentTubes = gauge("beanstalkd_current_tubes",
		"Tubes that exist.")
	maxTubes = gauge("beanstalkd_max_tubes",
		"How many tubes there may be. Not shown if there is no limit.")
	refusedCommands = counter("beanstalkd_refused_commands_total",
		"Commands that were answered OUT_OF_MEMORY because of a limit: on the memory of jobs, on tubes, "+
			"on the tubes that one client watches, or on keys.", "limit")
	draining = gauge("beanstalkd_draining",
		"1 while new jobs are refused because of drain mode, 0 otherwise.")
)

// The label state, shared by all metrics that have it.
var (
	stateReady    = label("state", "ready")
	stateReserved = label("state", "reserved")
	stateDelayed  = label("state", "delayed")
	stateBuried   = label("state", "buried")
)

var (
	limitMemory  = label("limit", "memory")
	limitTubes   = label("limit", "tubes")
	limitWatched = label("limit", "watched")
	limitKeys    = label("limit", "keys")
)

var (
	keysUnique    = label("kind", "unique")
	keysLimited   = label("kind", "limited")
	keysTombstone = label("kind", "tombstone")
)

var commandLabels = func() (l [codec.NumCommands]*dto.LabelPair) {
	for op := range l {
		l[op] = label("command", codec.Op(op).String())
	}
	return l
}()

func (c *collector) collectServer(ch chan<- prometheus.Metric, s *engine.Snapshot) {
	ch <- currentJobs.with(float64(s.Ready), stateReady)
	ch <- currentJobs.with(float64(s.Reserved), stateReserved)
	ch <- currentJobs.with(float64(s.Delayed), stateDelayed)
	ch <- currentJobs.with(float64(s.Buried), stateBuried)
	ch <- currentJobsUrgent.with(float64(s.Urgent))
	ch <- jobs.with(float64(s.Puts))
	ch <- jobTimeouts.with(float64(s.Timeouts))
	ch <- deadLetters.with(float64(s.DeadLetters))
	ch <- jobWait.with(&s.ReadyTimes)
	ch <- jobMemory.with(float64(s.Memory))
	if n := c.src.Limits.Memory; n > 0 {
		ch <- jobMemoryLimit.with(float64(n))
	}
	ch <- maxJobSize.with(float64(c.src.MaxJobSize))
	ch <- currentKeys.with(float64(s.UniqueKeys), keysUnique)
	ch <- currentKeys.with(float64(s.LimitedKeys), keysLimited)
	ch <- currentKeys.with(float64(s.Tombstones), keysTombstone)
	if n := c.src.Limits.Keys; n > 0 {
		ch <- maxKeys.with(float64(n))
	}
	ch <- duplicates.with(float64(s.Duplicates))
	for op, n := range s.Commands {
		ch <- commands.with(float64(n), commandLabels[op])
	}
	ch <- currentConnections.with(float64(s.Connections))
	ch <- currentProducers.with(float64(s.Producers))
	ch <- currentWorkers.with(float64(s.Workers))
	ch <- currentWaiting.with(float64(s.Waiting))
	ch <- connections.with(float64(s.Opened))
	ch <- currentTubes.with(float64(s.Tubes))
	if n := c.src.Limits.Tubes; n > 0 {
		ch <- maxTubes.with(float64(n))
	}
	ch <- refusedCommands.with(float64(s.RefusedMemory), limitMemory)
	ch <- refusedCommands.with(float64(s.RefusedTubes), limitTubes)
	ch <- refusedCommands.with(float64(s.RefusedWatching), limitWatched)
	ch <- refusedCommands.with(float64(s.RefusedKeys), limitKeys)
	ch <- draining.with(oneIf(s.Draining))
}
