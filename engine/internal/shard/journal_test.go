package shard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// A file is a journal in memory, which commits and fails as it is told.
type file struct {
	t         *rapid.T
	pos       journal.Pos
	committed journal.Pos
	err       error
	jobs      map[uint64]*filed
	settings  map[string]journal.Setting
	counters  journal.Counters
	graves    journal.Pos // of the last end of a tombstone
	fires     journal.Pos // of the last firing

	bodies map[journal.Place]bodied // of all full records that there ever were
	asked  []journal.Fetch          // and not answered
	member *bodyFiles               // where bodies are, which are not in the journal then; nil if they are
}

// filed is what the journal has of one job.
type filed struct {
	full    journal.Record // as it was put or moved
	record  journal.Record
	pos     journal.Pos // of its last change
	segment uint32
	offset  uint32
}

func (x *filed) place() journal.Place { return journal.Place{Segment: x.segment, Offset: x.offset} }

// ticket is that of a full record that was just made.
func (f *file) ticket(x *filed) journal.Ticket {
	if f.member != nil {
		x.segment = inLog
		return journal.Ticket{Pos: f.pos, Segment: inLog}
	}
	x.offset = uint32(f.pos)
	f.bodies[x.place()] = bodied{x.full.ID, x.full.Body}
	return journal.Ticket{Pos: f.pos, Segment: x.segment, Offset: x.offset}
}

func newFile(t *rapid.T) *file {
	return &file{t: t, jobs: map[uint64]*filed{}, settings: map[string]journal.Setting{}, counters: journal.Counters{Oldest: 1, Current: 1}, bodies: map[journal.Place]bodied{}}
}

func (f *file) next() journal.Pos {
	f.pos += 10
	f.counters.Written++
	f.counters.Current = uint32(f.pos)/200 + 1
	return f.pos
}

func copied(r *journal.Record) journal.Record {
	c := *r
	c.Body = bytes.Clone(r.Body)
	return c
}

// former is the job's last full record.
func (x *filed) former() journal.Former {
	full := x.full
	r := &full
	r.Origin = journal.Origin{} // no log of one server has origins
	f := journal.Former{Segment: x.segment, Size: r.Size()}
	if r.State != journal.Deleted {
		f.Tombstone = journal.TombstoneSize(r.Tube, &r.Keys)
	}
	return f
}

// Put implements Journal.
func (f *file) Put(r *journal.Record) (journal.Ticket, error) {
	if f.err != nil {
		return journal.Ticket{}, f.err
	}
	if f.jobs[r.ID] != nil {
		f.t.Errorf("job %d is recorded twice", r.ID)
	}
	x := &filed{full: copied(r), record: copied(r), pos: f.next(), segment: f.counters.Current}
	f.jobs[r.ID] = x
	return f.ticket(x), nil
}

// Update implements Journal.
func (f *file) Update(r *journal.Record) (journal.Pos, error) {
	if f.err != nil {
		return 0, f.err
	}
	x := f.jobs[r.ID]
	if x == nil {
		f.t.Errorf("job %d changes and is not on record", r.ID)
		return f.next(), nil
	}
	if r.Body == nil && len(x.full.Body) > 0 { // the job is cold, and the record is of what has changed
		all := *r
		all.Body = x.full.Body
		r = &all
	}
	before := copied(&x.record)
	before.Pri, before.Reserves, before.Timeouts, before.Attempts = r.Pri, r.Reserves, r.Timeouts, r.Attempts
	if r.State == journal.Ready { // that a delay has ended, or the job is reserved, is not on record
		before.State, before.Due, before.BuryOrder = r.State, 0, 0
	}
	pos := f.next()
	if x.record.State == journal.Held && r.State != journal.Held && r.Kicks == x.record.Kicks {
		f.fires = pos
	}
	// What a duplicate changes of a job that is reserved is no business of who is given it.
	if x.record = copied(r); !same(&before, r) {
		x.pos = pos
	}
	return pos, nil
}

