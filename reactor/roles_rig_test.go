package reactor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// tape is a journal of several servers that keeps all that is recorded, so that an engine can be made of it.
type tape struct {
	*fakeJournal
	cramped atomic.Bool  // there is no room for what may wait for that
	room    atomic.Int64 // how many of these records there is room for nevertheless

	mu      sync.Mutex
	entries []func(*engine.Follower) error // guarded by mu, as what follows
	effects []journal.Effect               // of commands
	last    uint64                         // the greatest id of a job
}

func newTape() *tape {
	j := &tape{fakeJournal: new(fakeJournal)}
	j.atOnce.Store(true)
	return j
}

func (j *tape) add(by journal.Origin, x journal.Effect, entry func(*engine.Follower) error) journal.Pos {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
	if by != (journal.Origin{}) && by.Offset != 0 {
		x.Session, x.Offset = by.Session, by.Offset
		j.effects = append(j.effects, x)
	}
	return j.next()
}

// copied is a copy of a record of which nothing is shared.
func copied(r *journal.Record) journal.Record {
	kept := *r
	kept.Body, kept.Tube = slices.Clone(r.Body), strings.Clone(r.Tube)
	kept.Keys.Unique, kept.Keys.Limited = strings.Clone(r.Keys.Unique), strings.Clone(r.Keys.Limited)
	return kept
}

func (j *tape) full(r *journal.Record, kind journal.EffectKind) journal.Pos {
	kept := copied(r)
	j.mu.Lock()
	j.last = max(j.last, r.ID)
	j.mu.Unlock()
	return j.add(r.Origin, journal.Effect{ID: r.ID, Kind: kind, State: r.State}, func(f *engine.Follower) error {
		_, err := f.Full(&kept, journal.Place{Segment: 1})
		return err
	})
}

func (j *tape) Put(r *journal.Record) (journal.Ticket, error) {
	if j.cramped.Load() && j.room.Add(-1) < 0 {
		return journal.Ticket{}, journal.ErrRoom
	}
	return journal.Ticket{Pos: j.full(r, journal.EffectPut), Segment: 1}, nil
}

func (j *tape) Move(r *journal.Record, _ journal.Former) (journal.Ticket, error) {
	return journal.Ticket{Pos: j.full(r, journal.EffectUpdate), Segment: 1}, nil
}

func (j *tape) Replace(r *journal.Record, _ journal.Former) (journal.Ticket, error) {
	return journal.Ticket{Pos: j.full(r, journal.EffectUpdate), Segment: 1}, nil
}

func (j *tape) Update(r *journal.Record) (journal.Pos, error) {
	if j.cramped.Load() && j.room.Add(-1) < 0 {
		return 0, journal.ErrRoom
	}
	return j.EndHold(r)
}

func (j *tape) EndHold(r *journal.Record) (journal.Pos, error) {
	kept := copied(r)
	return j.add(r.Origin, journal.Effect{ID: r.ID, Kind: journal.EffectUpdate, State: r.State}, func(f *engine.Follower) error {
		return f.Update(&kept)
	}), nil
}

func (j *tape) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	return j.DeleteFor(id, former, journal.Origin{})
}

func (j *tape) DeleteFor(id uint64, _ journal.Former, by journal.Origin) (journal.Pos, error) {
	return j.add(by, journal.Effect{ID: id, Kind: journal.EffectDelete}, func(f *engine.Follower) error {
		f.Delete(id)
		return nil
	}), nil
}

func (j *tape) Set(s *journal.Setting) (journal.Pos, error) {
	kept := *s
	return j.add(s.Origin, journal.Effect{Kind: journal.EffectSetting}, func(f *engine.Follower) error { return f.Setting(&kept) }), nil
}

func (j *tape) RecordsHolds() bool { return true }

func (j *tape) RecordsAll() bool { return true }

func (j *tape) RecordsLinger() bool { return true }

func (j *tape) Hold(h *journal.Hold) (journal.Pos, error) {
	kept, kind := *h, journal.EffectHold
	if h.Touch {
		kind = journal.EffectTouch
	}
	return j.add(journal.Origin{Session: h.Session, Offset: h.Offset}, journal.Effect{ID: h.ID, Kind: kind}, func(f *engine.Follower) error {
		return f.Hold(&kept)
	}), nil
}

