package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"trellis/binlog/journal"
)

// What the model says to commands that beanstalkd does not have.

func byID(a, b *modelJob) int { return cmp.Compare(a.id, b.id) }

// listOrder is the order of list-jobs.
var listOrder = map[string]func(a, b *modelJob) int{
	"ready": byPriority, "delayed": byDue, "buried": byStep, "reserved": byID,
}

// listed returns the jobs of a tube in a state in the order of list-jobs.
func (m *model) listed(t *modelTube, state string) []*modelJob {
	return m.in(t, state, listOrder[state])
}

// modelPlace is where the last list-jobs of a client ended.
type modelPlace struct {
	tube, state string
	last        modelJob // as it was then
}

func (m *model) listJobs(c *modelClient, name, state string, limit int, after uint64) string {
	t := m.find(name)
	if t == nil {
		return notFound
	}
	list := m.listed(t, state)
	if after != 0 {
		from := m.jobs[after]
		if p := &c.listed; p.last.id == after && p.tube == name && p.state == state {
			from = &p.last
		}
		list = slices.DeleteFunc(list, func(j *modelJob) bool { return listOrder[state](j, from) <= 0 })
	}
	y := "---\n"
	for _, j := range list[:min(limit, len(list))] {
		c.listed = modelPlace{name, state, *j}
		y += fmt.Sprintf("- id: %d\n  pri: %d\n  age: %d\n  size: %d\n", j.id, j.pri, int64((m.now-j.created)/second), len(j.body))
		if j.due != 0 {
			y += fmt.Sprintf("  time-left: %d\n", int64((j.due-m.now)/second))
		}
	}
	return okReply(y)
}

func (m *model) peekTube(name, state string) string {
	if t := m.find(name); t != nil {
		if list := m.listed(t, state); len(list) > 0 {
			return foundReply(list[0])
		}
	}
	return notFound
}

func (m *model) kickTube(name string, bound int) string {
	t := m.find(name)
	if t == nil {
		return notFound
	}
	return m.kick(&modelClient{used: t}, bound)
}

func (m *model) flushTube(name string) string {
	t := m.find(name)
	ofTube := func(x *modelTombstone) bool { return x.tube == name }
	tombs := slices.ContainsFunc(m.tombs, func(x *modelTombstone) bool { return ofTube(x) && x.end > m.now })
	if t == nil && !tombs {
		return notFound
	}
	list := m.all(func(j *modelJob) bool { return j.tube == t }, byID)
	if (len(list) > 0 || tombs) && m.file.failed() {
		return m.file.refusal()
	}
	for _, j := range list {
		j.keys = journal.Keys{} // so that no tombstone is left
		m.end(j)
	}
	m.tombs = slices.DeleteFunc(m.tombs, ofTube)
	return fmt.Sprintf("FLUSHED %d\r\n", len(list))
}

func (m *model) deleteTubeJobs(name, state string, bound int) string {
	t := m.find(name)
	if t == nil {
		return notFound
	}
	list := m.listed(t, state)
	list = list[:min(bound, len(list))]
	if len(list) > 0 && m.file.failed() {
		return m.file.refusal()
	}
	for _, j := range list {
		m.end(j)
		m.dispatch(t)
	}
	return fmt.Sprintf("DELETED %d\r\n", len(list))
}

func (m *model) moveJob(c *modelClient, id uint64, name string) string {
	j := m.jobs[id]
	if j == nil || j.state == "reserved" && j.holder != c {
		return notFound
	}
	if j.tube.name == name {
		if j.state == "reserved" {
			m.makeReady(j)
		}
		return "MOVED\r\n"
	}
	if m.file.refusal() != "" {
		return m.file.refusal()
	}
	m.move(j, name)
	return "MOVED\r\n"
}

func (m *model) move(j *modelJob, name string) {
	old := j.tube
	m.moveKeys(j, name)
	j.tube = m.make(name)
	switch j.state {
	case "delayed":
		m.save(j, "delayed", j.due)
	case "buried":
		m.save(j, "buried", 0)
		j.since = m.next()
	default:
		m.save(j, "ready", 0)
		m.makeReady(j)
	}
	m.dispatch(old)
	m.drop(old)
}