// Delete implements Journal.
func (f *file) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	if errors.Is(f.err, journal.ErrFailed) {
		return 0, f.err
	}
	x := f.jobs[id]
	if f.member != nil {
		former.Segment = inLog
	}
	if x == nil || former != x.former() {
		f.t.Errorf("deleting job %d, which was %+v: %+v", id, former, x)
	}
	delete(f.jobs, id)
	pos := f.next()
	if x != nil && x.full.State == journal.Deleted {
		f.graves = pos
	}
	return pos, nil
}

// Move implements Journal.
func (f *file) Move(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	if f.err != nil {
		return journal.Ticket{}, f.err
	}
	x := f.jobs[r.ID]
	if x == nil || x.segment != former.Segment || former.Size != x.former().Size {
		f.t.Errorf("moving job %d, which was %+v: %+v", r.ID, former, x)
		return journal.Ticket{}, errors.New("not there")
	}
	x.full, x.record = copied(r), copied(r)
	f.counters.Migrated++
	x.segment = uint32(f.next())/200 + 1
	return f.ticket(x), nil
}

// Replace implements Journal.
func (f *file) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	if f.err != nil && (r.State != journal.Deleted || errors.Is(f.err, journal.ErrFailed)) {
		return journal.Ticket{}, f.err
	}
	x := f.jobs[r.ID]
	if f.member != nil {
		former.Segment = inLog
	}
	if x == nil || former != x.former() {
		f.t.Errorf("replacing job %d, which was %+v: %+v", r.ID, former, x)
		return journal.Ticket{}, errors.New("not there")
	}
	x.full, x.record, x.pos, x.segment = copied(r), copied(r), f.next(), f.counters.Current
	return f.ticket(x), nil
}

// Set implements Journal.
func (f *file) Set(s *journal.Setting) (journal.Pos, error) {
	if f.err != nil {
		return 0, f.err
	}
	if delete(f.settings, s.Tube); !s.IsDefault() {
		f.settings[s.Tube] = *s
	}
	return f.next(), nil
}

// Committed implements Journal.
func (f *file) Committed() journal.Pos { return f.committed }

// Counters implements Journal.
func (f *file) Counters() journal.Counters { return f.counters }

// refusal is how a command is answered whose change cannot be recorded.
func (f *file) refusal() string {
	switch {
	case f == nil || f.err == nil:
		return ""
	case errors.Is(f.err, journal.ErrFailed):
		return "INTERNAL_ERROR\r\n"
	}
	return "OUT_OF_MEMORY\r\n"
}

func (f *file) failed() bool { return f != nil && errors.Is(f.err, journal.ErrFailed) }

// segment is where a job's full record stands, 0 without a journal.
func (f *file) segment(id uint64) uint32 {
	if f == nil {
		return 0
	}
	return f.jobs[id].segment
}

// modelRecord is what would be left of a job after a restart.
type modelRecord struct {
	state           string
	pri, delay      uint32
	due             clock.Time
	since           int // the step in which it was buried
	reserves, kicks int
	timeouts        int
	releases        int
	buries          int
	attempts        int
}

// save notes what is on record of a job that comes into a state.
func (m *model) save(j *modelJob, state string, due clock.Time) {
	j.saved = modelRecord{
		state: state, pri: j.pri, delay: j.delay, due: due, since: m.step + 1,
		reserves: j.reserves, kicks: j.kicks, timeouts: j.timeouts, releases: j.releases, buries: j.buries, attempts: j.attempts,
	}
}

