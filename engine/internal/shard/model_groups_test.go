package shard

import (
	"fmt"
	"slices"

	"trellis/binlog/journal"
)

// What the model says of groups: their counts are found by looking at all jobs.

// A modelFiring is the jobs that were held for a group, in one way, when it became complete.
type modelFiring struct {
	groupWait
	jobs  []*modelJob
	tried bool
}

// A groupWait is what a job waits for.
type groupWait struct {
	group   string
	settled bool
}

func (j *modelJob) terms() journal.Terms {
	if j.keys.Terms == nil {
		return journal.Terms{}
	}
	return *j.keys.Terms
}

func (j *modelJob) after() groupWait { return groupWait{j.terms().After, j.terms().Settled} }

// complete reports whether a job need not wait.
func (m *model) complete(w groupWait) bool {
	return m.countJobs(func(j *modelJob) bool {
		return j.terms().Group == w.group && !(w.settled && j.state == "buried")
	}) == 0
}

// heldFor are the jobs that are held for a group in one way, in the order of their puts.
func (m *model) heldFor(w groupWait) []*modelJob {
	return m.all(func(j *modelJob) bool { return j.held && j.after() == w }, byID)
}

// left notes what is to be fired when a member of a group has ended, or was buried.
func (m *model) left(group string) {
	for _, settled := range []bool{false, true} {
		w := groupWait{group, settled}
		if list := m.heldFor(w); len(list) > 0 && m.complete(w) {
			m.firings = append(m.firings, &modelFiring{groupWait: w, jobs: list})
		}
	}
}

// fire fires what was noted since it was last called, by the numbers of the shards, and what could
// not be recorded before where it comes past.
func (m *model) fire() {
	for i := 0; i < len(m.firings); i++ {
		f := m.firings[i]
		if f.tried {
			continue
		}
		f.tried = true
		for shard := range m.shards {
			if len(m.toFire(f, shard)) > 0 {
				for _, f := range m.firings[:i+1] {
					m.fireIn(f, shard)
				}
			}
		}
	}
	m.firings = slices.DeleteFunc(m.firings, func(f *modelFiring) bool {
		return !slices.ContainsFunc(f.jobs, m.isHeld)
	})
}

func (m *model) isHeld(j *modelJob) bool { return j.held && m.jobs[j.id] == j }

// toFire are the jobs of a firing in a shard that are still held.
func (m *model) toFire(f *modelFiring, shard int) (list []*modelJob) {
	for _, j := range f.jobs {
		if m.isHeld(j) && m.shardOf(j.tube.name) == shard {
			list = append(list, j)
		}
	}
	return list
}

// fireIn fires a firing's jobs in a shard, if that can be recorded.
func (m *model) fireIn(f *modelFiring, shard int) {
	if m.file.refusal() != "" {
		return
	}
	for _, j := range m.toFire(f, shard) {
		j.held = false
		m.queue(j)
	}
}

// firedIn does what the engine has done when it came past what it was to fire in a shard.
func (m *model) firedIn(shard int, lists []groupWait) {
	for _, w := range lists {
		for _, f := range m.firings {
			if f.groupWait == w {
				f.tried = true
				m.fireIn(f, shard)
			}
		}
	}
}

// statsGroup tells of a group.
func (m *model) statsGroup(name string) string {
	members := m.countJobs(func(j *modelJob) bool { return j.terms().Group == name })
	buried := m.countJobs(func(j *modelJob) bool { return j.terms().Group == name && j.state == "buried" })
	waiting := len(m.heldFor(groupWait{name, false})) + len(m.heldFor(groupWait{name, true}))
	if members+waiting == 0 {
		return notFound
	}
	return okReply(fmt.Sprintf("---\nname: %q\npending: %d\nburied: %d\ncomplete: %v\nwaiting-jobs: %d\n", name, members, buried, members == 0, waiting))
}