func (m *model) moveTube(from, state, to string, bound int) string {
	t := m.find(from)
	if t == nil {
		return notFound
	}
	list := m.listed(t, state)
	list = list[:min(bound, len(list))]
	if from == to {
		list = nil
	}
	if len(list) > 0 && m.file.refusal() != "" {
		return m.file.refusal()
	}
	for _, j := range list {
		m.move(j, to)
	}
	return fmt.Sprintf("MOVED %d\r\n", len(list))
}

func (m *model) reserveBatch(c *modelClient, count int, timeout uint32) string {
	c.worker, c.batch = true, count
	return m.seekBatch(c, m.now+seconds(timeout))
}

func (m *model) seekBatch(c *modelClient, until Time) string {
	jobs := m.takeBatch(c, c.batch)
	if len(jobs) > 0 {
		return batchReply(jobs)
	}
	return m.seek(c, until)
}

// takeBatch reserves up to n jobs, as that many reserves.
func (m *model) takeBatch(c *modelClient, n int) (jobs []*modelJob) {
	for len(jobs) < n {
		some := m.all(func(j *modelJob) bool {
			return j.state == "ready" && slices.Contains(c.watched, j.tube) && !m.paused(j.tube) && !m.passedOver(j)
		}, byPriority)
		if len(some) == 0 {
			break
		}
		m.give(some[0], c)
		jobs = append(jobs, some[0])
	}
	return jobs
}

func batchReply(jobs []*modelJob) string {
	s := fmt.Sprintf("RESERVED_BATCH %d\r\n", len(jobs))
	for _, j := range jobs {
		s += reservedReply(j)
	}
	return s
}

// nothing is the answer to a reserve that has found no job in time.
func (c *modelClient) nothing() string {
	if c.batch > 0 {
		return "RESERVED_BATCH 0\r\n"
	}
	return "TIMED_OUT\r\n"
}

// modelSetting is where the dead letters of a tube go.
type modelSetting struct {
	max  int // attempts; 0 if there is no setting
	tube string
}

func (m *model) setDLQ(name string, most int, dead string) string {
	if most == 0 && m.dead[name].max == 0 {
		return "DLQ_SET\r\n"
	}
	if m.file.refusal() != "" {
		return m.file.refusal()
	}
	if delete(m.dead, name); most > 0 {
		m.dead[name] = modelSetting{most, dead}
	}
	return "DLQ_SET\r\n"
}

func (m *model) listDLQ() string {
	y := "---\n"
	for _, name := range slices.Sorted(maps.Keys(m.dead)) {
		y += fmt.Sprintf("- tube: %q\n  max-attempts: %d\n  dead-tube: %q\n", name, m.dead[name].max, m.dead[name].tube)
	}
	return okReply(y)
}

// exhausts tells whether a job whose reservation has failed becomes a dead letter.
func (m *model) exhausts(j *modelJob) bool {
	most := m.dead[j.tube.name].max
	return most > 0 && j.attempts >= most
}

func (m *model) buryDead(j *modelJob) {
	old := j.tube
	j.buries++
	if dead := m.dead[old.name].tube; dead != old.name {
		m.moveKeys(j, dead)
		j.tube = m.make(dead)
	}
	m.save(j, "buried", 0)
	j.state, j.holder, j.due, j.since = "buried", nil, 0, m.next()
	m.dispatch(old)
	m.drop(old)
}

// mayBuryDead tells whether somebody works on a job that a time-out may make a dead letter.
func (m *model) mayBuryDead() bool {
	return len(m.all(func(j *modelJob) bool { return j.state == "reserved" && m.dead[j.tube.name].max > 0 }, byID)) > 0
}

func (m *model) touchAll(c *modelClient) string {
	held := m.heldBy(c)
	for _, j := range held {
		j.due = m.now + seconds(j.ttr)
	}
	return fmt.Sprintf("TOUCHED_ALL %d\r\n", len(held))
}

func (m *model) drain(word string) string {
	switch word {
	case "drain", "drain on":
		m.draining = true
	case "undrain", "drain off":
		m.draining = false
	}
	if m.draining {
		return "DRAINING\r\n"
	}
	return "NOT_DRAINING\r\n"
}