// compareJournal checks that the journal has what a restart needs.
func (r *rig) compareJournal() {
	if r.file == nil {
		return
	}
	r.compareTombstones()
	if n := len(r.model.jobs) + len(r.model.tombs); len(r.file.jobs) != n && !r.late {
		r.t.Fatalf("%d jobs and tombstones are on record, want %d", len(r.file.jobs), n)
	}
	settings := map[string]journal.Setting{}
	for name, p := range r.model.settings {
		settings[name] = journal.Setting{Tube: name, Policy: p}
	}
	if !maps.Equal(r.file.settings, settings) {
		r.t.Fatalf("settings %v are on record, want %v", r.file.settings, settings)
	}
	buried := map[*modelTube][]*modelJob{}
	for id, j := range r.model.jobs {
		x := r.file.jobs[id]
		if x == nil {
			r.t.Fatalf("job %d is not on record", id)
		}
		s := j.saved
		want := journal.Record{
			ID: id, State: map[string]journal.State{
				"ready": journal.Ready, "delayed": journal.Delayed, "buried": journal.Buried, "held": journal.Held,
			}[s.state],
			Pri: s.pri, Delay: s.delay, TTR: j.ttr, Created: r.wall(j.created),
			Reserves: uint32(s.reserves), Timeouts: uint32(s.timeouts), Releases: uint32(s.releases),
			Buries: uint32(s.buries), Kicks: uint32(s.kicks), Attempts: uint32(s.attempts),
			Tube: j.tube.name, Body: []byte(j.body), Keys: j.keys,
		}
		if !same(&x.full, &journal.Record{
			ID: id, State: x.full.State, Pri: x.full.Pri, Delay: x.full.Delay, TTR: j.ttr, Created: want.Created, Due: x.full.Due,
			BuryOrder: x.full.BuryOrder, Reserves: x.full.Reserves, Timeouts: x.full.Timeouts, Releases: x.full.Releases,
			Buries: x.full.Buries, Kicks: x.full.Kicks, Attempts: x.full.Attempts, Tube: want.Tube, Body: want.Body, Keys: want.Keys,
		}) {
			r.t.Fatalf("job %d was recorded as %+v", id, x.full)
		}
		if s.state == "delayed" {
			want.Due = r.wall(s.due)
		}
		if s.state == "buried" {
			buried[j.tube] = append(buried[j.tube], j)
			want.BuryOrder = x.record.BuryOrder
		}
		if !same(&x.record, &want) {
			r.t.Fatalf("on record is %+v\nwant %+v", x.record, want)
		}
	}
	for _, list := range buried {
		slices.SortFunc(list, func(a, b *modelJob) int { return cmp.Compare(a.saved.since, b.saved.since) })
		for i := range list[1:] {
			a, b := r.file.jobs[list[i].id].record.BuryOrder, r.file.jobs[list[i+1].id].record.BuryOrder
			if a >= b {
				r.t.Fatalf("jobs %d and %d are buried in this order, on record as %d and %d", list[i].id, list[i+1].id, a, b)
			}
		}
	}
}

func same(a, b *journal.Record) bool {
	return a.ID == b.ID && a.State == b.State && a.Pri == b.Pri && a.Delay == b.Delay && a.TTR == b.TTR &&
		a.Created == b.Created && a.Due == b.Due && a.BuryOrder == b.BuryOrder &&
		a.Reserves == b.Reserves && a.Timeouts == b.Timeouts && a.Releases == b.Releases &&
		a.Buries == b.Buries && a.Kicks == b.Kicks && a.Attempts == b.Attempts && a.Tube == b.Tube && a.Keys.Equal(&b.Keys) &&
		bytes.Equal(a.Body, b.Body)
}

// compareTombstones checks what is on record of deleted jobs.
func (r *rig) compareTombstones() {
	if !r.late {
		r.model.endTombstones()
	}
	for _, x := range r.model.tombs {
		f := r.file.jobs[x.id]
		if f == nil {
			if x.end > r.now {
				r.t.Fatalf("the tombstone of job %d is not on record", x.id)
			}
			continue
		}
		want := journal.Record{ID: x.id, State: journal.Deleted, Due: r.wall(x.end), Tube: x.tube, Keys: x.keys}
		if !same(&f.full, &want) {
			r.t.Fatalf("on record is %+v\nwant %+v", f.full, want)
		}
	}
}

func (r *rig) wall(t clock.Time) int64 { return r.start.UnixNano() + int64(t) }

