package faults_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/codec"
	"trellis/engine"
)

// queue is a member's jobs, and its clients while it leads: a replica.Queue.
type queue struct {
	machine *machine

	mu       sync.Mutex
	engine   *engine.Engine   // discarded when it is the queue's no more
	follower *engine.Follower // nil when the engine serves
	start    int64            // cluster time at the engine's Time 0
	loop     *loop            // nil while there is no leadership
	frozen   bool
}

const maxJobSize = 1 << 16

func newQueue(m *machine) *queue { return &queue{machine: m, engine: newEngine(0)} }

// Standby implements replica.Queue.
func (q *queue) Standby(start int64) (replica.Standby, error) {
	q.present().Discard()
	e := newEngine(start)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.engine, q.follower, q.start = e, e.Follow(engine.Always), start
	return fed{q.follower, q.machine.cluster}, nil
}

// newEngine makes one whose Time 0 is a cluster time.
func newEngine(start int64) *engine.Engine {
	return engine.New(engine.Config{MaxJobSize: maxJobSize, Shards: 1, Start: time.Unix(0, start)})
}

// Serve implements replica.Queue.
func (q *queue) Serve(l *replica.Leadership) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.machine
	if l.Now() < q.start {
		m.cluster.wrong("%s: cluster time went back from %d to %d", m.name, q.start, l.Now())
	}
	base, began := engine.Time(l.Now()-q.start), m.clock.now()
	now := func() engine.Time { return base + engine.Time(m.clock.now()-began) }
	q.follower.RecordIn(l)
	q.follower.Serve(l.NextID(), now())
	q.follower = nil
	q.loop = newLoop(m, q.engine, l, now)
	q.loop.frozen = q.frozen
	l.Attach(replica.Hooks{OnCommit: func(journal.Pos) { q.loop.Wake() }, OnRoom: q.engine.Room})
	m.cluster.led(m, leadership{l.Term(), l.NextID(), l.Now()})
	go q.loop.run()
	go q.loop.accept(m.cluster.net.listen(m.name, m.addr))
	return nil
}

// Retire implements replica.Queue.
func (q *queue) Retire(*replica.Leadership) {
	q.mu.Lock()
	l := q.loop
	q.loop = nil
	q.mu.Unlock()
	if l != nil {
		l.end()
		q.present().Discard()
	}
}

// serving is the loop, nil if there is none.
func (q *queue) serving() *loop {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.loop
}

// Hold implements replica.Queue.
func (q *queue) Hold(on bool) {
	if l := q.serving(); l != nil {
		l.hold(on)
	}
}

// freeze has the loop stand still, or go on.
func (q *queue) freeze(on bool) {
	q.mu.Lock()
	q.frozen = on
	l := q.loop
	q.mu.Unlock()
	if l != nil {
		l.freeze(on)
	}
}

// Flush implements replica.Queue.
func (q *queue) Flush(context.Context) {
	if l := q.serving(); l != nil {
		l.flush()
	}
}

func (q *queue) present() *engine.Engine {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.engine
}

// Walk implements replica.Queue.
func (q *queue) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (uint64, error) {
	return q.present().Walk(from, n, f)
}

// Settings implements replica.Queue.
func (q *queue) Settings(f func(*journal.Setting) error) error { return q.present().Settings(f) }

// Numbers implements replica.Queue.
func (q *queue) Numbers(f func(*journal.Numbers) error) error { return q.present().Numbers(f) }

// Applied implements replica.Queue.
func (q *queue) Applied(uint64, []journal.Effect) {}

// EffectsLost implements replica.Queue.
func (q *queue) EffectsLost() {}

// Digest implements replica.Queue.
func (q *queue) Digest(stamp int64) replica.Digest {
	e := q.present()
	d := journal.NewDigester(math.MaxInt64, stamp)
	_, err := e.Walk(1, math.MaxInt, d.Add)
	if errors.Join(err, e.Settings(d.AddSetting)) != nil {
		return replica.Digest{}
	}
	return replica.Digest(d.Digest())
}

// loop is what an event loop of a member that leads does between two polls, in the same order: what has come from
// clients, what is due, what others have handed over, and what is committed.
type loop struct {
	machine    *machine
	shared     *engine.Engine
	engine     *engine.Loop
	leadership *replica.Leadership
	now        func() engine.Time
	wakes      chan struct{}
	alarm      *time.Timer
	done       chan struct{}

	mail struct {
		sync.Mutex
		readable []*client // whose input, or its end, has come
	}

	mu      sync.Mutex // held in a round, and guards what follows
	held    bool
	frozen  bool
	over    bool
	clients []*client // that are not closed, as they have come
	of      map[*engine.Session]*client
	begun   []*client // that may have input left
	owed    []*client // whose replies wait for a commit, by when they began to
	cmd     codec.Command
	out     engine.Output
}

// client is one of a loop's.
type client struct {
	session engine.Session
	conn    *conn
	decoder codec.Decoder
	input   []byte
	replies []reply // that wait for a commit
	opened  bool
	told    bool // loop.mail has it; guarded by that
	waits   bool // in a command
	leaves  bool // it has sent all that it will
	quits   bool // nothing is executed for it any more
}

// reply is what a client gets when the journal is committed up to a position.
type reply struct {
	pos  journal.Pos
	text []byte
}

func newLoop(m *machine, e *engine.Engine, l *replica.Leadership, now func() engine.Time) *loop {
	o := &loop{
		machine: m, shared: e, leadership: l, now: now, of: map[*engine.Session]*client{},
		wakes: make(chan struct{}, 1), done: make(chan struct{}),
	}
	o.alarm = m.world.after(time.Hour, o.Wake)
	o.engine = e.NewLoop(o)
	return o
}

