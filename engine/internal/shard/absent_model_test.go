package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// An absentModel is what the documents say of sessions on record that come and go, in the plainest way:
// a map of jobs in one tube, and one of sessions.
type absentModel struct {
	jobs     map[uint64]*absentJob
	sessions map[uint64]*absentSession
	linger   clock.Time // of the tube
}

type absentJob struct {
	ttr, due clock.Time
	holder   uint64 // its session; 0: it is ready, or an orphan
	reserves int
	lingers  clock.Time // until when it is an orphan; 0 if it is none
}

// orphan has no worker any more.
func (j *absentJob) orphan(until clock.Time) { j.holder, j.lingers = 0, until }

// reserve gives the job to a session.
func (j *absentJob) reserve(session uint64, now clock.Time, more int) {
	j.holder, j.lingers, j.due, j.reserves = session, 0, now+j.ttr, j.reserves+more
}

type absentSession struct {
	conn     *simConn   // nil: it is absent
	patience clock.Time // before which none of its times to run ends
}

// first is the ready job that is reserved next, 0 if there is none.
func (m *absentModel) first() uint64 {
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		if j := m.jobs[id]; j.holder == 0 && j.lingers == 0 {
			return id
		}
	}
	return 0
}

// adoptable reports whether a job is an orphan, or may be one because nobody hears of its worker.
func (m *absentModel) adoptable(j *absentJob) bool {
	return j.lingers != 0 || j.holder != 0 && m.linger > 0 && m.sessions[j.holder].conn == nil
}

// free makes orphans of what those sessions hold, or ready jobs where there are none, and forgets these.
func (m *absentModel) free(now clock.Time, of func(id uint64, s *absentSession) bool) {
	until := clock.Time(0)
	if m.linger > 0 {
		until = now + m.linger
	}
	for id, s := range m.sessions {
		if !of(id, s) {
			continue
		}
		for _, j := range m.jobs {
			if j.holder == id {
				j.orphan(until)
			}
		}
		delete(m.sessions, id)
	}
}

// lose makes a session absent. If it holds nothing, it is as one that has just begun when it goes on.
func (m *absentModel) lose(id uint64, now clock.Time) {
	x := m.sessions[id]
	x.conn, x.patience = nil, 0
	for _, j := range m.jobs {
		if j.holder == id {
			x.patience = now + 2*clock.Second
		}
	}
}

// pass has time pass.
func (m *absentModel) pass(now clock.Time) {
	for _, j := range m.jobs {
		if j.holder != 0 && now >= max(j.due, m.sessions[j.holder].patience) {
			j.holder = 0
		}
		if j.lingers != 0 && now >= min(j.due, j.lingers) {
			j.lingers = 0
		}
	}
}

// held is what Engine.held says of an engine that has the same.
func (m *absentModel) held(e *Engine) string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		if j := m.jobs[id]; j.holder != 0 || j.lingers != 0 {
			list = append(list, fmt.Sprintf("%d by %x until %d, %d times", id, j.holder, e.wall(j.due), j.reserves))
		}
	}
	return strings.Join(list, "\n")
}