// comparePos checks that a connection's replies since the last time depend on what they
// tell of, before something else is recorded by time:
// the client must not know of a job that a restart would undo.
func (r *rig) comparePos(c *rigConn) {
	if r.file == nil {
		return
	}
	flatten(&c.out)
	out := string(c.out.Buf[c.compared:])
	c.compared = len(c.out.Buf)
	for out != "" {
		line, rest, _ := strings.Cut(out, "\r\n")
		var id uint64
		var size int
		if n, _ := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); n == 2 {
			if x := r.file.jobs[id]; x != nil && x.pos > r.file.committed && c.out.Pos < x.pos {
				r.t.Fatalf("conn %d got job %d, recorded at %d, in a reply that may be sent at %d", c.number, id, x.pos, c.out.Pos)
			}
			rest = rest[size+2:]
		} else if n, _ := fmt.Sscanf(line, "FOUND %d %d", &id, &size); n == 2 {
			if x := r.file.jobs[id]; x != nil && x.pos > r.file.committed && c.out.Pos < x.pos {
				r.t.Fatalf("conn %d was shown job %d, recorded at %d, in a reply that may be sent at %d", c.number, id, x.pos, c.out.Pos)
			}
			rest = rest[size+2:]
		} else if n, _ := fmt.Sscanf(line, "INSERTED %d %s", &id, new(string)); n == 2 {
			if x := r.file.jobs[id]; x != nil && x.pos > r.file.committed && c.out.Pos < x.pos {
				r.t.Fatalf("conn %d was told of job %d, recorded at %d, in a reply that may be sent at %d", c.number, id, x.pos, c.out.Pos)
			}
		} else if n, _ := fmt.Sscanf(line, "OK %d", &size); n == 1 {
			rest = rest[size+2:]
		}
		out = rest
	}
}

func (r *rig) journalAction(t *rapid.T) {
	if r.file == nil {
		t.Skip("no journal")
	}
	f := r.file
	switch rapid.IntRange(0, 7).Draw(t, "journal") {
	case 0, 1:
		f.committed = f.pos
	case 2:
		f.committed += journal.Pos(rapid.Uint64Range(0, uint64(f.pos-f.committed)).Draw(t, "commits"))
	case 3:
		f.err = journal.ErrNoSpace
		t.Log("the disk is full")
	case 4:
		f.err = journal.ErrBusy
		t.Log("the disk is slow")
	case 5:
		// A tombstone that ends then stays on record.
		// So is a job that is to be fired then, for good.
		if rapid.Bool().Draw(t, "fails") && len(r.model.tombs) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(r.model.jobs)), r.model.isHeld) {
			f.err = fmt.Errorf("writing: %w", journal.ErrFailed)
			t.Log("the disk fails")
		}
	default:
		f.err = nil
	}
}

// migrate makes the engine record a job anew.
func (r *rig) migrate(t *rapid.T) {
	if r.file == nil || r.late || r.file.member != nil {
		t.Skip("no journal, or the engine does not know how late it is")
	}
	id := r.jobID(t)
	segment := uint32(1)
	if x := r.file.jobs[id]; x != nil && rapid.IntRange(0, 3).Draw(t, "wrong") != 3 {
		segment = x.segment
	}
	before := r.file.pos
	err := r.engine.Migrate(id, journal.Place{Segment: segment}, nil)
	if !errors.Is(err, r.file.err) && err != nil {
		t.Fatalf("migrating job %d: %v", id, err)
	}
	if r.file.pos == before {
		return
	}
	j := r.model.jobs[id]
	t.Logf("job %d is recorded anew", id)
	if j == nil {
		return // a tombstone
	}
	since := j.saved.since
	switch j.state {
	case "reserved":
		r.model.save(j, "ready", 0)
	case "delayed":
		r.model.save(j, map[bool]string{false: "delayed", true: "held"}[j.held], j.due)
	default:
		r.model.save(j, j.state, 0)
	}
	j.saved.since = since
}

