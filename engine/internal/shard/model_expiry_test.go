package shard

import (
	"cmp"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// What the model says of jobs that expire.

// overdue reports whether a job has expired, unless it is buried.
func (m *model) overdue(j *modelJob) bool {
	t := j.keys.Terms
	return t != nil && t.Expires > 0 && j.kicks == 0 && m.now >= j.created+clock.Seconds(t.Expires)
}

// awaitExpiry notes when a job that has become ready or delayed is looked at. If that should have
// been, there was no room for its end.
func (m *model) awaitExpiry(j *modelJob) {
	t := j.keys.Terms
	switch {
	case t == nil || t.Expires == 0 || j.kicks > 0:
		j.expiry = clock.MaxTime
	case j.expiry == clock.MaxTime && m.overdue(j):
		j.expiry = m.now + clock.Second
	case j.expiry == clock.MaxTime:
		j.expiry = j.created + clock.Seconds(t.Expires)
	}
}

// restoreExpiry is awaitExpiry after a start, for which there was room.
func (m *model) restoreExpiry(j *modelJob) {
	if t := j.keys.Terms; j.state != "buried" && t != nil && t.Expires > 0 && j.kicks == 0 {
		j.expiry = j.created + clock.Seconds(t.Expires)
	}
}

// expires reports whether a job is to be looked at now.
func (m *model) expires(j *modelJob) bool { return j.expiry <= m.now }

// expireDue has the jobs expire that are due, of those that are asked for.
func (m *model) expireDue(of func(*modelJob) bool) {
	for _, j := range m.all(func(j *modelJob) bool { return m.expires(j) && of(j) }, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.id, b.id))
	}) {
		j.expiry = clock.MaxTime
		if j.state != "reserved" && j.state != "buried" && !m.expire(j) {
			j.expiry = m.now + clock.Second
			m.dispatch(j.tube)
		}
	}
}

// expire ends a job that has expired, if there is room for that.
func (m *model) expire(j *modelJob) bool {
	dead := m.policy(j.tube.name).Dead != ""
	if m.file.failed() || dead && m.file.refusal() != "" {
		return false
	}
	j.tube.total.expired++
	if dead {
		m.buryDead(j)
		return true
	}
	t := j.tube
	m.vanish(j)
	m.dispatch(t)
	return true
}

// expiring are the terms of a put in a tube, which may say when its jobs expire.
func (m *model) expiring(t *modelTube, k journal.Keys) journal.Keys {
	p := m.policy(t.name)
	if p.Expire == 0 || k.Terms != nil && k.Terms.Expires > 0 {
		return k
	}
	var terms journal.Terms
	if k.Terms != nil {
		terms = *k.Terms
	}
	terms.Expires = p.Expire
	k.Terms = &terms
	return k
}
