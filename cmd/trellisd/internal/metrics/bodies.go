package metrics

import (
	"trellis/binlog"
	"trellis/binlog/journal"
)

// Bodies are those of a server with --body-memory, or of a member of a cluster, whatever it does.
type Bodies struct {
	Memory, Limit int64 // bytes that they take, and may take
	Evicted       int64 // bytes that have left memory
	Reads         binlog.ReadStats
	Unreadable    uint64 // bodies that were asked for and are damaged
	Stuck         int    // segments or body files that are damaged
	Unindexed     int    // segments without an index; 0 of a member
	ColdJobs      int    // jobs whose bodies are not in memory
	ColdBytes     int64  // of these bodies
	Waits, Late   int    // clients that wait for bodies; of them, those that have waited for over a second
	PutWaits      uint64 // puts that have waited for memory
	Files         *BodyFiles
}

// BodyFiles are those of a member of a cluster; a server alone has none.
type BodyFiles struct {
	Spilled int64 // bytes of bodies that were written to them
	Bytes   int64 // of all of them
}

var bodyFileMetrics = list[*BodyFiles]{
	counter("beanstalkd_bodies_spilled_bytes_total", "Bytes of bodies that a member has copied to its body files.",
		func(f *BodyFiles) float64 { return float64(f.Spilled) }),
	gauge("beanstalkd_bodies_files_bytes", "Bytes of a member's body files.",
		func(f *BodyFiles) float64 { return float64(f.Bytes) }),
}

var bodyMetrics = list[*Bodies]{
	gauge("beanstalkd_bodies_memory_bytes", "Memory that bodies take.",
		func(b *Bodies) float64 { return float64(b.Memory) }),
	gauge("beanstalkd_bodies_memory_limit_bytes", "Memory that they may take, --body-memory.",
		func(b *Bodies) float64 { return float64(b.Limit) }),
	counter("beanstalkd_bodies_evicted_bytes_total", "Bytes of bodies that have left memory, and are on the disk only.",
		func(b *Bodies) float64 { return float64(b.Evicted) }),
	counters("why", "beanstalkd_bodies_loaded_total", "Bodies that were read back: a client waited, or nobody yet.",
		by[*Bodies]{
			{"wait", func(b *Bodies) float64 { return float64(b.Reads[journal.Urgent].Bodies) }},
			{"ahead", func(b *Bodies) float64 { return float64(b.Reads[journal.Ahead].Bodies) }},
		}),
	counter("beanstalkd_bodies_unreadable_total", "Bodies that a client or a move needed and that are damaged on disk.",
		func(b *Bodies) float64 { return float64(b.Unreadable) }),
	gauge("beanstalkd_bodies_stuck_segments", "Segments, or body files, that stay because they are damaged and have jobs.",
		func(b *Bodies) float64 { return float64(b.Stuck) }),
	gauge("beanstalkd_bodies_index_missing", "Full segments without an index: the next start reads them whole.",
		func(b *Bodies) float64 { return float64(b.Unindexed) }),
	gauge("beanstalkd_bodies_cold_jobs", "Jobs whose bodies are not in memory.",
		func(b *Bodies) float64 { return float64(b.ColdJobs) }),
	gauge("beanstalkd_bodies_cold_bytes", "Bytes of bodies that are not in memory.",
		func(b *Bodies) float64 { return float64(b.ColdBytes) }),
	gauges("over", "beanstalkd_bodies_sessions_waiting", "Clients that wait for bodies, by for how long they have.",
		by[*Bodies]{
			{"0s", func(b *Bodies) float64 { return float64(b.Waits) }},
			{"1s", func(b *Bodies) float64 { return float64(b.Late) }},
		}),
	counter("beanstalkd_bodies_put_waits_total", "Puts that have waited for bodies to leave memory.",
		func(b *Bodies) float64 { return float64(b.PutWaits) }),
	counters("lane", "beanstalkd_bodies_read_bytes_total", "Bytes that were read from the disk for bodies, by what for.",
		byLane(func(b *Bodies, l journal.Lane) float64 { return float64(b.Reads[l].Bytes) })),
	counters("lane", "beanstalkd_bodies_read_seconds_total", "How long these reads took together.",
		byLane(func(b *Bodies, l journal.Lane) float64 { return b.Reads[l].Took.Seconds() })),
}

func byLane(value func(*Bodies, journal.Lane) float64) (all by[*Bodies]) {
	for l, name := range [...]string{"urgent", "ahead", "walk", "move"} {
		all = append(all, struct {
			label string
			value func(*Bodies) float64
		}{name, func(b *Bodies) float64 { return value(b, journal.Lane(l)) }})
	}
	return all
}
