package metrics

import (
	"cmp"
	"slices"
	"time"

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

// tubes takes a snapshot of all tubes, one shard after the other. There were
// about n of them.
func tubes(e *engine.Engine, n int, now engine.Time) []engine.TubeSnapshot {
	// With room for all, no shard waits until the list has grown.
	list := make([]engine.TubeSnapshot, 0, n+n/4+16)
	for shard := range e.NumShards() {
		list = e.AppendTubes(list, shard, now)
	}
	return list
}

// defaultTube always exists and is always shown.
const defaultTube = "default"

// largest moves the n tubes that are to be shown to the front: the default tube,
// then those with the most jobs, and of equals the first by name.
func largest(tubes []engine.TubeSnapshot, n int) (shown, rest []engine.TubeSnapshot) {
	if len(tubes) <= n {
		return tubes, nil
	}
	slices.SortFunc(tubes, func(a, b engine.TubeSnapshot) int {
		if a.Name == defaultTube || b.Name == defaultTube {
			return cmp.Compare(oneIf(b.Name == defaultTube), oneIf(a.Name == defaultTube))
		}
		if c := cmp.Compare(held(&b), held(&a)); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return tubes[:n], tubes[n:]
}

func held(t *engine.TubeSnapshot) int { return t.Ready + t.Reserved + t.Delayed + t.Buried }

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

func collectOthers(ch chan<- prometheus.Metric, rest []engine.TubeSnapshot) {
	var sum engine.TubeSnapshot
	oldest, paused := time.Duration(0), 0
	for i := range rest {
		t := &rest[i]
		sum.Ready += t.Ready
		sum.Reserved += t.Reserved
		sum.Delayed += t.Delayed
		sum.Buried += t.Buried
		sum.Urgent += t.Urgent
		sum.Using += t.Using
		sum.Watching += t.Watching
		sum.Waiting += t.Waiting
		oldest = max(oldest, t.OldestReady)
		if t.PauseLeft > 0 {
			paused++
		}
	}
	ch <- tubesFolded.with(float64(len(rest)))
	ch <- otherJobs.with(float64(sum.Ready), stateReady)
	ch <- otherJobs.with(float64(sum.Reserved), stateReserved)
	ch <- otherJobs.with(float64(sum.Delayed), stateDelayed)
	ch <- otherJobs.with(float64(sum.Buried), stateBuried)
	ch <- otherJobsUrgent.with(float64(sum.Urgent))
	ch <- otherOldestReady.with(oldest.Seconds())
	ch <- otherUsing.with(float64(sum.Using))
	ch <- otherWatching.with(float64(sum.Watching))
	ch <- otherWaiting.with(float64(sum.Waiting))
	ch <- otherPaused.with(float64(paused))
}
