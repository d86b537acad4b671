package shard

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/script"
)

// Everything cold: a body leaves memory as soon as it is in the journal for certain, and whoever needs it has it loaded.

// bodied is the body of a full record.
type bodied struct {
	id   uint64
	body []byte
}

// Load implements record.Bodies.
func (f *file) Load(list []journal.Fetch) { f.asked = append(f.asked, list...) }

// Durable implements record.Bodies.
func (f *file) Durable() journal.Pos { return f.committed }

// answer answers what was asked for. It returns false if there was nothing.
func (f *file) answer(e *Engine) bool {
	list := f.asked
	f.asked = nil
	for _, x := range list {
		e.Loaded([]journal.Fetched{f.read(x)})
	}
	return len(list) > 0
}

// read reads a body.
func (f *file) read(x journal.Fetch) journal.Fetched {
	switch b, ok := f.bodies[x.Place]; {
	case !ok:
		return journal.Fetched{Fetch: x, Err: journal.ErrMoved}
	case b.id != x.ID || len(b.body) != int(x.Size):
		panic(fmt.Sprintf("the body of job %d is asked for where there is that of %d", x.ID, b.id))
	default:
		return journal.Fetched{Fetch: x, Body: b.body}
	}
}

// bodyOf is the body of a job, wherever it is.
func (sh *shard) bodyOf(j *job) []byte {
	if j.cold() {
		return bodiesOf(sh.shared.log.Journal)[j.place()].body
	}
	return sh.body(j)
}

func bodiesOf(j any) map[journal.Place]bodied {
	switch f := j.(type) {
	case *file:
		return f.bodies
	case *holdingFile:
		return f.bodies
	}
	panic("the journal has no bodies")
}

// someBodies is a limit that tests do not come to.
const someBodies = 64 << 20

// everyEvict is what Evict looks at when all bodies are to leave that can.
const everyEvict = math.MaxInt32

// A coldMode has a sim's bodies leave memory, and come again when they are asked for.
type coldMode struct {
	*file
	late  int                         // how often they are asked for before they come
	fails func(x journal.Fetch) error // why one does not; may be nil
	waits int
	warms bool // while time passes, all bodies are in memory: dead letters need not wait for theirs
}

// warm has all bodies come into memory.
func (f *file) warm(e *Engine) {
	for _, sh := range e.shards {
		var list []journal.Fetched
		sh.jobs.Walk(^ref(0), math.MaxInt, func(r ref) {
			if j := sh.job(r); j.cold() {
				list = append(list, f.read(j.fetch()))
			}
		})
		e.Loaded(list)
	}
}

// settle has bodies come and leave. It returns false if none had to come.
func (m *coldMode) settle(e *Engine) (again bool) {
	if m == nil {
		return false
	}
	m.committed = m.pos
	if len(m.asked) > 0 {
		if m.waits++; m.waits <= m.late {
			return false
		}
		m.waits = 0
		list := m.asked
		m.asked = nil
		for _, x := range list {
			r := m.read(x)
			if m.fails != nil {
				if err := m.fails(x); err != nil {
					r.Body, r.Err = nil, err
				}
			}
			e.Loaded([]journal.Fetched{r})
		}
		again = true
	}
	m.evictAll(e)
	return again
}

// coldSim is a simulator in which everything is cold.
func coldSim(loops int) *sim {
	s := newLimitedSim(100_000, loops, Limits{Bodies: someBodies})
	s.goCold(false)
	return s
}

// goCold has everything be cold.
func (s *sim) goCold(member bool) {
	f := newHoldingFile()
	if member {
		f.isMember()
		s.engine.SpillTo(f.file)
	}
	s.engine.recordIn(f)
	s.cold = &coldMode{file: f.file}
}

// coldTape is a heldTape of a member, whose jobs it shows where they are.
type coldTape struct{ heldTape }

func (t coldTape) Put(r *journal.Record) (journal.Ticket, error) { return t.tape.Put(r) }

// coldMember has a cold sim, with which nothing was done, be a member with all sessions on record.
func (s *sim) coldMember() *tape {
	s.goCold(true)
	record := &tape{file: s.cold.file}
	s.onRecord(record)
	s.engine.recordIn(coldTape{heldTape{record}})
	return record
}

// coldJobs is how many jobs are cold.
func (s *sim) coldJobs() (n int) {
	for _, sh := range s.engine.shards {
		sh.jobs.Walk(^ref(0), math.MaxInt, func(r ref) {
			if sh.job(r).cold() {
				n++
			}
		})
	}
	return n
}

// parked reports whether the session waits for bodies.
func (s *Session) parked() bool {
	return !Inside(s.Real(), "wait").IsNil() && !Inside(s.Real(), "wait", "load").IsNil()
}

// finish has a command go on that waits for bodies, which come at once.
func (c *rigConn) finish(outcome Outcome) Outcome {
	for outcome == Wait && c.rig.plan.cold && c.session.parked() {
		if !c.rig.file.answer(c.rig.engine) {
			c.rig.t.Fatalf("conn %d waits for bodies that nobody has asked for", c.number)
		}
		outcome = c.session.Resume(c.rig.now, &c.out)
	}
	return outcome
}

// chill has all bodies leave memory that can.
func (r *rig) chill() {
	if r.plan.cold && !r.late {
		r.file.evictAll(r.engine)
	}
}

// warm has all bodies come into memory: a dead letter whose time to run ends, or whose client leaves, would have to wait
// for its own otherwise, of which the model knows nothing.
func (r *rig) warm() {
	if !r.plan.cold {
		return
	}
	r.file.warm(r.engine)
}

// told sends commands, and is told at once what it wants.
func (c *simConn) told(t *testing.T, want string, commands ...string) {
	t.Helper()
	if got := c.say(commands...); got != want {
		t.Errorf("%q was answered %q, want %q", commands, got, want)
	}
}

// The scripts, with nothing in memory that can be in the journal.
func TestScriptsWithEverythingCold(t *testing.T) {
	for name, x := range map[string]struct {
		loops  int
		member bool
	}{"one loop": {1, false}, "three loops": {3, false}, "a member": {1, true}, "a member with three loops": {3, true}} {
		t.Run(name, func(t *testing.T) {
			if x.loops > 1 && !proof {
				t.Skip("long")
			}
			target := simTarget{loops: x.loops, limits: Limits{Bodies: someBodies}, setUp: func(s *sim) {
				s.goCold(x.member)
				s.cold.warms = true
			}}
			for _, c := range script.Corpus() {
				if !c.Applies("trellis", "access", "exact") || strings.HasPrefix(c.Name, "stats/") {
					continue // or the script shows numbers of a server without a log
				}
				if err := script.Play(c, target, "trellis", "access", "exact"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Random commands, with nothing in memory that can be in the journal.
func TestRandomCommandsWithEverythingColdAreAnsweredAsByTheModel(t *testing.T) {
	rapidFlag(t, "rapid.checks", 200)
	rapidFlag(t, "rapid.steps", 80)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		p.cold, p.keyed, p.patience = true, rapid.Bool().Draw(t, "keyed"), atOnce
		f := newFile(t)
		if rapid.Bool().Draw(t, "a member") {
			f.isMember()
		}
		r := newRig(t, p, f, time.Unix(1e9, 0))
		t.Repeat(r.actions())
		r.audit()
		r = r.restart(among(t, "pause", clock.Second, 0, 100*clock.Second))
		t.Repeat(r.actions())
		r.audit()
		r.empty()
	})
}
