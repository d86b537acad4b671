package binlog

import (
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

const testDir = "d"

// history drives a log with random commands and knows which states a recovery
// may come to: that after some prefix of the commands, and not before what was
// committed.
type history struct {
	t    fataler
	rng  *rand.Rand
	fs   *faultfs.FS
	opts Options

	*owner
	still     bool // the log has no goroutines
	failed    chan struct{}
	committed chan struct{}

	base   map[uint64]Record // as recovered
	ops    []op
	order  uint64 // of burials
	nextID uint64
	told   uint64 // the greatest id that was told to a client
}

// fataler is a testing.TB or a rapid.T.
type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

type op struct {
	pos   Pos
	apply func(map[uint64]Record)
}

func newHistory(t fataler, seed uint64, opts Options) *history {
	if opts.SegmentSize == 0 {
		opts.SegmentSize = MinSegmentSize
	}
	return &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: faultfs.New(testDir), opts: opts}
}

// start opens the log on what the file system holds.
func (h *history) start() error {
	h.owner = newOwner()
	failed := make(chan struct{})
	h.failed = failed
	h.opts.FS = h.fs
	committed := make(chan struct{}, 1)
	h.committed = committed
	h.owner.hooks.OnCommit = func(Pos) { wake(committed) }
	h.owner.hooks.OnFail = func(error) { close(failed) }
	open := h.owner.open
	if h.still {
		open = h.owner.openStill
	}
	if err := open(testDir, h.opts); err != nil {
		return err
	}
	h.ops = nil
	h.base = h.snapshot()
	if h.log.NextID() <= h.told {
		h.t.Fatalf("id %d will be used again: %d was told to a client", h.log.NextID(), h.told)
	}
	h.nextID = h.log.NextID()
	for _, r := range h.base {
		h.order = max(h.order, r.BuryOrder)
	}
	return nil
}

func (h *history) did(pos Pos, apply func(map[uint64]Record)) {
	h.ops = append(h.ops, op{pos, apply})
}

// step does one random command. It reports false when the log takes no more.
func (h *history) step() bool {
	ids := slices.Sorted(maps.Keys(h.jobs))
	alive := slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return h.jobs[id].State == journal.Deleted })
	var err error
	switch n := h.rng.IntN(21); {
	case n < 8 || len(alive) == 0 && n < 13 || len(ids) == 0:
		err = h.stepPut()
	case n < 13:
		ids = alive
		err = h.stepUpdate(ids[h.rng.IntN(len(ids))])
	case n < 18:
		id := ids[h.rng.IntN(len(ids))]
		if h.rng.IntN(2) == 0 {
			id = ids[0]
		}
		err = h.stepDelete(id)
	case n < 19 && len(alive) > 0:
		ids = alive
		r := h.jobs[ids[h.rng.IntN(len(ids))]].Record
		if r.Tube = h.tube(); h.rng.IntN(2) == 0 { // it becomes a dead letter
			h.order++
			r.State, r.Due, r.BuryOrder = Buried, 0, h.order
			r.Releases++
			r.Attempts++
			r.Buries++
		}
		if h.rng.IntN(4) == 0 {
			r.Keys.Unique, r.Keys.Seconds = "", 0
		}
		var pos Pos
		if pos, err = h.replace(&r); err == nil {
			h.did(pos, func(m map[uint64]Record) { m[r.ID] = r })
		}
	case n < 20:
		s := journal.DeadLetters(h.tube(), h.rng.Uint32N(3), "")
		if s.RetryMin = h.rng.Uint32N(2); s.Attempts > 0 {
			s.Dead = h.tube()
		}
		var pos Pos
		if pos, err = h.set(s); err == nil {
			h.did(pos, func(m map[uint64]Record) { keepSetting(m, s) })
		}
	default:
		h.log.Flush()
		if h.rng.IntN(2) == 0 {
			h.await()
		}
		runtime.Gosched()
	}
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrBusy) {
		return true
	}
	if err != nil && !errors.Is(err, ErrFailed) {
		h.t.Fatal(err)
	}
	return err == nil
}

func (h *history) tube() string {
	return []string{"default", "mail", "x", "a-longer-name-of-a-tube"}[h.rng.IntN(4)]
}

// stepDelete ends a job or a tombstone. A job that may leave a tombstone does, as a rule.
func (h *history) stepDelete(id uint64) error {
	r := h.jobs[id].Record
	if keys := r.Keys.Tombstone(); r.State != journal.Deleted && keys != (journal.Keys{}) && h.rng.IntN(4) > 0 {
		r = Record{ID: id, State: journal.Deleted, Due: h.rng.Int64(), Tube: r.Tube, Keys: keys}
		pos, err := h.replace(&r)
		if err == nil {
			h.did(pos, func(m map[uint64]Record) { m[id] = r })
		}
		return err
	}
	pos, err := h.delete(id)
	if err == nil {
		h.did(pos, func(m map[uint64]Record) { delete(m, id) })
	}
	return err
}

