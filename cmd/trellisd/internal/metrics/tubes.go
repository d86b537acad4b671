package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/engine"
)

var (
	tubeJobs = gauge("beanstalkd_tube_current_jobs",
		"Jobs of a tube by state. Ready ones include the urgent.", "state", "tube")
	tubeJobsUrgent = gauge("beanstalkd_tube_current_jobs_urgent",
		"Ready jobs of a tube with a priority under 1024.", "tube")
	tubeOldestReady = gauge("beanstalkd_tube_oldest_ready_age_seconds",
		"How long the oldest ready job of a tube has been ready; 0 if there is none.", "tube")
	tubeUsing = gauge("beanstalkd_tube_current_using",
		"Connections that use a tube.", "tube")
	tubeWatching = gauge("beanstalkd_tube_current_watching",
		"Connections that watch a tube.", "tube")
	tubeWaiting = gauge("beanstalkd_tube_current_waiting",
		"Connections that wait for a job of a tube, and perhaps of others.", "tube")
	tubeJobsTotal = counter("beanstalkd_tube_jobs_total",
		"Jobs that were put into a tube since it came into being.", "tube")
	tubeDeletes = counter("beanstalkd_tube_deletes_total",
		"Jobs that were deleted from a tube since it came into being.", "tube")
	tubePauses = counter("beanstalkd_tube_pauses_total",
		"Times that a tube was paused since it came into being.", "tube")
	tubePauseLeft = gauge("beanstalkd_tube_pause_left_seconds",
		"How long a tube stays paused; 0 if it is not.", "tube")

	tubesFolded = gauge("beanstalkd_tubes_folded",
		"Tubes that are not shown but summed up as other tubes.")
	otherJobs = gauge("beanstalkd_other_tubes_current_jobs",
		"Jobs by state of all tubes that are not shown.", "state")
	otherJobsUrgent = gauge("beanstalkd_other_tubes_current_jobs_urgent",
		"Ready jobs with a priority under 1024 of all tubes that are not shown.")
	otherOldestReady = gauge("beanstalkd_other_tubes_oldest_ready_age_seconds",
		"How long the oldest ready job of all tubes that are not shown has been ready.")
	otherUsing = gauge("beanstalkd_other_tubes_current_using",
		"Connections that use a tube that is not shown.")
	otherWatching = gauge("beanstalkd_other_tubes_current_watching",
		"Tubes that are watched and not shown, counted once for every connection that watches them.")
	otherWaiting = gauge("beanstalkd_other_tubes_current_waiting",
		"Tubes that are waited for and not shown, counted once for every connection that waits.")
	otherPaused = gauge("beanstalkd_other_tubes_paused",
		"Tubes that are paused and not shown.")
)

// tubes chooses the tubes to be shown, and sums up the rest. Scrapes do so one at a time.
func (c *collector) tubes(s *Serving) (shown []engine.TubeSnapshot, rest engine.TubeSums) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sel := engine.NewTubeSelection(c.opt.Tubes, showFirst(c.shown))
	s.Engine.EachTube(s.Now(), sel.Add)
	shown, rest = sel.End()
	c.shown = make(map[string]struct{}, len(shown))
	for i := range shown {
		c.shown[shown[i].Name] = struct{}{}
	}
	return shown, rest
}

func collectTube(ch chan<- prometheus.Metric, t *engine.TubeSnapshot) {
	name := label("tube", t.Name)
	alone := []*dto.LabelPair{name}
	ch <- tubeJobs.with(float64(t.Ready), stateReady, name)
	ch <- tubeJobs.with(float64(t.Reserved), stateReserved, name)
	ch <- tubeJobs.with(float64(t.Delayed), stateDelayed, name)
	ch <- tubeJobs.with(float64(t.Buried), stateBuried, name)
	ch <- tubeJobsUrgent.with(float64(t.Urgent), alone...)
	ch <- tubeOldestReady.with(t.OldestReady.Seconds(), alone...)
	ch <- tubeUsing.with(float64(t.Using), alone...)
	ch <- tubeWatching.with(float64(t.Watching), alone...)
	ch <- tubeWaiting.with(float64(t.Waiting), alone...)
	ch <- tubeJobsTotal.with(float64(t.Puts), alone...)
	ch <- tubeDeletes.with(float64(t.Deletes), alone...)
	ch <- tubePauses.with(float64(t.Pauses), alone...)
	ch <- tubePauseLeft.with(t.PauseLeft.Seconds(), alone...)
}

func collectOthers(ch chan<- prometheus.Metric, rest *engine.TubeSums) {
	ch <- tubesFolded.with(float64(rest.Tubes))
	ch <- otherJobs.with(float64(rest.Ready), stateReady)
	ch <- otherJobs.with(float64(rest.Reserved), stateReserved)
	ch <- otherJobs.with(float64(rest.Delayed), stateDelayed)
	ch <- otherJobs.with(float64(rest.Buried), stateBuried)
	ch <- otherJobsUrgent.with(float64(rest.Urgent))
	ch <- otherOldestReady.with(rest.OldestReady.Seconds())
	ch <- otherUsing.with(float64(rest.Using))
	ch <- otherWatching.with(float64(rest.Watching))
	ch <- otherWaiting.with(float64(rest.Waiting))
	ch <- otherPaused.with(float64(rest.Paused))
}