func (j *tape) Close(session uint64) (journal.Pos, error) {
	return j.add(journal.Origin{}, journal.Effect{}, func(f *engine.Follower) error { return f.Close(session) }), nil
}

func (j *tape) Numbers(n *journal.Numbers) (journal.Pos, error) {
	kept := *n
	return j.add(journal.Origin{}, journal.Effect{}, func(f *engine.Follower) error { return f.Numbers(&kept) }), nil
}

// cluster is the journal and the clock of servers, one of which leads at a time.
type cluster struct {
	t          testing.TB
	tape       *tape
	ahead      atomic.Int64
	began      time.Time
	stopped    bool // the clock stands still but for ahead, and no time to run is longer because of a change
	maxJobSize uint32
	engines    atomic.Int64
	servers    []*testServer // each is that of a member
	leader     atomic.Pointer[testServer]
	term       atomic.Uint64
	numbers    sync.Map // of a server's loops
	told       map[*testServer]int
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, tape: newTape(), began: time.Now(), told: make(map[*testServer]int), maxJobSize: maxJob}
}

// clock is that of the servers' processes.
func (k *cluster) clock() engine.Time {
	if k.stopped {
		return engine.Time(time.Hour) + engine.Time(k.ahead.Load())
	}
	return engine.Time(time.Since(k.began)) + engine.Time(k.ahead.Load())
}

// boot is the clock by which gateways lose contact: they never do.
func (k *cluster) boot() time.Duration { return time.Hour }

// settle waits until the loops of the servers have nothing to do.
func (k *cluster) settle() {
	for range 4 {
		for _, ts := range k.servers {
			ts.onLoops(func(*loop) {})
		}
	}
}

// stop ends the servers.
func (k *cluster) stop() {
	for _, ts := range k.servers {
		ts.Abort()
	}
}

// putAhead puts the clock ahead. The loops of the server look at it.
func (k *cluster) putAhead(ts *testServer, by time.Duration) {
	k.ahead.Add(int64(by))
	ts.onLoops(func(*loop) {})
}

// engine returns an engine that has all that is on record. Its clock is that of no other one.
func (k *cluster) engine() (*engine.Engine, func() engine.Time) {
	k.t.Helper()
	base := engine.Time(1000*time.Hour) * engine.Time(k.engines.Add(1)-1)
	now := func() engine.Time { return base + k.clock() }
	e := engine.New(engine.Config{
		MaxJobSize: k.maxJobSize, Journal: k.tape, Start: time.Unix(2e9, 0).Add(-time.Duration(base)),
		Info: engine.Info{Usage: func() (u, s time.Duration) { return 0, 0 }},
	})
	f := e.Follow(engine.Always)
	f.Strict()
	j := k.tape
	j.mu.Lock()
	entries, last := slices.Clone(j.entries), j.last
	j.mu.Unlock()
	for _, feed := range entries {
		if err := feed(f); err != nil {
			k.t.Fatal(err)
		}
	}
	if n := e.Contradictions(); n > 0 {
		k.t.Errorf("%d records do not fit those before them", n)
	}
	f.RecordIn(j)
	at := now()
	if k.stopped {
		at -= engine.Time(2 * time.Second)
	}
	f.ServeOn(last+1, at)
	return e, now
}

// server starts a server that leads, whose loops have numbers.
func (k *cluster) server(network string, h hooks, change func(*Config)) *testServer {
	k.t.Helper()
	h.trunks, h.boot = trunk.Version, k.boot
	e, _ := k.engine() // the first one has the clock of the process
	ts := serveConfig(k.t, network, h, nil, func(c *Config) {
		c.Engine, c.Journal, c.Loops, c.Extensions = e, k.tape, 2, true
		c.Now, c.MaxJobSize = k.clock, k.maxJobSize
		change(c)
	})
	ts.engine = e
	k.servers = append(k.servers, ts)
	k.number(ts, e)
	k.leader.Store(ts)
	k.term.Add(1)
	return ts
}

