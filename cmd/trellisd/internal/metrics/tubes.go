package metrics

import "trellis/engine/stats"

var tubeMetrics = list[*stats.Tube]{
	gauges("state", "beanstalkd_tube_current_jobs",
		"Jobs of a tube by state. Ready ones include the urgent.", by[*stats.Tube]{
			{"ready", func(t *stats.Tube) float64 { return float64(t.Ready) }},
			{"reserved", func(t *stats.Tube) float64 { return float64(t.Reserved) }},
			{"delayed", func(t *stats.Tube) float64 { return float64(t.Delayed) }},
			{"buried", func(t *stats.Tube) float64 { return float64(t.Buried) }},
		}, "tube"),
	gauge("beanstalkd_tube_current_jobs_urgent", "Ready jobs of a tube with a priority under 1024.",
		func(t *stats.Tube) float64 { return float64(t.Urgent) }, "tube"),
	gauge("beanstalkd_tube_orphaned_jobs",
		"Reserved jobs of a tube that linger: their workers have lost their connections.",
		func(t *stats.Tube) float64 { return float64(t.Orphaned) }, "tube"),
	gauge("beanstalkd_tube_oldest_ready_age_seconds",
		"How long the oldest ready job of a tube has been ready; 0 if there is none.",
		func(t *stats.Tube) float64 { return t.OldestReady.Seconds() }, "tube"),
	gauge("beanstalkd_tube_current_using", "Connections that use a tube.",
		func(t *stats.Tube) float64 { return float64(t.Using) }, "tube"),
	gauge("beanstalkd_tube_current_watching", "Connections that watch a tube.",
		func(t *stats.Tube) float64 { return float64(t.Watching) }, "tube"),
	gauge("beanstalkd_tube_current_waiting", "Connections that wait for a job of a tube, and perhaps of others.",
		func(t *stats.Tube) float64 { return float64(t.Waiting) }, "tube"),
	counter("beanstalkd_tube_jobs_total", "Jobs that were put into a tube since it came into being.",
		func(t *stats.Tube) float64 { return float64(t.Puts) }, "tube"),
	counter("beanstalkd_tube_deletes_total", "Jobs that were deleted from a tube since it came into being.",
		func(t *stats.Tube) float64 { return float64(t.Deletes) }, "tube"),
	counter("beanstalkd_tube_pauses_total", "Times that a tube was paused since it came into being.",
		func(t *stats.Tube) float64 { return float64(t.Pauses) }, "tube"),
	gauge("beanstalkd_tube_pause_left_seconds", "How long a tube stays paused; 0 if it is not.",
		func(t *stats.Tube) float64 { return t.PauseLeft.Seconds() }, "tube"),
	gauges("by", "beanstalkd_tube_limited",
		"1 while ready jobs of a tube wait for its rate, for reserved ones to end, or for a pause to end.",
		by[*stats.Tube]{
			{"rate", func(t *stats.Tube) float64 { return limitedBy(t, stats.RateLimit) }},
			{"reserved", func(t *stats.Tube) float64 { return limitedBy(t, stats.ReservedLimit) }},
			{"pause", func(t *stats.Tube) float64 { return limitedBy(t, stats.PauseLimit) }},
		}, "tube"),
	counter("beanstalkd_tube_reserves_total", "Jobs of a tube that were reserved since it came into being.",
		func(t *stats.Tube) float64 { return float64(t.Reserves) }, "tube"),
	counter("beanstalkd_tube_busy_seconds_total",
		"For how long jobs of a tube were reserved, summed over the jobs, up to now.",
		func(t *stats.Tube) float64 { return float64(t.BusyMicros) / 1e6 }, "tube"),
	counter("beanstalkd_tube_wait_seconds_total",
		"For how long jobs of a tube were ready that were reserved then, summed over the jobs.",
		func(t *stats.Tube) float64 { return float64(t.WaitMicros) / 1e6 }, "tube"),
}

// limitedBy is 1 if a limit keeps ready jobs of the tube from being handed out.
func limitedBy(t *stats.Tube, by stats.Limit) float64 {
	if t.Ready > 0 && t.LimitedBy == by {
		return 1
	}
	return 0
}

// restMetrics sum up the tubes that are not shown one by one.
var restMetrics = list[*tubeSums]{
	gauge("beanstalkd_tubes_folded", "Tubes that are not shown but summed up as other tubes.",
		func(r *tubeSums) float64 { return float64(r.Tubes) }),
	gauges("state", "beanstalkd_other_tubes_current_jobs", "Jobs by state of all tubes that are not shown.", by[*tubeSums]{
		{"ready", func(r *tubeSums) float64 { return float64(r.Ready) }},
		{"reserved", func(r *tubeSums) float64 { return float64(r.Reserved) }},
		{"delayed", func(r *tubeSums) float64 { return float64(r.Delayed) }},
		{"buried", func(r *tubeSums) float64 { return float64(r.Buried) }},
	}),
	gauge("beanstalkd_other_tubes_current_jobs_urgent",
		"Ready jobs with a priority under 1024 of all tubes that are not shown.",
		func(r *tubeSums) float64 { return float64(r.Urgent) }),
	gauge("beanstalkd_other_tubes_oldest_ready_age_seconds",
		"How long the oldest ready job of all tubes that are not shown has been ready.",
		func(r *tubeSums) float64 { return r.OldestReady.Seconds() }),
	gauge("beanstalkd_other_tubes_current_using", "Connections that use a tube that is not shown.",
		func(r *tubeSums) float64 { return float64(r.Using) }),
	gauge("beanstalkd_other_tubes_current_watching",
		"Tubes that are watched and not shown, counted once for every connection that watches them.",
		func(r *tubeSums) float64 { return float64(r.Watching) }),
	gauge("beanstalkd_other_tubes_current_waiting",
		"Tubes that are waited for and not shown, counted once for every connection that waits.",
		func(r *tubeSums) float64 { return float64(r.Waiting) }),
	gauge("beanstalkd_other_tubes_paused", "Tubes that are paused and not shown.",
		func(r *tubeSums) float64 { return float64(r.Paused) }),
}

// tubes chooses the tubes to be shown, and sums up the rest. Scrapes do so one at a time.
func (c *collector) tubes(s *Serving) (shown []stats.Tube, rest tubeSums) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sel := newTubeSelection(c.opt.Tubes, showFirst(c.shownTubes))
	s.Engine.EachTube(s.Now(), sel.Add)
	shown, rest = sel.End()
	c.shownTubes = make(map[string]struct{}, len(shown))
	for i := range shown {
		c.shownTubes[shown[i].Name] = struct{}{}
	}
	return shown, rest
}
