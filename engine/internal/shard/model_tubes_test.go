package shard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// modelTotals is what the model counts for stats-tube-x.
type modelTotals struct {
	reserves, releases, timeouts, buries, deadLetters, expired, flushed int
	wait, busy                                                          int64 // microseconds
	late                                                                bool  // somebody looked late at what was due: times are longer
}

// countStart counts a job that becomes reserved.
func (m *model) countStart(j *modelJob) {
	j.tube.total.reserves++
	if j.state == "ready" {
		j.tube.total.wait += microsBetween(j.ready, m.now)
	}
	j.started = m.now
	if interval, _ := rateOf(m.policy(j.tube.name)); interval > 0 {
		m.started[j.tube.name] = max(m.started[j.tube.name], m.now) + interval
	}
}

// leave counts the time of a job whose reservation ends, if it has one.
func (m *model) leave(j *modelJob) {
	if j.state == "reserved" {
		j.tube.total.busy += microsBetween(j.started, m.now)
		j.state, j.lingers = "", 0
	}
}

func microsBetween(from, to clock.Time) int64 { return int64(to/1000) - int64(from/1000) }

// statsTubeX shows a number of waiting clients that it is given, and what the model does not know
// exactly as it was shown.
func (m *model) statsTubeX(t *modelTube, waiting int, shown string) string {
	y := "---\n"
	line := func(key string, v any) { y += fmt.Sprintf("%s: %v\n", key, v) }
	micros := func(key string, n int64) { line(key, fmt.Sprintf("%d.%06d", n/1e6, n%1e6)) }
	line("name", quote(t.name))
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		line("current-jobs-"+state, len(m.in(t, state, byPriority)))
	}
	line("current-jobs-held", m.countJobs(func(j *modelJob) bool { return j.tube == t && j.held }))
	line("current-jobs-orphaned", m.countJobs(func(j *modelJob) bool { return j.tube == t && j.lingers != 0 }))
	line("current-watching", m.countClients(func(c *modelClient) bool { return slices.Contains(c.watched, t) }))
	line("current-waiting", waiting)
	line("oldest-ready-age", valueIn(shown, "oldest-ready-age"))
	by, left := "none", clock.Time(0)
	switch opens := m.opens(t); {
	case m.paused(t) || m.policy(t.name).Paused:
		by, left = "pause", max(0, t.pausedUntil-m.now)
	case opens == clock.MaxTime:
		by = "reserved"
	case opens > m.now:
		by, left = "rate", opens-m.now
	}
	line("limited-by", by)
	line("limited-for", int64(left/clock.Second))
	n := &t.total
	line("total-jobs", t.puts)
	line("total-reserves", n.reserves)
	line("total-deletes", t.deletes-n.flushed)
	line("total-releases", n.releases)
	line("total-timeouts", n.timeouts)
	line("total-buries", n.buries)
	line("total-dead-letters", n.deadLetters)
	line("total-expired", n.expired)
	if n.late {
		line("wait-time", valueIn(shown, "wait-time"))
		line("busy-time", valueIn(shown, "busy-time"))
		return okReply(y)
	}
	micros("wait-time", n.wait)
	busy := n.busy
	for _, j := range m.in(t, "reserved", byID) {
		busy += microsBetween(j.started, m.now)
	}
	micros("busy-time", busy)
	return okReply(y)
}

// oldestReady is for how long the oldest ready job of a tube has been ready.
func (m *model) oldestReady(t *modelTube) (age clock.Time) {
	for _, j := range m.in(t, "ready", byID) {
		age = max(age, m.now-j.ready)
	}
	return age
}

// valueIn is the last value of a key in replies.
func valueIn(replies, key string) string {
	_, after, _ := strings.Cut(replies[strings.LastIndex(replies, key):], ": ")
	value, _, _ := strings.Cut(after, "\n")
	return value
}

// statsTubeX allows for claimed sessions, as statsTube does, and for what is not known exactly.
func (r *rig) statsTubeX(c *rigConn, name string) {
	r.do(c, "stats-tube-x "+name, func() string {
		t := r.model.find(name)
		if t == nil {
			return notFound
		}
		got := string(c.out.Buf)
		age, err := strconv.ParseInt(valueIn(got, "oldest-ready-age"), 10, 64)
		if least := r.model.oldestReady(t).Whole(); err != nil || !t.total.late && age < least {
			r.t.Fatalf("the oldest ready job has been ready for %d seconds: %q", least, got)
		}
		least, most := r.waitingIn(t)
		for n := least; n < most; n++ {
			if want := r.model.statsTubeX(t, n, got); strings.HasSuffix(got, want) {
				return want
			}
		}
		return r.model.statsTubeX(t, most, got)
	})
}

// rateOf is the time between two starts, 0 without a rate, and how many may come at once.
func rateOf(p journal.Policy) (interval, burst clock.Time) {
	if p.Rate == 0 {
		return 0, 0
	}
	return clock.Time(math.Ceil(float64(p.Per) * 1e9 / float64(p.Rate))), clock.Time(p.BurstInForce())
}

// opens is when a tube's limits let a job start, MaxTime if another one has to end first.
func (m *model) opens(t *modelTube) clock.Time {
	p := m.policy(t.name)
	if p.MaxReserved > 0 && len(m.in(t, "reserved", byID)) >= int(p.MaxReserved) {
		return clock.MaxTime
	}
	interval, burst := rateOf(p)
	return m.started[t.name] - (burst-1)*interval
}

// shut reports whether a tube hands out no jobs.
func (m *model) shut(t *modelTube) bool {
	return m.paused(t) || m.policy(t.name).Paused || m.opens(t) > m.now
}
