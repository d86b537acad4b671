package replica

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"trellis/binlog/journal"
)

// model is a Queue in its simplest form: a map of jobs. What it executes is checked
// against what its Standby is fed with, and it is as strict as a standby has to be.
type model struct {
	walks       sync.RWMutex // Retire and Standby wait for calls of Walk, as those of an engine do
	mu          sync.Mutex
	changed     *sync.Cond
	jobs        map[uint64]journal.Record
	settings    map[string]journal.Setting
	feeding     bool
	strict      bool
	leadership  *Leadership
	held        bool
	nextID      uint64
	leaderships int
	standbys    int
	start       int64
	decided     uint64       // as the standby was told
	untidy      int          // how often Tidy is still to be called
	onServe     func(served) // may be nil
	onRetire    func()       // may be nil
	onVisit     func(uint64) // before Walk visits a job; may be nil
	onHold      func(bool)   // may be nil
	onFlush     func()       // may be nil
	onTick      func()       // with mu held; may be nil
	ticks       int
	timeout     int // ticks after which a client hangs up; 0 is never
	applied     uint64
	effects     []journal.Effect // in the order in which they were told
	lost        int              // how often some were
}

// served is what the queue was told when it began to serve.
type served struct {
	term, nextID uint64
	now          int64
}

func newModel() *model {
	q := &model{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func (q *model) Standby(start int64) (Standby, error) {
	q.walks.Lock()
	defer q.walks.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leadership != nil {
		return nil, errors.New("a standby while the queue serves")
	}
	q.jobs, q.feeding, q.strict, q.start = map[uint64]journal.Record{}, true, false, start
	q.settings = map[string]journal.Setting{}
	q.standbys++
	q.decided, q.untidy = 0, 0
	return modelStandby{q}, nil
}

func (q *model) Serve(l *Leadership) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leadership != nil || !q.feeding {
		return errors.New("two leaderships at a time")
	}
	l.Attach(Hooks{
		OnCommit: func(journal.Pos) { q.wake() },
		OnRoom:   q.wake,
	})
	if q.start > l.Now() {
		return errors.New("cluster time went back")
	}
	q.leadership, q.feeding, q.held, q.nextID = l, false, false, l.NextID()
	q.leaderships++
	if q.onServe != nil {
		q.onServe(served{l.term, l.NextID(), l.Now()})
	}
	q.changed.Broadcast()
	return nil
}

// tick lets time pass for clients.
func (q *model) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticks++
	if q.onTick != nil {
		q.onTick()
	}
	if q.timeout > 0 {
		q.changed.Broadcast()
	}
}

func (q *model) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

func (q *model) Retire(l *Leadership) {
	if q.onRetire != nil {
		q.onRetire()
	}
	q.walks.Lock()
	defer q.walks.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leadership != l {
		panic("a leadership is retired that the queue does not have")
	}
	q.leadership, q.held = nil, false
	q.changed.Broadcast()
}

func (q *model) Hold(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = on && q.leadership != nil
	if q.onHold != nil {
		q.onHold(on)
	}
	q.changed.Broadcast()
}

func (q *model) Flush(context.Context) {
	if q.onFlush != nil {
		q.onFlush()
	}
}

func (q *model) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (uint64, error) {
	q.walks.RLock()
	defer q.walks.RUnlock()
	q.mu.Lock()
	ids := slices.Sorted(maps.Keys(q.jobs))
	q.mu.Unlock()
	i, _ := slices.BinarySearch(ids, from)
	ids = ids[i:]
	for i, id := range ids {
		if i == n {
			return id, nil
		}
		q.mu.Lock()
		r, ok := q.jobs[id]
		visit := q.onVisit
		q.mu.Unlock()
		if ok {
			if visit != nil {
				visit(id)
			}
			r.Body = slices.Clone(r.Body)
			if err := f(&r, nil); err != nil {
				return id, err
			}
			clear(r.Body) // it is valid during the call only
		}
	}
	return 0, nil
}

func (q *model) Settings(f func(*journal.Setting) error) error {
	q.mu.Lock()
	settings := maps.Clone(q.settings)
	q.mu.Unlock()
	for _, tube := range slices.Sorted(maps.Keys(settings)) {
		s := settings[tube]
		if err := f(&s); err != nil {
			return err
		}
	}
	return nil
}

// Numbers tells none: nobody is on record.
func (q *model) Numbers(func(*journal.Numbers) error) error { return nil }

// keep notes a setting.
func (q *model) keep(s *journal.Setting) {
	if delete(q.settings, s.Tube); !s.IsDefault() {
		q.settings[s.Tube] = *s
	}
}

func (q *model) Applied(index uint64, effects []journal.Effect) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if index < q.applied || index == q.applied && len(effects) > 0 {
		panic("an entry is applied a second time")
	}
	q.applied = index
	q.effects = append(q.effects, effects...)
}

func (q *model) EffectsLost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost++
}

func (q *model) Digest(int64) Digest {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := fnv.New64a()
	for _, id := range slices.Sorted(maps.Keys(q.jobs)) {
		r := q.jobs[id]
		fmt.Fprintf(h, "%d bytes ", len(r.Body))
		h.Write(r.Body)
		r.Body = nil
		fmt.Fprintf(h, "%+v\n", r)
	}
	for _, tube := range slices.Sorted(maps.Keys(q.settings)) {
		fmt.Fprintf(h, "%+v\n", q.settings[tube])
	}
	return Digest{Jobs: uint64(len(q.jobs)), Sum: h.Sum64()}
}