// tell tells a follower what is on record, as it stands in a log: full records, and the last states
// of jobs. A follower that leaves bodies where they are is told every other job without.
func (f *file) tell(to *Follower) error {
	if f.member != nil {
		f.isMember()
		to.shared.SpillTo(f)
	}
	for _, x := range f.settings {
		if err := to.Setting(&x); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		x := f.jobs[id]
		full := x.full
		if n := len(full.Body); to.shared.shards[0].residents != nil && f.member == nil && id%2 == 1 && n > 0 {
			full.Body, full.Absent = nil, &journal.Fetch{ID: id, Place: x.place(), Size: uint32(n)}
		}
		if _, err := to.Full(&full, x.place()); err != nil {
			return err
		}
		if x.full.State == journal.Deleted {
			continue
		}
		if err := to.Update(&x.record); err != nil {
			return err
		}
	}
	return nil
}

// restart makes an engine and a model of what is on record.
func (r *rig) restart(after clock.Time) *rig {
	f := newFile(r.t)
	f.pos, f.committed, f.counters = r.file.pos, r.file.pos, r.file.counters
	for id, x := range r.file.jobs {
		f.jobs[id] = &filed{full: copied(&x.full), record: copied(&x.record), pos: x.pos, segment: x.segment, offset: x.offset}
		f.bodies[x.place()] = r.file.bodies[x.place()]
	}
	f.settings = maps.Clone(r.file.settings)
	if r.file.member != nil {
		f.isMember()
	}
	plan := r.plan
	plan.ballast = false
	n := newRig(r.t, plan, f, r.start.Add(time.Duration(r.now+after)))
	n.shares.set(r.shares.tubes)
	m := n.model
	m.lastID = r.model.lastID
	m.settings = maps.Clone(r.model.settings)
	follower := n.engine.Follow(0)
	for _, s := range f.settings {
		if err := follower.Setting(&s); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		x := r.file.jobs[id]
		// As it stands in a log: the full record, then its last state.
		first := x.segment
		if f.member == nil {
			first += 7
		}
		if _, err := follower.Full(&x.full, journal.Place{Segment: first}); err != nil {
			r.t.Fatal(err)
		}
		if replaced, err := follower.Full(&x.full, x.place()); err != nil || replaced.Segment != first {
			r.t.Fatalf("job %d replaces one in segment %d, %v", id, replaced, err)
		}
		old := r.model.jobs[id]
		if old == nil {
			continue // a tombstone
		}
		if err := follower.Update(&x.record); err != nil {
			r.t.Fatal(err)
		}
		s := old.saved
		j := &modelJob{
			id: id, tube: m.make(old.tube.name), ttr: old.ttr, body: old.body,
			created: old.created - r.now - after, expiry: clock.MaxTime,
			keys: old.keys, state: s.state, pri: s.pri, delay: s.delay, since: s.since,
			reserves: s.reserves, timeouts: s.timeouts, releases: s.releases, buries: s.buries, kicks: s.kicks,
			attempts: s.attempts,
		}
		if s.state == "delayed" {
			if j.due = s.due - r.now - after; j.due <= 0 {
				j.state, j.due = "ready", 0
			}
		}
		if s.state == "held" {
			j.state, j.held = "delayed", true
		}
		m.restoreExpiry(j)
		j.saved = s
		j.saved.due = s.due - r.now - after
		m.jobs[id] = j
		m.step = max(m.step, j.since)
	}
	for _, x := range r.model.tombs {
		y := *x
		y.end -= r.now + after
		m.tombs = append(m.tombs, &y)
	}
	for _, j := range m.all(func(j *modelJob) bool { return j.held }, byID) {
		m.left(j.terms().After)
	}
	follower.Serve(m.lastID+1, 0)
	n.wait(0, false) // tombstones that have ended meanwhile
	return n
}

// Who is shown the numbers of a tube need not think that a crash may change them.
func TestStatisticsOfATubeWaitForWhatTheyCount(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c, other := s.open(), s.open()
	for _, line := range []string{"put 0 0 9 1\r\nx", "reserve-job 1", "bury 1 0", "kick 1", "put 0 9 9 1\r\nx"} {
		c.say(line)
		f.committed = f.pos - 10
		other.out.Pos = 0
		other.say("stats-tube default")
		if other.out.Pos != f.pos {
			t.Errorf("behind %q, which is on record at %d, statistics wait for %d", line, f.pos, other.out.Pos)
		}
	}
}
