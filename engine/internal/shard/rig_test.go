package shard

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/groups"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

// A rig drives an engine and the model side by side under a clock of its own,
// with as many loops as it likes, all on one goroutine. Unlike a sim it can leave
// things lying: mailboxes that are not looked into, sessions that were woken and
// are not resumed, alarms that are not met. So it takes the engine to every
// order of events that goroutines could.
type rig struct {
	t      *rapid.T
	plan   rigPlan
	shares *rigAccounts
	start  time.Time // at Time 0
	engine *Engine
	model  *model
	file   *file // nil without a journal
	now    clock.Time
	names  []string // of tubes

	loops  []*rigLoop
	conns  []*rigConn
	opened int

	patience int  // see the constants
	late     bool // alarms that are due have not been met

	things  []dueThing // whose timers fired
	firstID uint64
	bodies  int // counts, so that no two are the same
	ballast map[*shard]ballast
}

const (
	atOnce        = iota // mail is delivered and sessions are resumed at once
	resumesLater         // sessions are resumed by an action
	deliversLater        // so is mail delivered
)

type rigLoop struct {
	*Loop
	woken bool
	owed  bool       // it has called the engine since it called Next last
	alarm clock.Time // what it was asked for; MaxTime when that has come
}

func (l *rigLoop) Wake()               { l.woken = true }
func (l *rigLoop) Alarm(at clock.Time) { l.alarm = at }

type rigConn struct {
	rig     *rig
	number  int
	loop    *rigLoop
	session Session
	client  *modelClient
	decoder codec.Decoder
	out     reply.Output

	compared int // bytes of out.Buf that comparePos has seen

	rest     []byte // of a put, not yet sent
	bad      bool   // and its body is not terminated
	waiting  bool   // nothing can be executed
	woken    bool   // and it is to be resumed
	closed   bool   // but its session has not left
	halfShut bool
}

var testInfo = Info{
	PID: 1, Version: "1.13+trellis.test", ID: "0123456789abcdef",
	Hostname: "host", OS: "#1 os", Platform: "x86_64",
	Usage: func() (u, s time.Duration) { return 1234567 * time.Microsecond, 7 * time.Microsecond },
}

// rigPlan is how a rig is made.
type rigPlan struct {
	loops, shards, patience int
	places                  []int // the shard of each tube, the default first
	maxJob                  uint32
	lastID                  uint64
	ballast                 bool
	maxKeys                 int
	keyed                   bool // most jobs have keys
	cold                    bool // bodies leave memory whenever they can
}

// newRig makes a rig with an engine that has the given journal, if it is not nil.
func newRig(t *rapid.T, p rigPlan, f *file, start time.Time) *rig {
	r := &rig{
		t: t, plan: p, start: start, file: f,
		patience: p.patience, firstID: p.lastID, ballast: map[*shard]ballast{},
	}
	t.Cleanup(r.discard)
	cfg := Config{
		MaxJobSize: p.maxJob, Shards: p.shards, Info: testInfo, Start: start, SegmentSize: 10 << 20,
		Limits: Limits{Keys: p.maxKeys},
	}
	if f != nil {
		cfg.Journal = f
	}
	if p.cold {
		cfg.Limits.Bodies = someBodies
	}
	// Which tube is in which shard is random; here it must not be.
	for r.engine == nil || r.engine.defaultTube.shard.number != p.places[0] {
		r.shares = new(rigAccounts)
		cfg.Accounts = &r.shares.accounts
		r.engine = New(cfg)
	}
	if f != nil && f.member != nil {
		r.engine.SpillTo(f)
	}
	r.names = []string{DefaultTube}
	for i, shard := range p.places[1:] {
		for n := 0; ; n++ {
			name := fmt.Sprintf("%c%d", 'a'+i, n)
			if r.shardOf(name) == shard {
				r.names = append(r.names, name)
				break
			}
		}
	}
	for range p.loops {
		l := &rigLoop{alarm: clock.MaxTime}
		l.Loop = r.engine.NewLoop(l)
		r.loops = append(r.loops, l)
	}
	r.engine.ids.Last.Store(p.lastID)
	r.model = newModel(int(p.maxJob), p.lastID, testInfo, f)
	r.model.maxKeys = p.maxKeys
	r.model.shards, r.model.shardOf = p.shards, r.shardOf
	if p.ballast {
		r.load()
	}
	return r
}

func (r *rig) shardOf(tube string) int { return r.engine.shardFor([]byte(tube)).number }