// gateway starts a server that forwards its clients to whoever leads.
func (k *cluster) gateway(network string, h hooks, change func(*Config)) *testServer {
	k.t.Helper()
	h.trunks, h.boot = trunk.Version, k.boot
	ts := serveConfig(k.t, network, h, nil, func(c *Config) {
		c.Engine, c.Journal, c.Loops, c.Extensions = nil, nil, 2, true
		c.Now, c.MaxJobSize = k.clock, k.maxJobSize
		change(c)
	})
	ts.engine = nil
	k.servers = append(k.servers, ts)
	k.number(ts, k.leader.Load().engine)
	k.forward(ts)
	return ts
}

// forward has a server forward its clients to whoever leads.
func (k *cluster) forward(ts *testServer) {
	v, _ := k.numbers.Load(ts)
	numbers := v.([]uint32)
	ts.Forward(func(ctx context.Context, loop int) (TrunkConn, error) {
		for {
			leader := k.leader.Load()
			if leader == nil || leader == ts {
				select {
				case <-ctx.Done():
					return TrunkConn{}, ctx.Err()
				case <-time.After(time.Millisecond):
				}
				continue
			}
			here, there, err := socketPair()
			if err != nil {
				return TrunkConn{}, err
			}
			n := numbers[loop]
			fence := k.tape.recorded.Load()
			return TrunkConn{Conn: here, Peer: "leader", Number: n}, leader.AcceptTrunk(TrunkConn{
				Conn: there, Peer: "gateway", Number: n, Version: trunk.Version, Term: k.term.Load(), Fence: fence,
			})
		}
	})
}

// apply tells a server of what is on record.
func (k *cluster) apply(ts *testServer) {
	j := k.tape
	j.mu.Lock()
	effects, index := slices.Clone(j.effects[k.told[ts]:]), j.recorded.Load()
	k.told[ts] = len(j.effects)
	j.mu.Unlock()
	ts.Applied(index, effects)
}

// number gives the loops of a server their numbers.
func (k *cluster) number(ts *testServer, leader *engine.Engine) {
	k.t.Helper()
	member := uint64(len(k.servers))
	numbers, _, err := leader.GiveNumbers(member, member, len(ts.loops))
	if err != nil {
		k.t.Fatal(err)
	}
	k.numbers.Store(ts, numbers)
	ts.Number(numbers)
}

// handOver has a server lead in place of the one that does, which forwards its clients then.
func (k *cluster) handOver(to *testServer) {
	k.t.Helper()
	from := k.leader.Load()
	k.leader.Store(nil)
	from.Hold(true)
	from.Record()
	k.tape.commit(from, k.tape.recorded.Load())
	if err := from.Flush(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	old := from.engine
	if !from.Detach() {
		k.t.Fatal("a held server does not go on without its engine")
	}
	from.engine = nil
	old.Discard()
	k.forward(from)
	k.apply(to)
	k.lead(to)
	k.tape.mu.Lock()
	k.told[from] = len(k.tape.effects) // its clients are its own
	index := k.tape.recorded.Load()
	k.tape.mu.Unlock()
	from.Applied(index, nil)
	k.term.Add(1)
	k.leader.Store(to)
}

// resign has a server that leads go on without its engine, whose memory is anybody's afterwards.
func (k *cluster) resign(ts *testServer) {
	k.t.Helper()
	ts.Hold(true)
	ts.Record()
	k.tape.commit(ts, k.tape.recorded.Load())
	old := ts.engine
	if !ts.Detach() {
		k.t.Fatal("a held server does not go on without its engine")
	}
	ts.engine = nil
	old.Discard()
}

// lead has a server lead.
func (k *cluster) lead(ts *testServer) {
	k.t.Helper()
	e, now := k.engine()
	ts.engine = e
	ts.Attach(e, now, k.tape)
}

// noLeader is dialled, and does not answer.
func noLeader(ctx context.Context, _ int) (TrunkConn, error) {
	<-ctx.Done()
	return TrunkConn{}, ctx.Err()
}

// lastID is the greatest id of a job.
func (j *tape) lastID() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}
