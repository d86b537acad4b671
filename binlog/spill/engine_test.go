package spill

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
)

// member is a standby whose bodies leave memory for files.
type member struct {
	*engine.Engine
	t    *testing.T
	feed *engine.Follower
	life *Life
	g    *rig
}

func newMember(t *testing.T, g *rig) *member {
	m := &member{t: t, g: g, Engine: engine.New(engine.Config{Shards: 2, Limits: engine.Limits{Bodies: 1 << 16}})}
	life, err := g.store.Begin(m, g.list)
	if err != nil {
		t.Fatal(err)
	}
	m.life = life
	m.SpillTo(life)
	m.feed = m.Follow(0)
	return m
}

func bodyOf(id uint64) []byte { return bytes.Repeat([]byte{byte(id), byte(id >> 8)}, 500) }

func (m *member) full(id uint64, tube string) {
	r := journal.Record{ID: id, State: journal.Ready, TTR: 9, Tube: tube, Body: bodyOf(id)}
	if _, err := m.feed.Full(&r, journal.Place{Segment: 1}); err != nil {
		m.t.Fatal(err)
	}
}

// spill has bodies leave memory, and moves what is to be moved.
func (m *member) spill() (err error) {
	for more := true; more && err == nil; {
		err = m.life.Ready()
		_, more = m.Spill(1<<14, func(r *journal.Record) bool { return m.life.Add(r) == nil && !m.life.Full() })
		err = errors.Join(err, m.life.Write())
	}
	for more := true; more && err == nil; {
		more, err = m.life.Move()
	}
	return err
}

// walk counts jobs, and those whose bodies are in files only, which it asks for. All others must have theirs.
func (m *member) walk() (jobs, cold int) {
	var asked []journal.Fetch
	if _, err := m.Walk(1, 1<<30, func(r *journal.Record, _ *journal.Hold) error {
		switch jobs++; {
		case r.Absent != nil:
			asked = append(asked, *r.Absent)
		case !bytes.Equal(r.Body, bodyOf(r.ID)):
			return fmt.Errorf("job %d has another body", r.ID)
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	m.life.Load(asked)
	return jobs, len(asked)
}

// An engine whose bodies are in files has each of them, whatever becomes of its jobs, of the files, and of a disk that
// fails now and then; and files take no more than they should.
func TestAnEngineHasItsBodiesFromFiles(t *testing.T) {
	for _, fails := range []bool{false, true} {
		g, m := newRig(t), (*member)(nil)
		m = newMember(t, g)
		m.life.Listed()
		id, live := uint64(0), 0
		for round := range 8 {
			for range 150 {
				id++
				live++
				m.full(id, "a")
			}
			g.disk.Hook(nil)
			if fails && round%2 == 0 {
				g.disk.Hook(failing(3))
				if m.spill() == nil {
					t.Error("nothing has failed")
				}
				g.disk.Hook(nil)
			}
			if err := m.spill(); err != nil {
				t.Fatal(err)
			}
			if n := m.BodyMemory(); n > 3<<16 {
				t.Errorf("bodies take %d bytes of memory", n)
			}
			for x := id - 149; x <= id; x++ {
				if x%4 > 0 {
					m.feed.Delete(x)
					live--
				} else if x%8 == 0 {
					m.full(x, "b") // it is moved
				}
			}
			if err := m.spill(); err != nil {
				t.Fatal(err)
			}
			if jobs, cold := m.walk(); jobs != live || cold == 0 {
				t.Fatalf("%d of %d jobs are there, %d in files only", jobs, live, cold)
			}
			for _, cold := m.walk(); cold > 0; _, cold = m.walk() {
				time.Sleep(time.Millisecond)
			}
		}
		for x := range id {
			m.feed.Delete(x + 1)
		}
		if s := g.store.Stats(); s.Needed != 0 {
			t.Errorf("without a job, the files are %+v", s)
		}
		m.Discard()
	}
}