// Sessions come and go, with their numbers and with leaders, as the model says; and whoever reads what is on
// record has the same, at each moment.
func TestAbsentSessionsAreWhatTheModelSays(t *testing.T) {
	seeds, steps := uint64(20), 300
	if proof {
		seeds, steps = 400, 500
	}
	seen := map[string]int{}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newSim(100, 1+int(seed%3))
		record := &tape{file: newFile(nil)}
		s.onRecord(record)
		m := &absentModel{map[uint64]*absentJob{}, map[uint64]*absentSession{}, 0}
		var numbers []uint32
		count := uint64(0)
		give := func() {
			given, _, err := s.engine.GiveNumbers(9, 1, 3)
			if err != nil {
				t.Fatal(err)
			}
			numbers = given
		}
		give()
		s.ids = func(int) uint64 {
			count++
			return sessionID(numbers[r.IntN(len(numbers))], count)
		}
		standby := New(Config{Info: testInfo, Shards: 4})
		f, fed := standby.Follow(clock.Always), 0
		f.Strict()
		// some is one of the sessions that are absent, or are not.
		some := func(absent bool) (uint64, *absentSession) {
			var ids []uint64
			for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
				if (m.sessions[id].conn == nil) == absent {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				return 0, nil
			}
			id := ids[r.IntN(len(ids))]
			return id, m.sessions[id]
		}
		for step := range steps {
			what := []string{
				"open", "put", "put", "reserve", "reserve", "reserve", "job", "touch", "touch", "release", "delete", "close", "part", "part",
				"go on", "go on", "attached", "number gone", "leader", "time", "time", "linger", "quit",
			}[r.IntN(23)]
			id, x := some(false)
			jobID := 1 + r.Uint64N(max(1, s.engine.ids.Last.Load()))
			j := m.jobs[jobID]
			holds := x != nil && j != nil && j.holder == id
			adopts := x != nil && j != nil && m.adoptable(j)
			say := func(command, want string) {
				if got := x.conn.say(command); got != want {
					t.Fatalf("seed %d, step %d: %s: %q, want %q", seed, step, command, got, want)
				}
				seen[what+" "+strings.Fields(want)[0]]++
			}
			answer := func(ok bool, yes, no string) string {
				if ok {
					return yes
				}
				return no
			}
			switch what {
			case "open":
				if len(m.sessions) < 9 {
					c := s.open()
					m.sessions[c.session.number()] = &absentSession{conn: c}
				}
			case "put":
				if x != nil {
					ttr := 1 + r.IntN(4)
					say(fmt.Sprintf("put 0 0 %d 1\r\nx", ttr), fmt.Sprintf("INSERTED %d\r\n", s.engine.ids.Last.Load()+1))
					m.jobs[s.engine.ids.Last.Load()] = &absentJob{ttr: clock.Seconds(uint32(ttr))}
				}
			case "reserve":
				if next := m.first(); x != nil && next != 0 {
					say("reserve", fmt.Sprintf("RESERVED %d 1\r\nx\r\n", next))
					m.jobs[next].reserve(id, s.now, 1)
				}
			case "job":
				if x != nil {
					ok := adopts || j != nil && j.holder == 0
					say(fmt.Sprint("reserve-job ", jobID), answer(ok, fmt.Sprintf("RESERVED %d 1\r\nx\r\n", jobID), "NOT_FOUND\r\n"))
					if ok {
						j.reserve(id, s.now, 1)
					}
				}
			case "touch":
				if x != nil {
					say(fmt.Sprint("touch ", jobID), answer(holds || adopts, "TOUCHED\r\n", "NOT_FOUND\r\n"))
					if holds || adopts {
						j.reserve(id, s.now, 0)
					}
					if adopts {
						seen["adopted"]++
					}
				}
			case "release":
				if x != nil {
					say(fmt.Sprintf("release %d 0 0", jobID), answer(holds || adopts, "RELEASED\r\n", "NOT_FOUND\r\n"))
					if holds || adopts {
						j.orphan(0)
					}
				}
			case "delete":
				if x != nil {
					ok := j != nil && (j.holder == 0 || holds || adopts)
					say(fmt.Sprint("delete ", jobID), answer(ok, "DELETED\r\n", "NOT_FOUND\r\n"))
					if ok {
						delete(m.jobs, jobID)
					}
				}
			case "close":
				if x != nil {
					_ = x.conn.Close()
					m.free(s.now, func(o uint64, _ *absentSession) bool { return o == id })
				}
			case "quit":
				if x != nil {
					x.conn.say(what)
					for _, j := range m.jobs {
						if j.holder == id {
							j.orphan(0)
						}
					}
					delete(m.sessions, id)
				}
			case "linger":
				if x != nil {
					m.linger = clock.Time(r.IntN(3)) * clock.Second
					say(fmt.Sprintf("set-tube default linger=%d", m.linger/clock.Second), "TUBE_SET\r\n")
					for _, j := range m.jobs {
						if j.holder == 0 && m.linger == 0 {
							j.lingers = 0
						}
					}
				}
			case "part":
				if x != nil {
					if !x.conn.session.Part(s.now) {
						t.Fatalf("seed %d, step %d: a session does not part", seed, step)
					}
					x.conn.ended = true
					m.lose(id, s.now)
				}
			case "go on":
				if id, x := some(true); x != nil {
					d, err := Absent(id, nil, Interests{Used: DefaultTube, Watched: []string{DefaultTube}}, 0)
					if err != nil {
						t.Fatal(err)
					}
					c := &simConn{sim: s, loop: s.loops[r.IntN(len(s.loops))], offset: 1 << 20}
					c.decoder.MaxJobSize, c.decoder.Extensions = 100, true
					if err := c.loop.GoOn(&c.session, d, 0, s.now); err != nil {
						t.Fatalf("seed %d, step %d: %v", seed, step, err)
					}
					s.conns = append(s.conns, c)
					x.conn = c
					seen[what]++
				}
			case "attached":
				number := numbers[r.IntN(len(numbers))]
				s.engine.CloseAbsent(number)
				m.free(s.now, func(o uint64, x *absentSession) bool { return x.conn == nil && journal.NumberOf(o) == number })
			case "number gone":
				number := numbers[r.IntN(len(numbers))]
				busy := false
				for o, x := range m.sessions {
					busy = busy || x.conn != nil && journal.NumberOf(o) == number
				}
				if m.linger > 0 { // orphans are on record first
					_, _ = s.engine.EndNumber(number)
					s.Settle()
					m.free(s.now, func(o uint64, x *absentSession) bool { return x.conn == nil && journal.NumberOf(o) == number })
				}
				if _, err := s.engine.EndNumber(number); (err != nil) != busy {
					t.Fatalf("seed %d, step %d: number %d ends, and is busy %v: %v", seed, step, number, busy, err)
				} else if err == nil {
					m.free(s.now, func(o uint64, _ *absentSession) bool { return journal.NumberOf(o) == number })
					give()
					seen[what]++
				}
			case "leader":
				for _, c := range s.conns {
					c.ended = true // no session of theirs goes on by itself
				}
				before := s.now
				s.follows(t, record)
				s.conns = nil
				for _, j := range m.jobs {
					if j.due += s.now - before; j.lingers != 0 {
						j.lingers = s.now + m.linger
					}
				}
				for id := range m.sessions {
					m.lose(id, s.now)
				}
				seen[what]++
			case "time":
				by := clock.Time(r.IntN(1500)) * clock.Second / 1000
				for range 15 { // so that what is due is done in the order of time
					s.Wait(time.Duration(by) / 15)
					m.pass(s.now)
				}
			}
			s.Settle()
			m.pass(s.now)
			f.feed(t, record.entries[fed:])
			fed = len(record.entries)
			want, got, read := m.held(s.engine), s.engine.held(s.engine.ids.Last.Load()), standby.held(s.engine.ids.Last.Load())
			if got != want || read != want {
				t.Fatalf("seed %d, step %d, %s: the model holds\n%s\nthe engine\n%s\nthe standby\n%s", seed, step, what, want, got, read)
			}
			if n := standby.Contradictions() + s.engine.Contradictions(); n != 0 {
				t.Fatalf("seed %d, step %d, %s: %d contradictions", seed, step, what, n)
			}
		}
		standby.Discard()
		s.engine.Discard()
	}
	for _, what := range []string{"go on", "leader", "number gone", "touch TOUCHED", "release RELEASED", "delete DELETED", "job RESERVED", "job NOT_FOUND", "adopted"} {
		if seen[what] == 0 {
			t.Errorf("%q has never happened", what)
		}
	}
}