// load fills the first chunks of every pool, so that what comes lies behind them.
func (r *rig) load() {
	const chunk = 256 << 10
	for _, sh := range r.engine.shards {
		var b ballast
		for range chunk / 64 {
			x, err := sh.jobs.Alloc()
			r.must(err)
			*sh.job(x) = job{} // whoever walks over all records takes it for one that is being put
			b.jobs = append(b.jobs, x)
		}
		for range chunk / 32 {
			x, err := sh.counters.Alloc()
			r.must(err)
			b.counters = append(b.counters, x)
		}
		for range chunk / 128 {
			x, err := sh.bodies.Alloc(ballastBody)
			r.must(err)
			b.bodies = append(b.bodies, x)
		}
		r.ballast[sh] = b
	}
}

// shed throws the ballast off: the tidier will move what is left.
func (r *rig) shed() {
	for sh, b := range r.ballast {
		c := Tx{shared: sh.shared}
		sh.lock(&c, r.now)
		for _, x := range b.jobs {
			sh.jobs.Free(x)
		}
		for _, x := range b.counters {
			sh.counters.Free(x)
		}
		for _, x := range b.bodies {
			sh.bodies.Free(x, ballastBody)
		}
		sh.tidier.wanted()
		sh.unlock(&c)
	}
	clear(r.ballast)
}

func (r *rig) must(err error) {
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) open(loop int, turn uint32) *rigConn {
	r.opened++
	c := &rigConn{rig: r, number: r.opened, loop: r.loops[loop]}
	c.decoder.MaxJobSize = r.engine.config.MaxJobSize
	c.decoder.Extensions = true
	c.loop.Open(&c.session, r.now)
	c.session.client.reserved = &ReservationSet{made: turn}
	c.loop.owed = true
	c.client = r.model.open()
	c.client.id = c.session.number()
	r.conns = append(r.conns, c)
	r.settle()
	return c
}

// feed gives bytes to a connection. What they change must be committed before
// the replies are sent.
func (r *rig) feed(c *rigConn, p []byte) Outcome {
	if r.file == nil {
		return c.feed(p)
	}
	before := r.file.pos
	outcome := c.feed(p)
	if r.file.pos != before && r.file.pos != r.file.graves && r.file.pos != r.file.fires && c.out.Pos < r.file.pos {
		r.t.Fatalf("conn %d changed what is on record up to %d, and its replies may be sent at %d", c.number, r.file.pos, c.out.Pos)
	}
	return outcome
}

// feed gives bytes to a connection as if they had been read.
func (c *rigConn) feed(p []byte) Outcome {
	var cmd codec.Command
	last := Done
	for {
		n, ok := c.decoder.Next(p, &cmd)
		p = p[n:]
		if !ok {
			return last
		}
		last = c.finish(c.session.Execute(c.rig.now, &cmd, &c.out))
	}
}

// do sends one command; want is the model's answer.
func (r *rig) do(c *rigConn, command string, want func() string) {
	word, _, _ := strings.Cut(command, " ")
	r.model.commands[word]++
	r.t.Logf("conn %d > %s", c.number, command)
	c.loop.Refill() // no command of this size takes more than a round
	outcome := r.feed(c, []byte(command+"\r\n"))
	c.client.out += want()
	r.model.fire()
	c.waiting = c.client.waiting
	r.expect(c, outcome)
	r.ran(c.loop)
}

// expect checks an outcome against what the model says.
func (r *rig) expect(c *rigConn, got Outcome) {
	want := Done
	if c.client.waiting || c.client.claimed {
		want = Wait
	}
	if got != want {
		r.t.Fatalf("conn %d: outcome %d, want %d", c.number, got, want)
	}
}

// ran says that a loop has called the engine, and that its batch of commands has
// ended.
func (r *rig) ran(l *rigLoop) {
	r.chill()
	l.by().EndRound()
	l.owed = true
	r.settle()
}

func (r *rig) settle() {
	for again := r.patience < deliversLater; again; {
		again = false
		for _, l := range r.loops {
			if l.woken || l.owed {
				again = true
				r.deliver(l)
			}
		}
	}
}

// deliver pulls all that waits for a loop.
func (r *rig) deliver(l *rigLoop) {
	l.woken, l.owed = false, false
	for {
		l.Refill()
		next := l.Next(r.now)
		if next == nil {
			break
		}
		if c := r.connOf(next); c.closed {
			r.model.delivered(c.client)
			r.forget(c)
		} else {
			r.wake(c)
		}
	}
	r.settle()
}

