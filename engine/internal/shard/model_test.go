package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/clock"
)

// The model is what the documents say, written down in the plainest way: all
// jobs in one map, all tubes and clients in slices, every queue found by looking
// at all of them. What it does with a command it answers in text.
//
// The documents leave open in which order tubes and reservations are dealt with
// whose time comes in the same nanosecond; tick is told.
type model struct {
	now      clock.Time
	maxJob   int
	lastID   uint64
	draining bool
	info     Info
	file     *file // nil without a journal

	jobs     map[uint64]*modelJob
	tombs    []*modelTombstone
	maxKeys  int          // 0 for no limit
	tubes    []*modelTube // in the order of list-tubes
	clients  []*modelClient
	settings map[string]journal.Policy // by tube
	started  map[string]clock.Time     // by tube: when the next start is due by the rate
	step     int                       // counts what has to be remembered in order
	firings  []*modelFiring            // of which some jobs are still held
	shards   int
	shardOf  func(tube string) int

	commands        map[string]int
	puts, timeouts  int
	connectionsEver int
}

type modelTube struct {
	name                  string
	pausedUntil           clock.Time
	pause                 int
	puts, deletes, pauses int
	laps                  modelLaps
	total                 modelTotals
}

type modelJob struct {
	id              uint64
	tube            *modelTube
	state           string
	pri, delay, ttr uint32
	body            string
	created         clock.Time
	due             clock.Time // of a delayed or reserved job; 0 if it is held
	held            bool       // delayed until its group is complete
	ready, started  clock.Time // when it became ready, or was reserved
	expiry          clock.Time // when it is looked at whether it is to expire; MaxTime for never
	holder          *modelClient
	lingers         clock.Time // until when it is reserved as an orphan; 0 if it is none
	since           int        // the step in which it was buried or reserved
	saved           modelRecord
	keys            journal.Keys

	reserves, timeouts, releases, buries, kicks int

	attempts int // releases and time-outs since it was put or kicked
}

type modelClient struct {
	used    *modelTube
	watched []*modelTube
	weights map[*modelTube]int // by watched tube
	mode    string             // as reserve-mode says; "" for fifo
	info    bool
	id      uint64 // of its session
	chosen  uint64 // choices by weight

	producer, worker, halfClosed bool
	quit                         bool // it has said that it leaves

	waiting     bool
	since       int // the step in which its wait began
	until, soon clock.Time
	verdict     string // ended its wait
	claimed     bool   // a job ended its wait, which its loop does not know yet
	given       uint64 // that job
	batch       int    // jobs that the reserve-batch asks for; 0 for another command
	gone        bool   // closed while claimed

	listed modelPlace

	incoming *modelPut
	out      string // what it was answered and has not been compared
}

// modelPut is a put whose body is on its way.
type modelPut struct {
	id              uint64
	pri, delay, ttr uint32
	body            string
	size, arrived   int // of body
	keys            journal.Keys
	account         *account.Account // that it was admitted to; nil for none
}

func newModel(maxJob int, lastID uint64, info Info, f *file) *model {
	return &model{
		maxJob: maxJob, lastID: lastID, info: info, file: f,
		settings: map[string]journal.Policy{}, started: map[string]clock.Time{},
		jobs: map[uint64]*modelJob{}, tubes: []*modelTube{{name: "default"}}, commands: map[string]int{},
	}
}

func (m *model) next() int { m.step++; return m.step }