type modelStandby struct{ q *model }

func (s modelStandby) Stamp(int64) {}

func (s modelStandby) Full(r *journal.Record, place journal.Place) (journal.Former, error) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	old, known := s.q.jobs[r.ID]
	if known && s.q.strict && old.Tube == r.Tube && r.State != journal.Deleted {
		return journal.Former{}, diverged("a put of job %d, which is there", r.ID)
	}
	if r.ID < s.q.decided && s.q.strict && !known {
		return journal.Former{}, diverged("a put of job %d, but all below %d are decided", r.ID, s.q.decided)
	}
	c := *r
	c.Body = slices.Clone(r.Body)
	s.q.jobs[r.ID] = c
	if known {
		return journal.Former{Segment: place.Segment, Size: old.Size()}, nil
	}
	return journal.Former{}, nil
}

func (s modelStandby) Update(r *journal.Record) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	old, known := s.q.jobs[r.ID]
	if !known {
		if s.q.strict {
			return fmt.Errorf("a change of job %d, which is not there", r.ID)
		}
		return nil
	}
	s.q.jobs[r.ID] = updated(old, r)
	return nil
}

func updated(old journal.Record, r *journal.Record) journal.Record {
	n := *r
	n.Tube, n.TTR, n.Created, n.Body, n.Keys = old.Tube, old.TTR, old.Created, old.Body, old.Keys
	return n
}

func (s modelStandby) Setting(x *journal.Setting) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.keep(x)
	return nil
}

func (s modelStandby) Hold(*journal.Hold) error { return nil }

func (s modelStandby) Close(uint64) error { return nil }

func (s modelStandby) Numbers(*journal.Numbers) error { return nil }

func (s modelStandby) Delete(id uint64) uint32 {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if _, known := s.q.jobs[id]; !known {
		return 0
	}
	delete(s.q.jobs, id)
	s.q.untidy += 100
	return segment
}

func (s modelStandby) Tidy() (more bool) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.untidy = max(0, s.q.untidy-1)
	return s.q.untidy > 0
}

func (s modelStandby) Strict() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.strict = true
}

func (s modelStandby) Decided(id uint64) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.decided = id
}

// errReset is what a client sees when its connection is reset: nobody knows whether its
// command was executed.
var errReset = errors.New("connection reset")

// errRefused is what a client sees where nobody serves, or when nothing was done.
var errRefused = errors.New("refused")

// execute runs a command as a server does: at once, with a reply when what it depends on
// is committed. do returns that position.
func (q *model) execute(do func(l *Leadership) (journal.Pos, error)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.leadership
	if l == nil || q.held {
		return errRefused
	}
	pos, err := do(l)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	l.Flush()
	began := q.ticks
	for l.Committed() < pos {
		if q.leadership != l || q.timeout > 0 && q.ticks-began > q.timeout {
			return errReset
		}
		q.changed.Wait()
	}
	if q.leadership != l {
		return errReset
	}
	return nil
}

func (q *model) put(body []byte) (id uint64, err error) {
	err = q.execute(func(l *Leadership) (journal.Pos, error) {
		r := journal.Record{ID: q.nextID, State: journal.Ready, TTR: 60, Tube: "default", Created: l.Now(), Body: body}
		if r.ID%3 == 0 {
			r.Keys = journal.Keys{Unique: fmt.Sprintf("key%d", r.ID), Seconds: 60, Limited: "c", Limit: 2}
		}
		t, err := l.Put(&r)
		if err != nil {
			return 0, err
		}
		id = r.ID
		q.nextID++
		q.jobs[id] = r
		return t.Pos, nil
	})
	return id, err
}

// set changes a tube's setting of dead letters.
func (q *model) set(s journal.Setting) error {
	return q.execute(func(l *Leadership) (journal.Pos, error) {
		pos, err := l.Set(&s)
		if err == nil {
			q.keep(&s)
		}
		return pos, err
	})
}

func (q *model) delete(id uint64) error {
	return q.execute(func(l *Leadership) (journal.Pos, error) {
		r, ok := q.jobs[id]
		if !ok {
			return l.Barrier(), nil
		}
		if keys := r.Keys.Tombstone(); keys != (journal.Keys{}) && r.State != journal.Deleted {
			// It leaves a tombstone, whose end follows.
			r = journal.Record{ID: id, State: journal.Deleted, Due: l.Now(), Tube: r.Tube, Keys: keys}
			if _, err := l.Replace(&r, journal.Former{}); err != nil {
				return 0, err
			}
			q.jobs[id] = r
		}
		pos, err := l.Delete(id, journal.Former{})
		if err == nil {
			delete(q.jobs, id)
		}
		return pos, err
	})
}

// peek returns a job as it is.
func (q *model) peek(id uint64) (r journal.Record, found bool, err error) {
	err = q.execute(func(l *Leadership) (journal.Pos, error) {
		r, found = q.jobs[id]
		return l.Barrier(), nil
	})
	return r, found, err
}

func (q *model) serves() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leadership != nil && !q.held
}

func (q *model) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}
