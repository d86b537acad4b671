package shard

import (
	"fmt"
	"slices"
	"strings"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// What the model says of keys.

// A modelTombstone is a unique key of a job that was deleted.
type modelTombstone struct {
	id   uint64
	tube string
	keys journal.Keys
	end  clock.Time
}

// passedOver reports whether a job's limit keeps it from being reserved.
func (m *model) passedOver(j *modelJob) bool {
	k := j.keys
	return k.Limited != "" && m.countJobs(func(o *modelJob) bool {
		return o.tube == j.tube && o.keys.Limited == k.Limited && o.state == "reserved"
	}) >= int(k.Limit)
}

// holder returns the job, or the tombstone, that has a unique key in a tube.
func (m *model) holder(tube, key string) (*modelJob, *modelTombstone) {
	if key == "" {
		return nil, nil
	}
	for _, j := range m.jobs {
		if j.tube.name == tube && j.keys.Unique == key {
			return j, nil
		}
	}
	for _, x := range m.tombs {
		if x.tube == tube && x.keys.Unique == key && x.end > m.now {
			return nil, x
		}
	}
	return nil, nil
}

// duplicate answers a put of a key that is held.
func (m *model) duplicate(c *modelClient, p *modelPut) string {
	j, x := m.holder(c.used.name, p.keys.Unique)
	switch {
	case x != nil:
		return fmt.Sprintf("INSERTED %d DELETED\r\n", x.id)
	case j == nil:
		return ""
	case p.pri >= j.pri:
		return fmt.Sprintf("INSERTED %d %s\r\n", j.id, strings.ToUpper(j.state))
	case m.file.refusal() != "":
		return m.file.refusal()
	}
	j.pri = p.pri
	if j.state == "ready" {
		m.forget(j.tube)
	}
	state, since := j.state, j.saved.since
	if state == "reserved" {
		state = "ready"
	}
	due := clock.Time(0)
	switch j.state {
	case "delayed":
		due = j.due
	case "ready":
		j.ready = m.now // its time counts anew
	}
	if j.held {
		state = "held"
	}
	m.save(j, state, due)
	j.saved.since = since
	return fmt.Sprintf("INSERTED %d %s %d\r\n", j.id, strings.ToUpper(j.state), p.pri)
}

// mayHave reports whether there may be the keys of one more job.
func (m *model) mayHave(t *modelTube, k journal.Keys) bool {
	if m.maxKeys == 0 {
		return true
	}
	type key struct{ tube, kind, key string }
	have := map[key]bool{}
	add := func(tube string, k journal.Keys) (n int) {
		group := ""
		if k.Terms != nil {
			group = k.Terms.Group
		}
		for _, x := range []key{{tube, "unique", k.Unique}, {tube, "limited", k.Limited}, {tube, "fair", k.Fair()}, {"", "group", group}} {
			if x.key != "" && !have[x] {
				have[x] = true
				n++
			}
		}
		return n
	}
	for _, j := range m.jobs {
		add(j.tube.name, j.keys)
		if j.held {
			have[key{"", "group", j.after().group}] = true
		}
	}
	for _, x := range m.tombs {
		if x.end > m.now {
			add(x.tube, x.keys)
		}
	}
	n := add(t.name, k)
	return n == 0 || len(have) <= m.maxKeys
}

// end is the delete of a job, which may leave a tombstone.
func (m *model) end(j *modelJob) {
	j.tube.deletes++
	m.vanish(j)
}

// vanish ends a job, which may leave a tombstone.
func (m *model) vanish(j *modelJob) {
	m.leave(j)
	delete(m.jobs, j.id)
	m.left(j.terms().Group)
	if k := j.keys.Tombstone(); k.Unique != "" {
		m.tombs = append(m.tombs, &modelTombstone{id: j.id, tube: j.tube.name, keys: k, end: m.now + clock.Seconds(k.Seconds)})
	}
	m.share(j.tube)
	m.drop(j.tube)
}

func (m *model) endTombstones() {
	m.tombs = slices.DeleteFunc(m.tombs, func(x *modelTombstone) bool { return x.end <= m.now })
}

// moveKeys gives a job the keys that it has in another tube.
func (m *model) moveKeys(j *modelJob, to string) {
	switch o, x := m.holder(to, j.keys.Unique); {
	case o != nil:
		j.keys.Unique, j.keys.Seconds = "", 0
	case x != nil:
		m.tombs = slices.DeleteFunc(m.tombs, func(y *modelTombstone) bool { return y == x })
	}
}

// tagsOf are the tags of a put.
func tagsOf(k *journal.Keys) (s string) {
	if k.Unique != "" {
		s += fmt.Sprintf(" idp:%s:%d", k.Unique, k.Seconds)
	}
	if k.Limited != "" {
		s += fmt.Sprintf(" con:%s:%d", k.Limited, k.Limit)
	}
	if k.Terms != nil {
		s += tagsOfTerms(k.Terms)
	}
	return s
}

// tagsOfTerms are the tags of terms.
func tagsOfTerms(t *journal.Terms) (s string) {
	if t.Fair != "" {
		s += " fair:" + t.Fair
	}
	if t.Group != "" {
		s += " grp:" + t.Group
	}
	if t.After != "" {
		s += " aft:" + t.After
	}
	if t.Settled {
		s += ":settled"
	}
	if t.Expires > 0 {
		s += fmt.Sprint(" exp:", t.Expires)
	}
	return s
}
