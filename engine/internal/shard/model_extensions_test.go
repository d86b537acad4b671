package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
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
		y += fmt.Sprintf("- id: %d\n  pri: %d\n  age: %d\n  size: %d\n", j.id, j.pri, int64((m.now-j.created)/clock.Second), len(j.body))
		if j.held {
			y += "  time-left: 0\n"
		} else if j.due != 0 {
			y += fmt.Sprintf("  time-left: %d\n", int64((j.due-m.now)/clock.Second))
		}
	}
	return okReply(y)
}

func (m *model) peekTube(name, state string) string {
	if t := m.find(name); t != nil {
		if j := m.firstIn(t, state); j != nil {
			return foundReply(j)
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
	list := m.all(func(j *modelJob) bool { return j.tube == t }, byFlush)
	if (len(list) > 0 || tombs) && m.file.failed() {
		return m.file.refusal()
	}
	for _, j := range list {
		j.keys.Seconds = 0 // so that no tombstone is left
		t.total.flushed++
		m.end(j)
		t.laps.forgetLast()
	}
	m.tombs = slices.DeleteFunc(m.tombs, ofTube)
	return fmt.Sprintf("FLUSHED %d\r\n", len(list))
}

// byFlush is the order in which a flush deletes jobs, as far as it matters.
func byFlush(a, b *modelJob) int {
	kind := func(j *modelJob) int {
		if j.held {
			return -1
		}
		return slices.Index([]string{"ready", "delayed", "buried", "reserved"}, j.state)
	}
	return cmp.Or(cmp.Compare(kind(a), kind(b)), listOrder[a.state](a, b))
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
		if state == "ready" {
			j = m.firstReady(t)
		}
		m.end(j)
		if state == "reserved" {
			t.laps.forgetLast()
		}
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
		if j.state == "reserved" && !(m.overdue(j) && m.expire(j)) {
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
	m.leave(j)
	m.moveKeys(j, name)
	j.tube, j.expiry = m.make(name), clock.MaxTime
	m.share(old) // before the last job of another key goes
	overdue := m.overdue(j)
	switch j.state {
	case "delayed":
		m.save(j, map[bool]string{false: "delayed", true: "held"}[j.held], j.due)
		if !overdue || !m.expire(j) {
			m.awaitExpiry(j)
		}
	case "buried":
		m.save(j, "buried", 0)
		j.since = m.next()
	default:
		m.save(j, "ready", 0)
		j.holder = nil
		if !overdue || !m.expire(j) {
			m.makeReady(j)
		}
	}
	if slices.ContainsFunc(m.firings, func(f *modelFiring) bool { return slices.Contains(f.jobs, j) }) {
		m.firings = append(m.firings, &modelFiring{groupWait: j.after(), jobs: []*modelJob{j}}) // there it is tried at once
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
		if state == "ready" {
			j = m.firstReady(t)
		}
		m.move(j, to)
	}
	return fmt.Sprintf("MOVED %d\r\n", len(list))
}

func (m *model) reserveBatch(c *modelClient, count int, timeout uint32) string {
	c.worker, c.batch = true, count
	return m.seekBatch(c, m.now+clock.Seconds(timeout))
}

func (m *model) seekBatch(c *modelClient, until clock.Time) string {
	jobs := m.takeBatch(c, c.batch)
	if len(jobs) > 0 {
		return m.batchReply(c, jobs)
	}
	return m.seek(c, until)
}

// takeBatch reserves up to n jobs, as that many reserves.
func (m *model) takeBatch(c *modelClient, n int) (jobs []*modelJob) {
	for len(jobs) < n {
		j := m.choose(c)
		if j == nil {
			break
		}
		m.give(j, c)
		jobs = append(jobs, j)
	}
	return jobs
}

func (m *model) batchReply(c *modelClient, jobs []*modelJob) string {
	s := fmt.Sprintf("RESERVED_BATCH %d\r\n", len(jobs))
	for _, j := range jobs {
		s += m.reservedReply(c, j)
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

// policy is what a tube's setting says.
func (m *model) policy(tube string) journal.Policy {
	if p, ok := m.settings[tube]; ok {
		return p
	}
	return journal.DefaultPolicy
}

// set gives a tube a setting.
func (m *model) set(name string, p journal.Policy, reply string) string {
	if m.policy(name) == p {
		return reply
	}
	if m.file.refusal() != "" {
		return m.file.refusal()
	}
	old := m.policy(name)
	if delete(m.settings, name); p != journal.DefaultPolicy {
		m.settings[name] = p
	}
	interval, burst := rateOf(p)
	if was, wasBurst := rateOf(old); interval == 0 {
		delete(m.started, name)
	} else if interval != was || burst != wasBurst {
		m.started[name] = min(m.started[name], m.now+burst*interval)
	}
	if t := m.find(name); t != nil {
		m.dispatch(t)
		if p.Linger == 0 {
			m.endLingering(name, clock.MaxTime)
		}
	}
	return reply
}

func (m *model) setDLQ(name string, most int, dead string) string {
	p := m.policy(name)
	p.Attempts, p.Dead = uint32(most), dead
	if most == 0 {
		p.Dead = ""
	}
	return m.set(name, p, "DLQ_SET\r\n")
}

func (m *model) listDLQ() string {
	y := "---\n"
	for _, name := range slices.Sorted(maps.Keys(m.settings)) {
		if p := m.settings[name]; p.Attempts > 0 {
			y += fmt.Sprintf("- tube: %q\n  max-attempts: %d\n  dead-tube: %q\n", name, p.Attempts, cmp.Or(p.Dead, name))
		}
	}
	return okReply(y)
}

func (m *model) listSettings() string {
	y := "---\n"
	flag := map[bool]int{true: 1}
	for _, name := range slices.Sorted(maps.Keys(m.settings)) {
		p := m.settings[name]
		y += fmt.Sprintf("- tube: %q\n  attempts: %d\n  dead: %q\n  disconnects: %d\n  retry-min: %d\n  retry-factor: %d\n  retry-max: %d\n  retry-jitter: %d\n",
			name, p.Attempts, p.Dead, flag[p.Disconnects], p.RetryMin, p.RetryFactor, p.RetryMax, p.RetryJitter)
		rate, burst := "0", p.Burst
		if p.Rate > 0 {
			rate, burst = fmt.Sprintf("%d/%d", p.Rate, p.Per), p.BurstInForce()
		}
		y += fmt.Sprintf("  rate: %s\n  burst: %d\n  max-reserved: %d\n  expire: %d\n  paused: %d\n  linger: %d\n",
			rate, burst, p.MaxReserved, p.Expire, flag[p.Paused], p.Linger)
	}
	return okReply(y)
}

// lapse is the end of a reservation that its client has not ended.
func (m *model) lapse(j *modelJob, counts bool) {
	p := m.policy(j.tube.name)
	room := m.file.refusal() == ""
	if counts {
		j.attempts++
	}
	switch {
	case counts && m.exhausts(j) && room:
		j.tube.total.deadLetters++
		m.buryDead(j)
		return
	case counts && m.exhausts(j):
	case m.overdue(j) && m.expire(j):
		return
	case m.overdue(j):
	case counts && p.RetryMin > 0 && room:
		m.backOff(j)
		return
	case counts && p.Attempts > 0 && room:
		m.save(j, "ready", 0)
	}
	m.makeReady(j)
}

// backOff delays a job that has failed.
func (m *model) backOff(j *modelJob) {
	p := m.policy(j.tube.name)
	d := modelBackOff(p, j.id, j.attempts)
	j.delay = uint32((d + clock.Second - 1) / clock.Second)
	m.leave(j)
	j.state, j.holder, j.due = "delayed", nil, m.now+d
	m.awaitExpiry(j)
	m.save(j, "delayed", j.due)
	m.dispatch(j.tube)
}

// exhausts reports whether a job whose reservation has failed becomes a dead letter.
func (m *model) exhausts(j *modelJob) bool {
	most := m.policy(j.tube.name).Attempts
	return most > 0 && j.attempts >= int(most)
}

func (m *model) buryDead(j *modelJob) {
	old := j.tube
	m.leave(j)
	j.buries++
	if dead := m.policy(old.name).Dead; dead != "" && dead != old.name {
		m.moveKeys(j, dead)
		j.tube, j.expiry = m.make(dead), clock.MaxTime
		m.share(old)
	}
	j.tube.total.buries++
	m.save(j, "buried", 0)
	j.state, j.holder, j.due, j.held, j.since = "buried", nil, 0, false, m.next()
	m.left(j.terms().Group)
	m.dispatch(old)
	m.drop(old)
}

// judges reports whether somebody works on a job of which a time-out makes something else than a ready
// one, or whether one may expire.
func (m *model) judges() bool {
	return len(m.all(func(j *modelJob) bool {
		p := m.policy(j.tube.name)
		return j.state == "reserved" && (p.Attempts > 0 || p.RetryMin > 0 || j.terms().Expires > 0) || j.expiry != clock.MaxTime
	}, byID)) > 0
}

func (m *model) touchAll(c *modelClient) string {
	held := m.heldBy(c)
	for _, j := range held {
		j.due = m.now + clock.Seconds(j.ttr)
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
