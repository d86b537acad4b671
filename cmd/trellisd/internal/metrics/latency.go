package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/codec"
	"trellis/engine/histogram"
	"trellis/reactor"
)

var commandDuration = newDurations("beanstalkd_command_duration_seconds",
	"How long commands took from when they had been read until their replies were written; "+
		"waited tells whether the command had to wait for a job.", -20, 7, "command", "waited")

var (
	waitedNo  = label("waited", "false")
	waitedYes = label("waited", "true")
)

// collectLatency shows the commands that there were.
func collectLatency(ch chan<- prometheus.Metric, y *reactor.Latency) {
	show := func(all *[codec.NumCommands]histogram.Histogram, waited *dto.LabelPair) {
		for op := range all {
			if h := &all[op]; h.Count() > 0 {
				ch <- commandDuration.with(h, commandLabels[op], waited)
			}
		}
	}
	show(&y.Answered, waitedNo)
	show(&y.Waited, waitedYes)
}