// Wake implements engine.Waker.
func (l *loop) Wake() { wake(l.wakes) }

// Alarm implements engine.Waker.
func (l *loop) Alarm(at engine.Time) {
	d := time.Duration(min(at-l.now(), engine.Time(time.Hour)))
	l.alarm.Reset(l.machine.world.instant(l.machine.clock.period(d)))
}

// accept takes clients' connections until the listener is closed.
func (l *loop) accept(from *listener) {
	for c := range from.arrivals {
		k := &client{conn: c, decoder: codec.Decoder{MaxJobSize: maxJobSize, Extensions: true}}
		c.watch(func() { l.tell(k) })
	}
}

// tell has the loop look at a client.
func (l *loop) tell(k *client) {
	l.mail.Lock()
	if !k.told {
		k.told = true
		l.mail.readable = append(l.mail.readable, k)
	}
	l.mail.Unlock()
	l.Wake()
}

func (l *loop) run() {
	defer close(l.done)
	for range l.wakes {
		l.mu.Lock()
		over := l.over
		if !over && !l.frozen {
			l.round()
		}
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// end resets all clients. When it returns nothing executes.
func (l *loop) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.Wake()
	<-l.done
	l.alarm.Stop()
	l.machine.cluster.net.unlisten(l.machine.addr)
	for _, k := range append(l.clients, l.takeMail()...) {
		k.conn.reset()
	}
}

func (l *loop) hold(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = on
	l.shared.Hold(on)
	l.Wake()
}

func (l *loop) freeze(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = on
	l.Wake()
}

// flush sends what is committed.
func (l *loop) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit()
}

func (l *loop) takeMail() []*client {
	l.mail.Lock()
	defer l.mail.Unlock()
	list := l.mail.readable
	l.mail.readable = nil
	for _, k := range list {
		k.told = false
	}
	return list
}

// round is what the loop does when it was woken. With mu held.
func (l *loop) round() {
	l.engine.Refill()
	for _, k := range l.takeMail() {
		l.read(k)
	}
	l.commit()
	if l.held {
		return
	}
	begun := l.begun
	l.begun = nil
	for _, k := range begun {
		l.advance(k)
	}
	for s := l.engine.Next(l.now()); s != nil; s = l.engine.Next(l.now()) {
		k := l.of[s]
		if k == nil {
			continue // it was closed
		}
		k.waits = s.Resume(l.now(), &l.out) == engine.Wait
		l.reply(k)
		l.advance(k)
	}
	l.commit()
	if len(l.begun) > 0 {
		l.Wake()
	}
}

// read takes what has come from a client.
func (l *loop) read(k *client) {
	b, end := k.conn.pull()
	k.input = append(k.input, b...)
	k.leaves = k.leaves || end != nil
	if !k.opened {
		k.opened = true
		l.clients = append(l.clients, k)
	}
	l.begun = append(l.begun, k)
}

// advance executes what a client has sent, as far as the round's budget goes.
func (l *loop) advance(k *client) {
	if l.of[&k.session] == nil {
		if k.quits {
			return
		}
		l.engine.Open(&k.session, l.now())
		l.of[&k.session] = k
	}
	for !k.waits && !k.quits && l.engine.Left() > 0 {
		n, ok := k.decoder.Next(k.input, &l.cmd)
		k.input = k.input[n:]
		if !ok {
			break
		}
		switch k.session.Execute(l.now(), &l.cmd, &l.out) {
		case engine.Wait:
			k.waits = true
		case engine.Quit:
			k.quits = true
		}
	}
	l.reply(k)
	switch {
	case k.quits || k.leaves && len(k.input) == 0:
		l.leave(k)
	case !k.waits && len(k.input) > 0:
		l.begun = append(l.begun, k)
	}
}

// leave ends the session of a client that will send nothing more.
func (l *loop) leave(k *client) {
	if k.waits && k.session.HalfClose(l.now(), &l.out) == engine.Wait {
		return
	}
	l.reply(k)
	k.waits, k.quits = false, true
	delete(l.of, &k.session)
	k.session.Close(l.now())
	l.clients = remove(l.clients, k)
	if len(k.replies) == 0 {
		_ = k.conn.Close()
	}
}

// reply has what stands in out sent to a client when it is committed.
func (l *loop) reply(k *client) {
	o := &l.out
	var text []byte
	at := 0
	for i := range o.Bodies {
		b := &o.Bodies[i]
		text = append(append(text, o.Buf[at:b.At]...), b.Bytes...)
		at = b.At
		b.Release()
	}
	text = append(text, o.Buf[at:]...)
	k.session.Replied(len(text), o)
	pos := o.Pos
	o.Buf, o.Pos, o.Bodies = o.Buf[:0], 0, o.Bodies[:0]
	if len(text) == 0 {
		return
	}
	if len(k.replies) == 0 {
		l.owed = append(l.owed, k)
	}
	k.replies = append(k.replies, reply{pos, text})
}

// commit sends the replies that need not wait any more.
func (l *loop) commit() {
	if len(l.owed) == 0 {
		return
	}
	l.leadership.Flush()
	committed := l.leadership.Committed()
	owed := l.owed
	l.owed = nil
	for _, k := range owed {
		for len(k.replies) > 0 && k.replies[0].pos <= committed {
			k.conn.push(k.replies[0].text)
			k.replies = k.replies[1:]
		}
		switch {
		case len(k.replies) > 0:
			l.owed = append(l.owed, k)
		case k.quits:
			_ = k.conn.Close()
		}
	}
}

func remove(list []*client, k *client) []*client {
	for i, o := range list {
		if o == k {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