// wake is told that a connection can go on.
func (r *rig) wake(c *rigConn) {
	if !c.waiting || c.woken {
		r.t.Fatalf("conn %d is woken: waiting %v, woken %v", c.number, c.waiting, c.woken)
	}
	if !c.client.claimed && c.client.verdict == "" {
		r.t.Fatalf("conn %d is woken and has got nothing", c.number)
	}
	if c.client.claimed {
		r.model.delivered(c.client)
	}
	c.woken = true
	if r.patience == atOnce {
		r.resume(c)
	}
}

func (r *rig) resume(c *rigConn) {
	c.woken = false
	outcome := c.finish(c.session.Resume(r.now, &c.out))
	r.model.resume(c.client)
	c.waiting = c.client.waiting
	r.expect(c, outcome)
	c.loop.owed = true
}

func (r *rig) connOf(s *Session) *rigConn {
	for _, c := range r.conns {
		if &c.session == s {
			return c
		}
	}
	return nil
}

// holderOf is the connection whose reservations these are.
func (r *rig) holderOf(hs *ReservationSet) *rigConn {
	return r.conns[slices.IndexFunc(r.conns, func(c *rigConn) bool { return c.session.client.reserved == hs })]
}

func (r *rig) forget(c *rigConn) {
	r.conns = slices.DeleteFunc(r.conns, func(o *rigConn) bool { return o == c })
}

func (r *rig) halfClose(c *rigConn) {
	c.halfShut = true
	waited := c.client.waiting
	outcome := c.session.HalfClose(r.now, &c.out)
	r.model.halfClose(c.client)
	if waited {
		c.waiting = false
	}
	if want := map[bool]Outcome{false: Done, true: Wait}[c.waiting]; outcome != want {
		r.t.Fatalf("conn %d: outcome %d, want %d", c.number, outcome, want)
	}
	r.ran(c.loop)
}

func (r *rig) close(c *rigConn) {
	r.warm()
	done := c.session.Close(r.now)
	if again := c.session.Close(r.now); again != done {
		r.t.Fatalf("conn %d: it is closed: %v, and a moment later: %v", c.number, done, again)
	}
	c.decoder.Release()
	r.model.close(c.client)
	r.compareOutput(c)
	if done == c.client.gone {
		r.t.Fatalf("conn %d: all is given back: %v, and a job is on its way: %v", c.number, done, c.client.gone)
	}
	if c.client.gone {
		c.closed = true
	} else {
		r.forget(c)
	}
	r.ran(c.loop)
}

// spy tells the rig when a timer fires.
type spy struct {
	rig   *rig
	owner queue.Expirer
}

func (s spy) Expire(now int64) bool {
	switch x := s.owner.(type) {
	case *tube:
		s.rig.things = append(s.rig.things, dueThing{tube: x.name})
	case *firings:
		t := dueThing{firing: true, shard: x.shard.number}
		for _, l := range x.lists.All() {
			t.lists = append(t.lists, groupWait{l.Group.Name, l.Condition == groups.NoneLeft})
		}
		s.rig.things = append(s.rig.things, t)
	case *expiries:
		s.rig.things = append(s.rig.things, dueThing{expiries: true, shard: x.shard.number})
	case *orphans:
		s.rig.things = append(s.rig.things, dueThing{tube: x.tube.name, orphans: true})
	case *reservations:
		s.rig.things = append(s.rig.things, dueThing{holder: s.rig.holderOf(x.of).client, shard: x.shard.number})
	}
	return s.owner.Expire(now)
}

func (r *rig) spyOnAll() {
	on := func(t *queue.Timer) {
		if _, already := t.Owner.(spy); !already {
			t.Owner = spy{r, t.Owner}
		}
	}
	for _, sh := range r.engine.shards {
		on(&sh.firings.timer)
		for _, t := range sh.byName {
			on(&t.timer)
		}
		on(&sh.expiries.timer)
		for _, h := range sh.reservations {
			if h != nil {
				on(&h.timer)
			}
		}
	}
}

// mostAlarms is more than a wait has, however long, unless something is due again and again
// for ever.
const mostAlarms = 100_000