func (m *model) find(name string) *modelTube {
	for _, t := range m.tubes {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (m *model) make(name string) *modelTube {
	t := m.find(name)
	if t == nil {
		t = &modelTube{name: name}
		m.tubes = append(m.tubes, t)
	}
	return t
}

// drop ends a tube that nobody needs: the last takes its place.
func (m *model) drop(t *modelTube) {
	if t.name == "default" {
		return
	}
	for _, c := range m.clients {
		if c.used == t || slices.Contains(c.watched, t) {
			return
		}
	}
	for _, j := range m.jobs {
		if j.tube == t {
			return
		}
	}
	i := slices.Index(m.tubes, t)
	last := len(m.tubes) - 1
	m.tubes[i] = m.tubes[last]
	m.tubes = m.tubes[:last]
}

// in returns the jobs of a tube that are in a state, by an order.
func (m *model) in(t *modelTube, state string, order func(a, b *modelJob) int) []*modelJob {
	return m.all(func(j *modelJob) bool { return j.tube == t && j.state == state }, order)
}

func (m *model) all(want func(*modelJob) bool, order func(a, b *modelJob) int) (list []*modelJob) {
	for _, j := range m.jobs {
		if want(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, order)
	return list
}

func byPriority(a, b *modelJob) int {
	return cmp.Or(cmp.Compare(a.pri, b.pri), cmp.Compare(a.id, b.id))
}

func byDue(a, b *modelJob) int {
	if a.held != b.held {
		if a.held {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
}

func byStep(a, b *modelJob) int { return cmp.Compare(a.since, b.since) }

func (m *model) paused(t *modelTube) bool { return t.pausedUntil > m.now }

func (m *model) makeReady(j *modelJob) {
	m.forget(j.tube)
	m.leave(j)
	j.state, j.holder, j.due, j.ready, j.held = "ready", nil, 0, m.now, false
	m.awaitExpiry(j)
	m.dispatch(j.tube)
}

// queue makes a job ready or delayed, as its delay says, and puts that on record.
func (m *model) queue(j *modelJob) {
	if j.delay == 0 {
		m.save(j, "ready", 0)
		m.makeReady(j)
		return
	}
	m.leave(j)
	j.state, j.holder, j.due = "delayed", nil, m.now+clock.Seconds(j.delay)
	m.awaitExpiry(j)
	m.save(j, "delayed", j.due)
	m.dispatch(j.tube)
}

// dispatch serves the clients that wait for a tube, first come, first served.
func (m *model) dispatch(t *modelTube) {
	m.share(t)
	for !m.shut(t) {
		j := m.first(t)
		waiting := m.waitingFor(t)
		if j == nil || len(waiting) == 0 {
			return
		}
		c := waiting[0]
		m.give(j, c)
		c.waiting, c.claimed, c.given = false, true, j.id
	}
}

func (m *model) waitingFor(t *modelTube) (list []*modelClient) {
	for _, c := range m.clients {
		if c.waiting && slices.Contains(c.watched, t) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *modelClient) int { return cmp.Compare(a.since, b.since) })
	return list
}

func (m *model) give(j *modelJob, c *modelClient) {
	m.start(j)
	m.countStart(j)
	j.state, j.holder, j.since, j.due = "reserved", c, m.next(), m.now+clock.Seconds(j.ttr)
	j.reserves++
	m.share(j.tube)
}

func (m *model) open() *modelClient {
	t := m.find("default")
	c := &modelClient{used: t, watched: []*modelTube{t}, weights: map[*modelTube]int{t: 1}}
	m.clients = append(m.clients, c)
	m.connectionsEver++
	return c
}

func (m *model) close(c *modelClient) {
	if c.claimed {
		c.gone = true
		return
	}
	c.waiting = false
	for _, j := range m.heldBy(c) {
		m.forsake(j, c.quit || j.id == c.untold())
	}
	m.fire()
	m.clients = slices.DeleteFunc(m.clients, func(o *modelClient) bool { return o == c })
	for len(c.watched) > 0 {
		t := c.watched[0]
		last := len(c.watched) - 1
		c.watched[0] = c.watched[last]
		c.watched = c.watched[:last]
		if c.used != t {
			m.drop(t)
		}
	}
	m.drop(c.used)
}

func (m *model) heldBy(c *modelClient) []*modelJob {
	return m.all(func(j *modelJob) bool { return j.holder == c }, byStep)
}

// delivered says that a claimed client's loop has learned of it.
func (m *model) delivered(c *modelClient) {
	c.claimed = false
	if c.gone {
		m.close(c)
	}
}

// resume ends the wait of a client that was woken, or begins it anew when the
// job that ended it is no longer its own.
func (m *model) resume(c *modelClient) {
	if c.verdict != "" {
		c.out += c.verdict
		c.verdict = ""
		return
	}
	j := m.jobs[c.given]
	c.given = 0
	switch {
	case j != nil && j.holder == c && c.batch > 0:
		c.out += m.batchReply(c, append([]*modelJob{j}, m.takeBatch(c, c.batch-1)...))
	case j != nil && j.holder == c:
		c.out += m.reservedReply(c, j)
	case c.batch > 0:
		c.out += m.seekBatch(c, c.until)
	default:
		c.out += m.seek(c, c.until)
	}
}

func (m *model) halfClose(c *modelClient) {
	c.halfClosed = true
	if c.waiting {
		c.waiting = false
		c.out += c.nothing()
	}
}

// soonest is the next time at which something happens by itself.
func (m *model) soonest() clock.Time {
	at := clock.MaxTime
	for _, j := range m.jobs {
		if j.due != 0 {
			at = min(at, j.due)
		}
		if j.lingers != 0 {
			at = min(at, j.lingers)
		}
		if j.expiry != clock.MaxTime && j.state != "reserved" && j.state != "buried" {
			at = min(at, max(j.expiry, m.now)) // a restart may be late
		}
	}
	for _, x := range m.tombs {
		if x.end > m.now {
			at = min(at, x.end)
		}
	}
	for _, t := range m.tubes {
		if t.pausedUntil > m.now {
			at = min(at, t.pausedUntil)
		}
		if opens := m.opens(t); opens > m.now && len(m.waitingFor(t)) > 0 && !m.paused(t) && !m.policy(t.name).Paused {
			at = min(at, opens)
		}
	}
	for _, c := range m.clients {
		if c.waiting {
			at = min(at, c.until, c.soon)
		}
	}
	return at
}

// A dueThing is what may have something to do when time passes: a tube, or a
// client as far as it holds jobs of a shard.
type dueThing struct {
	tube     string
	holder   *modelClient
	orphans  bool // of a tube
	expiries bool // of a shard
	shard    int

	firing bool // what is to be fired in shard, for these groups
	lists  []groupWait
}

// tick does what is due now, in the order of things, and reports what is due and
// not among them.
func (m *model) tick(now clock.Time, things []dueThing, shardOf func(tube string) int) error {
	m.now = now
	m.endTombstones()
	due := func(j *modelJob) bool { return j.due != 0 && j.due <= now }
	looked := map[int]bool{} // at whose jobs expire
	for _, x := range things {
		if x.tube != "" {
			x.shard = shardOf(x.tube)
		}
		if !looked[x.shard] {
			looked[x.shard] = true
			m.expireDue(func(j *modelJob) bool { return shardOf(j.tube.name) == x.shard })
		}
		if x.firing {
			m.firedIn(x.shard, x.lists)
			continue
		}
		if x.holder != nil {
			for _, j := range m.all(func(j *modelJob) bool {
				return due(j) && j.holder == x.holder && shardOf(j.tube.name) == x.shard
			}, byDue) {
				m.timeOut(j)
			}
			continue
		}
		if x.expiries {
			continue
		}
		if x.orphans {
			m.endLingering(x.tube, now)
			continue
		}
		t := m.find(x.tube)
		if t == nil {
			continue
		}
		for _, j := range m.all(func(j *modelJob) bool { return due(j) && j.state == "delayed" && j.tube == t }, byDue) {
			m.makeReady(j)
		}
		m.endPause(t)
		m.dispatch(t)
	}
	if late := m.all(m.expires, byID); len(late) > 0 {
		return fmt.Errorf("at %d: job %d expires at %d and nothing is done for it", now, late[0].id, late[0].expiry)
	}
	if late := m.all(due, byDue); len(late) > 0 {
		return fmt.Errorf("at %d: job %d is due at %d and nothing is done for it", now, late[0].id, late[0].due)
	}
	if late := m.all(func(j *modelJob) bool { return j.lingers != 0 && j.lingers <= now }, byID); len(late) > 0 {
		return fmt.Errorf("at %d: job %d lingers until %d and nothing is done for it", now, late[0].id, late[0].lingers)
	}
	for _, t := range m.tubes {
		if t.pausedUntil != 0 && !m.paused(t) {
			return fmt.Errorf("at %d: the pause of %s should have ended at %d", now, t.name, t.pausedUntil)
		}
		if m.first(t) != nil && !m.shut(t) && len(m.waitingFor(t)) > 0 {
			return fmt.Errorf("at %d: somebody waits for %s, which is open and has a job", now, t.name)
		}
	}
	for _, c := range m.clients {
		if c.waiting && c.soon <= now {
			c.soon = m.margin(c) // somebody may have deleted a job of its
		}
		if c.waiting && min(c.until, c.soon) <= now {
			c.waiting = false
			c.verdict = c.nothing()
			if c.soon <= now {
				c.verdict = "DEADLINE_SOON\r\n"
			}
		}
	}
	return nil
}

func (m *model) timeOut(j *modelJob) {
	j.timeouts++
	m.timeouts++
	j.tube.total.timeouts++
	m.lapse(j, true)
}

func (m *model) endPause(t *modelTube) {
	if t.pausedUntil != 0 && !m.paused(t) {
		t.pausedUntil, t.pause = 0, 0
		m.dispatch(t)
	}
}

// jump lets time pass while nobody waits, so that no order matters.
func (m *model) jump(to clock.Time) {
	m.now = to
	for _, j := range m.jobs {
		switch {
		case j.lingers != 0 && j.lingers < j.due && j.lingers <= to:
			m.lapse(j, m.policy(j.tube.name).Disconnects)
		case j.due == 0 || j.due > to:
			continue
		case j.state == "delayed":
			m.makeReady(j)
		default:
			m.timeOut(j)
		}
		j.tube.total.late = true
	}
	for _, t := range m.tubes {
		m.endPause(t)
	}
}

// putBegin takes the line of a put, putEnd the rest.
func (m *model) putBegin(c *modelClient, p modelPut) {
	m.commands["put"]++
	c.incoming = &p
	if p.size <= m.maxJob {
		c.producer = true
		p.keys = m.expiring(c.used, p.keys)
		m.lastID++
		p.id = m.lastID
	}
}

func (m *model) putEnd(c *modelClient, terminated bool) string {
	p := c.incoming
	c.incoming = nil
	switch {
	case p.size > m.maxJob:
		return "JOB_TOO_BIG\r\n"
	case !terminated:
		return "EXPECTED_CRLF\r\n"
	case m.draining:
		return "DRAINING\r\n"
	}
	if reply := m.duplicate(c, p); reply != "" {
		return reply
	}
	switch {
	case !m.mayHave(c.used, p.keys):
		m.left(cmp.Or(p.keys.Terms, &journal.Terms{}).Group) // it was a member for a moment, and what waits to be recorded is tried again
		return "OUT_OF_MEMORY\r\n"
	case m.file.refusal() != "":
		return m.file.refusal()
	}
	j := &modelJob{
		id: p.id, tube: c.used, pri: p.pri, delay: p.delay, ttr: max(p.ttr, 1), body: p.body, created: m.now, keys: p.keys, expiry: clock.MaxTime,
	}
	m.jobs[j.id] = j
	m.puts++
	j.tube.puts++
	if w := j.after(); w.group != "" && !m.complete(w) {
		j.state, j.held = "delayed", true
		m.awaitExpiry(j)
		m.save(j, "held", 0)
	} else {
		m.queue(j)
	}
	return fmt.Sprintf("INSERTED %d\r\n", j.id)
}

// reserve answers "" when the client has to wait.
func (m *model) reserve(c *modelClient, until clock.Time) string {
	c.worker, c.batch = true, 0
	return m.seek(c, until)
}

func (m *model) seek(c *modelClient, until clock.Time) string {
	soon := m.margin(c)
	j := m.choose(c)
	switch {
	case j != nil:
		m.give(j, c)
		return m.reservedReply(c, j)
	case m.now >= soon:
		return "DEADLINE_SOON\r\n"
	case until <= m.now || c.halfClosed:
		return c.nothing()
	}
	c.waiting, c.since, c.until, c.soon = true, m.next(), until, soon
	return ""
}

// margin is when the first of the client's jobs is about to be taken from it.
func (m *model) margin(c *modelClient) clock.Time {
	soon := clock.MaxTime
	for _, j := range m.heldBy(c) {
		soon = min(soon, j.due-clock.Second)
	}
	return soon
}

func (m *model) reservedReply(c *modelClient, j *modelJob) string {
	return fmt.Sprintf("RESERVED %d %d%s\r\n%s\r\n", j.id, len(j.body), m.infoOf(c, j), j.body)
}

func foundReply(j *modelJob) string {
	return fmt.Sprintf("FOUND %d %d\r\n%s\r\n", j.id, len(j.body), j.body)
}

const notFound = "NOT_FOUND\r\n"

func (m *model) reserveJob(c *modelClient, id uint64) string {
	j := m.jobs[id]
	if j != nil && j.lingers != 0 {
		c.worker = true
		m.adopt(j, c)
		j.reserves++
		return m.reservedReply(c, j)
	}
	if j == nil || j.state == "reserved" || m.passedOver(j) || j.held || m.opens(j.tube) > m.now {
		return notFound
	}
	c.worker = true
	freed := j.state != "ready"
	m.give(j, c)
	if freed && (m.file == nil || m.file.err == nil) {
		m.save(j, "ready", 0)
	}
	return m.reservedReply(c, j)
}

func (m *model) delete(c *modelClient, id uint64) string {
	j := m.jobs[id]
	if j == nil || j.state == "reserved" && !m.worksOn(c, j) {
		return notFound
	}
	if m.file.failed() {
		return m.file.refusal()
	}
	m.end(j)
	m.dispatch(j.tube)
	return "DELETED\r\n"
}

func (m *model) release(c *modelClient, id uint64, pri, delay uint32) string {
	j := m.jobs[id]
	if j == nil || !m.worksOn(c, j) {
		return notFound
	}
	most := m.policy(j.tube.name).Attempts
	ends := m.overdue(j) && m.policy(j.tube.name).Dead == "" && (most == 0 || j.attempts+1 < int(most))
	if m.file.refusal() != "" && (!ends || m.file.failed()) {
		return m.file.refusal()
	}
	j.releases++
	j.attempts++
	j.tube.total.releases++
	j.pri, j.delay = pri, delay
	switch {
	case m.exhausts(j):
		j.tube.total.deadLetters++
		m.buryDead(j)
	case m.overdue(j):
		m.expire(j)
	case delay == 0 && m.policy(j.tube.name).RetryMin > 0:
		m.backOff(j)
	default:
		m.queue(j)
	}
	return "RELEASED\r\n"
}

func (m *model) bury(c *modelClient, id uint64, pri uint32) string {
	j := m.jobs[id]
	if j == nil || !m.worksOn(c, j) {
		return notFound
	}
	if m.file.refusal() != "" {
		return m.file.refusal()
	}
	j.buries++
	j.tube.total.buries++
	m.leave(j)
	j.pri = pri
	m.save(j, "buried", 0)
	j.state, j.holder, j.due, j.since = "buried", nil, 0, m.next()
	m.left(j.terms().Group)
	m.dispatch(j.tube)
	return "BURIED\r\n"
}

func (m *model) touch(c *modelClient, id uint64) string {
	j := m.jobs[id]
	if j == nil || !m.worksOn(c, j) {
		return notFound
	}
	if j.holder != c {
		m.adopt(j, c)
	}
	j.due = m.now + clock.Seconds(j.ttr)
	return "TOUCHED\r\n"
}

func (m *model) kick(c *modelClient, bound int) string {
	list := m.in(c.used, "buried", byStep)
	if len(list) == 0 {
		list = slices.DeleteFunc(m.in(c.used, "delayed", byDue), func(j *modelJob) bool { return j.held })
	}
	list = list[:min(bound, len(list))]
	if len(list) > 0 && m.file.refusal() != "" {
		return m.file.refusal()
	}
	for _, j := range list {
		j.kicks++
		j.attempts = 0
		m.save(j, "ready", 0)
		m.makeReady(j)
	}
	return fmt.Sprintf("KICKED %d\r\n", len(list))
}

func (m *model) kickJob(id uint64) string {
	j := m.jobs[id]
	if j == nil || j.state != "buried" && j.state != "delayed" {
		return notFound
	}
	if m.file.refusal() != "" {
		return m.file.refusal()
	}
	j.kicks++
	j.attempts = 0
	m.save(j, "ready", 0)
	m.makeReady(j)
	return "KICKED\r\n"
}

func (m *model) peek(id uint64) string {
	if j := m.jobs[id]; j != nil {
		return foundReply(j)
	}
	return notFound
}

func (m *model) peekFirst(c *modelClient, state string) string {
	if j := m.firstIn(c.used, state); j != nil {
		return foundReply(j)
	}
	return notFound
}

func (m *model) use(c *modelClient, name string) string {
	old := c.used
	c.used = m.make(name)
	m.drop(old)
	return "USING " + name + "\r\n"
}

func (m *model) watch(c *modelClient, name string, weight int) string {
	t := m.make(name)
	if !slices.Contains(c.watched, t) {
		c.watched = append(c.watched, t)
	}
	c.weights[t] = weight
	return fmt.Sprintf("WATCHING %d\r\n", len(c.watched))
}

func (m *model) ignore(c *modelClient, name string) string {
	t := m.find(name)
	if i := slices.Index(c.watched, t); i >= 0 {
		last := len(c.watched) - 1
		if last == 0 {
			return "NOT_IGNORED\r\n"
		}
		c.watched[i] = c.watched[last]
		c.watched = c.watched[:last]
		delete(c.weights, t)
		m.drop(t)
	}
	return fmt.Sprintf("WATCHING %d\r\n", len(c.watched))
}

func (m *model) pauseTube(name string, delay uint32) string {
	t := m.find(name)
	if t == nil {
		return notFound
	}
	t.pauses++
	t.pause, t.pausedUntil = int(delay), m.now+clock.Seconds(delay)
	if delay == 0 {
		t.pausedUntil = 0
		m.dispatch(t)
	}
	return "PAUSED\r\n"
}

func (m *model) listTubes() string { return listReply(m.tubes) }

func (m *model) listTubesWatched(c *modelClient) string { return listReply(c.watched) }

func listReply(tubes []*modelTube) string {
	data := "---\n"
	for _, t := range tubes {
		data += "- " + t.name + "\n"
	}
	return okReply(data)
}

func okReply(data string) string { return fmt.Sprintf("OK %d\r\n%s\r\n", len(data), data) }

func (m *model) countJobs(want func(*modelJob) bool) (n int) {
	for _, j := range m.jobs {
		if want(j) {
			n++
		}
	}
	return n
}

func (m *model) countClients(want func(*modelClient) bool) (n int) {
	for _, c := range m.clients {
		if want(c) {
			n++
		}
	}
	return n
}

func (m *model) stats() string {
	y := "---\n"
	line := func(key string, v any) { y += fmt.Sprintf("%s: %v\n", key, v) }
	line("current-jobs-urgent", m.countJobs(func(j *modelJob) bool { return j.state == "ready" && j.pri < 1024 }))
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		line("current-jobs-"+state, m.countJobs(func(j *modelJob) bool { return j.state == state }))
	}
	for _, word := range strings.Fields("put peek peek-ready peek-delayed peek-buried reserve " +
		"reserve-with-timeout delete release use watch ignore bury kick touch stats stats-job stats-tube " +
		"list-tubes list-tube-used list-tubes-watched pause-tube") {
		line("cmd-"+word, m.commands[word])
	}
	line("job-timeouts", m.timeouts)
	line("total-jobs", m.puts)
	line("max-job-size", m.maxJob)
	line("current-tubes", len(m.tubes))
	line("current-connections", m.countClients(func(c *modelClient) bool { return !c.gone }))
	line("current-producers", m.countClients(func(c *modelClient) bool { return !c.gone && c.producer }))
	line("current-workers", m.countClients(func(c *modelClient) bool { return !c.gone && c.worker }))
	line("current-waiting", m.countClients(func(c *modelClient) bool { return c.waiting }))
	line("total-connections", m.connectionsEver)
	line("pid", m.info.PID)
	line("version", quote(m.info.Version))
	user, system := m.info.Usage()
	line("rusage-utime", fmt.Sprintf("%d.%06d", user/time.Second, user%time.Second/time.Microsecond))
	line("rusage-stime", fmt.Sprintf("%d.%06d", system/time.Second, system%time.Second/time.Microsecond))
	line("uptime", int64(m.now/clock.Second))
	var counters journal.Counters
	if m.file != nil {
		counters = m.file.counters
	}
	line("binlog-oldest-index", counters.Oldest)
	line("binlog-current-index", counters.Current)
	line("binlog-records-migrated", counters.Migrated)
	line("binlog-records-written", counters.Written)
	line("binlog-max-size", 10485760)
	line("draining", m.draining)
	line("id", m.info.ID)
	line("hostname", quote(m.info.Hostname))
	line("os", quote(m.info.OS))
	line("platform", quote(m.info.Platform))
	return okReply(y)
}

func quote(s string) string { return `"` + s + `"` }

// statsTube shows a number of waiting clients that it is given: while a client
// is claimed, the engine may or may not still count it in other tubes.
func (m *model) statsTube(name string, waiting int) string {
	t := m.find(name)
	if t == nil {
		return notFound
	}
	y := "---\n"
	line := func(key string, v any) { y += fmt.Sprintf("%s: %v\n", key, v) }
	line("name", quote(name))
	line("current-jobs-urgent", m.countJobs(func(j *modelJob) bool {
		return j.tube == t && j.state == "ready" && j.pri < 1024
	}))
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		line("current-jobs-"+state, len(m.in(t, state, byPriority)))
	}
	line("total-jobs", t.puts)
	line("current-using", m.countClients(func(c *modelClient) bool { return c.used == t }))
	line("current-watching", m.countClients(func(c *modelClient) bool { return slices.Contains(c.watched, t) }))
	line("current-waiting", waiting)
	line("cmd-delete", t.deletes)
	line("cmd-pause-tube", t.pauses)
	line("pause", t.pause)
	line("pause-time-left", int64(max(0, t.pausedUntil-m.now)/clock.Second))
	return okReply(y)
}

func (m *model) statsJob(id uint64) string {
	j := m.jobs[id]
	if j == nil {
		return notFound
	}
	y := "---\n"
	line := func(key string, v any) { y += fmt.Sprintf("%s: %v\n", key, v) }
	line("id", id)
	line("tube", quote(j.tube.name))
	line("state", j.state)
	line("pri", j.pri)
	line("age", int64((m.now-j.created)/clock.Second))
	line("delay", j.delay)
	line("ttr", j.ttr)
	left := clock.Time(0)
	if j.due != 0 {
		left = j.due - m.now
	}
	line("time-left", int64(left/clock.Second))
	line("file", m.file.segment(id))
	line("reserves", j.reserves)
	line("timeouts", j.timeouts)
	line("releases", j.releases)
	line("buries", j.buries)
	line("kicks", j.kicks)
	return okReply(y)
}