// someKeys are the keys of a job: mostly none.
func (h *history) someKeys() (k journal.Keys) {
	if n := h.rng.IntN(6); n < 2 {
		k.Unique = strings.Repeat("k", 1+h.rng.IntN(journal.MaxKey))
		k.Seconds = h.rng.Uint32N(2) * h.rng.Uint32()
	} else if n > 4 {
		k.Limited, k.Limit = strings.Repeat("c", 1+h.rng.IntN(journal.MaxKey)), h.rng.Uint32N(9)+1
	}
	if h.rng.IntN(6) == 0 {
		k.Terms = &journal.Terms{Fair: "f", Group: strings.Repeat("g", h.rng.IntN(journal.MaxKey)), After: "h", Expires: h.rng.Uint32()}
	}
	return k
}

func (h *history) stepPut() error {
	size := h.rng.IntN(200)
	switch h.rng.IntN(30) {
	case 0:
		size = h.rng.IntN(3 * MinSegmentSize)
	case 1:
		size = 0
	}
	r := Record{
		ID: h.nextID, State: Ready, Pri: h.rng.Uint32(), TTR: h.rng.Uint32N(100) + 1, Created: h.rng.Int64(),
		Tube: []string{"default", "mail", "x"}[h.rng.IntN(3)], Body: make([]byte, size),
		Keys: h.someKeys(),
	}
	for i := range r.Body {
		r.Body[i] = byte(h.rng.Uint32())
	}
	if h.rng.IntN(3) == 0 {
		r.State, r.Delay, r.Due = Delayed, h.rng.Uint32N(1000), h.rng.Int64()
	}
	h.nextID++
	pos, err := h.put(&r)
	if err == nil {
		h.did(pos, func(m map[uint64]Record) { m[r.ID] = r })
	}
	return err
}

func (h *history) stepUpdate(id uint64) error {
	r := h.jobs[id].Record
	r.Pri = h.rng.Uint32()
	r.Reserves++
	r.Due, r.BuryOrder = 0, 0
	switch h.rng.IntN(3) {
	case 0:
		h.order++
		r.State, r.BuryOrder = Buried, h.order
		r.Buries++
		r.Attempts = h.rng.Uint32N(3)
	case 1:
		r.State, r.Delay, r.Due = Delayed, h.rng.Uint32(), h.rng.Int64()
		r.Releases++
		r.Attempts++
	case 2:
		r.State = Ready
		r.Kicks++
		r.Timeouts += 2
		r.Attempts = 0
	}
	pos, err := h.update(&r)
	if err == nil {
		h.did(pos, func(m map[uint64]Record) { m[id] = r })
	}
	return err
}

// await waits until all commands are committed, or the log has failed.
func (h *history) await() {
	if h.still {
		h.work()
	}
	if len(h.ops) == 0 {
		return
	}
	want := h.ops[len(h.ops)-1].pos
	h.log.Flush()
	for h.log.Committed() < want {
		if h.log.Stats().Full {
			return
		}
		select {
		case <-h.failed:
			return
		case <-h.committed:
		case <-time.After(time.Millisecond):
		}
	}
}

// crash ends the run and returns the place up to which everything must be found
// again.
func (h *history) crash(power bool) Pos {
	h.fs.Off()
	required := h.log.Committed()
	if power {
		required = h.log.Durable()
		if h.opts.Sync == SyncNever {
			required = 0
		}
	}
	// What clients know of. A power cut may take it, but the id stays used.
	for _, r := range h.at(h.log.Committed()) {
		h.told = max(h.told, r.ID)
	}
	h.log.Close()
	if power {
		h.fs = h.fs.PowerCut(h.rng)
	} else {
		h.fs = h.fs.Killed()
	}
	return required
}

func (h *history) at(pos Pos) map[uint64]Record {
	m := maps.Clone(h.base)
	for _, o := range h.ops {
		if o.pos > pos {
			break
		}
		o.apply(m)
	}
	return m
}

// check tells what is wrong with a recovered state, or "".
func (h *history) check(got map[uint64]Record, required Pos) string {
	m := maps.Clone(h.base)
	i := 0
	for ; i < len(h.ops) && h.ops[i].pos <= required; i++ {
		h.ops[i].apply(m)
	}
	first := diff(got, m)
	if first == "" {
		return ""
	}
	for ; i < len(h.ops); i++ {
		h.ops[i].apply(m)
		if len(m) == len(got) && diff(got, m) == "" {
			return ""
		}
	}
	return first
}

// recoverAndCheck starts the log again and compares.
func (h *history) recoverAndCheck(required Pos) error {
	was, base, ops := h.owner, h.base, h.ops
	if err := h.start(); err != nil {
		return err
	}
	got := h.base
	now := h.owner
	h.owner, h.base, h.ops = was, base, ops
	if wrong := h.check(got, required); wrong != "" {
		return errors.New(wrong)
	}
	h.owner, h.base, h.ops = now, got, nil
	return nil
}