// wait lets time pass and meets all alarms, each when it is due.
func (r *rig) wait(to clock.Time, loopsFirst bool) {
	r.warm()
	for n := 0; ; n++ {
		if n == mostAlarms {
			r.t.Fatalf("%d alarms until %d, and more until %d", n, r.now, to)
		}
		at := clock.MaxTime
		for _, l := range r.loops {
			at = min(at, l.alarm)
		}
		if at > to {
			break
		}
		r.now = max(r.now, at)
		if next := r.model.soonest(); next < r.now {
			r.t.Fatalf("woken at %d, needed at %d", r.now, next)
		}
		r.meetAlarms(loopsFirst)
	}
	r.now, r.model.now = to, to
	r.late = false
	if next := r.model.soonest(); next <= to {
		r.t.Fatalf("not woken until %d, needed at %d", to, next)
	}
}

// meetAlarms has the loops do what is due, and nothing else: who can go on stays in
// the queues.
func (r *rig) meetAlarms(loopsFirst bool) {
	for _, c := range r.conns {
		r.comparePos(c)
	}
	r.things = nil
	r.spyOnAll()
	if loopsFirst {
		// Another loop's command may have come first to a shard.
		for _, sh := range slices.Backward(r.engine.shards) {
			c := Tx{shared: sh.shared}
			sh.lock(&c, r.now)
			sh.unlock(&c)
		}
	}
	for _, l := range r.loops {
		if l.alarm <= r.now {
			l.alarm = clock.MaxTime
			l.Refill()
			l.MeetDeadlines(r.now)
			l.owed = true
		}
	}
	r.must(r.model.tick(r.now, r.things, r.shardOf))
	for _, l := range r.loops {
		for _, s := range l.canGoOn() {
			if c := r.connOf(s); c != nil && !c.closed && c.client.verdict == "" && !c.client.claimed {
				r.t.Fatalf("the wait of conn %d has run out at %d, should at %d", c.number, r.now, min(c.client.until, c.client.soon))
			}
		}
	}
	r.settle()
}

// jump lets time pass without meeting any alarm. Nobody must be waiting.
func (r *rig) jump(to clock.Time) {
	r.warm()
	r.now, r.late = to, true
	r.model.jump(to)
}

// check compares all that the model knows with all that the engine shows.
func (r *rig) check() {
	for r.plan.cold && r.file.answer(r.engine) { // what is read ahead, which nobody waits for
	}
	sessions := make([]*Session, 0, len(r.conns))
	for _, c := range r.conns {
		r.compareOutput(c)
		if c.client.verdict != "" && !c.woken && !slices.Contains(c.loop.canGoOn(), &c.session) {
			r.t.Fatalf("the wait of conn %d has run out and nobody said so", c.number)
		}
		sessions = append(sessions, &c.session)
	}
	c := census{engine: r.engine, sessions: sessions, firstID: r.firstID, ballast: r.ballast}
	for _, err := range c.run() {
		r.t.Error(err)
	}
	for i, sh := range r.engine.shards {
		if l := r.loops[i%len(r.loops)]; l.alarm > sh.due {
			r.t.Errorf("shard %d is due at %d, the alarm of its loop is for %d", i, sh.due, l.alarm)
		}
	}
	for i, l := range r.loops {
		if due := l.wakesAt(); l.alarm > due {
			r.t.Errorf("loop %d is due at %d, its alarm is for %d", i, due, l.alarm)
		}
		if _, _, hasMail, _ := l.mailbox(); (hasMail || len(l.canGoOn()) > 0) && !l.woken && !l.owed {
			r.t.Errorf("loop %d has something to do and nobody said so", i)
		}
	}
	if !r.late {
		r.compareState()
		r.compareAccounts()
	}
	r.compareJournal()
}

func (r *rig) compareOutput(c *rigConn) {
	flatten(&c.out)
	if got, want := string(c.out.Buf), c.client.out; got != want {
		same := 0
		for same < min(len(got), len(want)) && got[same] == want[same] {
			same++
		}
		same = max(0, same-100)
		r.t.Fatalf("conn %d < ... %.400q\nwant     ... %.400q", c.number, got[same:], want[same:])
	}
	if len(c.out.Buf) > 0 {
		r.t.Logf("conn %d < %.100q", c.number, c.out.Buf)
	}
	r.comparePos(c)
	c.out.Buf, c.out.Pos, c.client.out, c.compared = c.out.Buf[:0], 0, "", 0
}

// compareState finds differences before a command shows them.
func (r *rig) compareState() {
	live := 0
	for _, sh := range r.engine.shards {
		live += sh.jobs.Live() - len(r.ballast[sh].jobs)
		for _, t := range sh.byName {
			r.compareTube(t)
		}
	}
	r.model.endTombstones()
	if live != len(r.model.jobs)+len(r.model.tombs) || r.engine.ids.Last.Load() != r.model.lastID {
		r.t.Fatalf("%d jobs, last id %d; want %d and %d tombstones, %d", live, r.engine.ids.Last.Load(), len(r.model.jobs), len(r.model.tombs), r.model.lastID)
	}
	for _, c := range r.conns {
		r.compareTurns(c)
	}
	for id, want := range r.model.jobs {
		p := r.engine.ids.Get(id)
		if p == 0 {
			r.t.Fatalf("there is no job %d", id)
		}
		sh := r.engine.shards[p.Shard()]
		j := sh.job(p.Ref())
		if j.state.String() != want.state || sh.tubes[j.tube].name != want.tube.name || j.pri != want.pri {
			r.t.Fatalf("job %d is %v in %s with priority %d, want %s in %s with %d", id,
				j.state, sh.tubes[j.tube].name, j.pri, want.state, want.tube.name, want.pri)
		}
		if (j.state == held) != want.held {
			r.t.Fatalf("job %d is held: %v, want %v", id, j.state == held, want.held)
		}
		if want.due != 0 && j.at() != want.due {
			r.t.Fatalf("job %d is %v until %d, want %d", id, j.state, j.At, want.due)
		}
		if want.holder == nobody {
			if o := sh.orphansWith(j); o == nil || o.tube != sh.tubes[j.tube] {
				r.t.Fatalf("job %d is no orphan of its tube", id)
			}
		} else if want.holder != nil && r.holderOf(sh.reservations[j.Next].of).client != want.holder {
			r.t.Fatalf("job %d is held by another connection", id)
		}
		body := sh.body(j)
		if x := r.file; j.cold() {
			if body = x.bodies[j.place()].body; x.bodies[j.place()].id != id {
				r.t.Fatalf("the body of job %d is where there is another", id)
			}
		}
		if !bytes.Equal(body, []byte(want.body)) {
			r.t.Fatalf("the body of job %d is %.100q, want %.100q", id, body, want.body)
		}
	}
}

// compareTurns checks that a close would give the jobs of a session back in the
// order in which it reserved them.
func (r *rig) compareTurns(c *rigConn) {
	older := ^uint32(0)
	for i, j := range r.model.heldBy(c.client) {
		p := r.engine.ids.Get(j.id)
		sh := r.engine.shards[p.Shard()]
		age := c.session.client.reserved.made - sh.counters.At(sh.job(p.Ref()).counters).order
		if i > 0 && age >= older {
			r.t.Fatalf("conn %d reserved job %d too early", c.number, j.id)
		}
		older = age
	}
}

func (r *rig) compareTube(t *tube) {
	mt := r.model.find(t.name)
	if mt == nil {
		r.t.Fatalf("there is a tube %s", t.name)
	}
	var got []*modelClient
	for w := t.firstWaiting; w != nil; w = w.next {
		if w.waiter.Client().claimed.Load() == claimWaiting {
			got = append(got, r.connOf(sessionOf(w.waiter)).client)
		}
	}
	if want := r.model.waitingFor(mt); !slices.Equal(got, want) {
		r.t.Fatalf("%d sessions wait for %s, want %d, or in another order", len(got), t.name, len(want))
	}
	if want := r.model.first(mt); want != nil {
		if j := t.shard.job(t.next()); j.ID != want.id {
			r.t.Fatalf("the job of %s to be reserved next is %d, want %d", t.name, j.ID, want.id)
		}
	}
}

// discard gives the engine's memory back after a failure.
func (r *rig) discard() {
	defer func() { _ = recover() }()
	for _, sh := range r.engine.shards {
		sh.mu.TryLock() // a panic may have left it locked
		sh.mu.Unlock()
	}
	r.shed()
	for _, sh := range r.engine.shards {
		sh.jobs.Walk(^ref(0), int(^uint(0)>>1), func(x ref) {
			j := sh.job(x)
			if !j.cold() {
				sh.bodies.Free(j.body, j.size)
			}
			if j.counters != 0 {
				sh.counters.Free(j.counters)
			}
			sh.jobs.Free(x)
		})
		for range 2 {
			sh.jobs.Plan()
			sh.counters.Plan()
			sh.bodies.Plan()
		}
	}
}
