package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/member"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

const (
	root = "d"
	dir  = "d/snapshots"

	bodiesDir = "d/bodies"
)

// queue is a standby that is a map. Settings stand beside the jobs, each as something like
// a job under an id that no job has.
type queue map[uint64]job

// settingID is under which id a setting stands.
func settingID(tube string) uint64 { return 1<<63 | uint64(sum(0, []byte(tube))) }

func (q queue) Setting(s *journal.Setting) error {
	id := settingID(s.Tube)
	if delete(q, id); !s.IsDefault() {
		q[id] = job{Record: journal.Record{Attempts: s.Attempts, Delay: s.RetryMin, Tube: s.Tube, Body: []byte(s.Dead)}}
	}
	return nil
}

func (q queue) Hold(*journal.Hold) error { return nil }

func (q queue) Close(uint64) error { return nil }

func (q queue) Numbers(*journal.Numbers) error { return nil }

// settings are those in q.
func (q queue) settings() (list []journal.Setting) {
	for _, id := range slices.Sorted(maps.Keys(q)) {
		if j := q[id]; j.ID == 0 {
			s := journal.DeadLetters(j.Tube, j.Attempts, string(j.Body))
			s.RetryMin = j.Delay
			list = append(list, s)
		}
	}
	return list
}

type job struct {
	journal.Record
	segment uint32
}

func (q queue) Full(r *journal.Record, place journal.Place) (journal.Former, error) {
	var was journal.Former
	if old, ok := q[r.ID]; ok {
		was = journal.Former{Segment: old.segment, Size: old.Size()}
	}
	j := job{*r, place.Segment}
	j.Body, j.Tube = bytes.Clone(r.Body), strings.Clone(r.Tube)
	q[r.ID] = j
	return was, nil
}

func (q queue) Update(r *journal.Record) error {
	j, ok := q[r.ID]
	if !ok {
		return nil
	}
	old := j.Record
	j.Record = *r
	j.Tube, j.Body, j.TTR, j.Created, j.Keys = old.Tube, old.Body, old.TTR, old.Created, old.Keys
	q[r.ID] = j
	return nil
}

func (q queue) Delete(id uint64) uint32 {
	was := q[id].segment
	delete(q, id)
	return was
}

// diff tells how q differs from want, but for the segments.
func (q queue) diff(want queue) error {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		got, ok := q[id]
		if !ok {
			return fmt.Errorf("job %d is not there", id)
		}
		if a, b := text(&got.Record), text(ptr(want[id].Record)); a != b {
			return fmt.Errorf("job %d is %s, not %s", id, a, b)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q)) {
		if _, ok := want[id]; !ok {
			return fmt.Errorf("job %d should not be there", id)
		}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

func text(r *journal.Record) string {
	x := *r
	x.Body = nil
	if t := x.Keys.Terms; t != nil {
		x.Keys.Terms = nil
		x.Tube += fmt.Sprintf(" on %+v", *t)
	}
	return fmt.Sprintf("%+v with %d bytes of sum %x", x, len(r.Body), sum(0, r.Body))
}

// recordOf is a job with an id and fields that depend on n.
func recordOf(id uint64, n int, body int) journal.Record {
	r := journal.Record{
		ID: id, State: journal.Ready, Pri: uint32(n), Delay: 3, TTR: 60, Created: 1e18 + int64(id),
		Reserves: uint32(n), Tube: []string{"default", "orders", "mail"}[n%3], Body: bytes.Repeat([]byte{byte('a' + n%26)}, body),
	}
	if r.Kicks = uint32(n % 2); n%5 == 0 {
		r.Attempts = uint32(n % 3)
	}
	switch n % 7 {
	case 1:
		r.Keys = journal.Keys{Unique: fmt.Sprintf("key%d", id), Seconds: uint32(n)}
	case 2:
		r.Keys = journal.Keys{Limited: "some-key", Limit: uint32(n)}
	case 3:
		r.Keys = journal.Keys{Unique: fmt.Sprintf("key%d", id), Seconds: 1, Limited: "c", Limit: 1}
	}
	if n%3 == 2 {
		r.Keys.Terms = &journal.Terms{Fair: fmt.Sprint("f", n), Group: "g", After: "h", Settled: n%2 == 0, Expires: uint32(n)}
	}
	switch n % 4 {
	case 1:
		r.State, r.BuryOrder = journal.Buried, uint64(n)
	case 2:
		r.State, r.Due = journal.Delayed, 2e18+int64(n)
	}
	return r
}

// change is a record of an entry.
type change struct {
	full   *journal.Record
	update *journal.Record
	delete uint64

	setting *journal.Setting
}

func (c change) tell(to interface {
	Full(r *journal.Record) error
	Update(r *journal.Record) error
	Delete(id uint64) error
	Setting(s *journal.Setting) error
},
) error {
	switch {
	case c.full != nil:
		return to.Full(c.full)
	case c.update != nil:
		return to.Update(c.update)
	case c.setting != nil:
		return to.Setting(c.setting)
	}
	return to.Delete(c.delete)
}

// node is a queue that changes while a snapshot of it is taken.
type node struct {
	rng    *rand.Rand
	jobs   queue
	lastID uint64
	n      int

	store  *spill.Store // of body files; nil before spill
	life   *spill.Life
	places map[uint64]placed
}

// placed is a body in a body file.
type placed struct {
	body []byte
	at   journal.Place
}

// spill copies the bodies of half of the jobs to body files, so that snapshots have their places.
func (n *node) spill(fs vfs.FS) error {
	n.places = map[uint64]placed{}
	var err error
	if n.store, err = spill.Open(spill.Options{FS: fs, Dir: bodiesDir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	life, err := n.store.Begin(n, nil)
	n.life = life
	for _, id := range slices.Sorted(maps.Keys(n.jobs)) {
		if j := n.jobs[id]; j.ID%2 > 0 && len(j.Body) > 0 && err == nil {
			n.places[id] = placed{body: j.Body}
			err = life.Add(&j.Record)
		}
	}
	if err == nil {
		err = life.Write()
	}
	return err
}

func (n *node) Spilled(id uint64, at journal.Place) bool {
	n.places[id] = placed{n.places[id].body, at}
	return at.Known()
}

func (n *node) Leaves(uint64, journal.Place) bool               { return false }
func (n *node) Moved(uint64, journal.Place, journal.Place) bool { return false }
func (n *node) Loaded([]journal.Fetched)                        {}

// record is what a walk meets of a job.
func (n *node) record(id uint64) *journal.Record {
	r := n.jobs[id].Record
	if p := n.places[id]; p.at.Known() && bytes.Equal(p.body, r.Body) {
		r.Body, r.Absent = nil, &journal.Fetch{ID: id, Place: p.at, Size: uint32(len(r.Body))}
	}
	return &r
}

func newNode(seed uint64) *node {
	return &node{rng: rand.New(rand.NewPCG(seed, 1)), jobs: queue{}}
}

// change does something to a job, or to a setting.
func (n *node) change() change {
	n.n++
	if n.rng.IntN(20) == 0 {
		s := journal.DeadLetters(fmt.Sprint("tube", n.rng.IntN(5)), n.rng.Uint32N(3), "")
		s.RetryMin = n.rng.Uint32N(2)
		if s.Attempts > 0 {
			s.Dead = fmt.Sprint("dead", n.rng.IntN(5))
		}
		n.jobs.Setting(&s)
		return change{setting: &s}
	}
	ids := slices.Sorted(maps.Keys(n.jobs))
	for len(ids) > 0 && n.jobs[ids[len(ids)-1]].ID == 0 { // a setting
		ids = ids[:len(ids)-1]
	}
	if len(ids) == 0 || n.rng.IntN(3) == 0 {
		n.lastID += 1 + uint64(n.rng.IntN(2))
		r := recordOf(n.lastID, n.n, n.rng.IntN(300))
		n.jobs.Full(&r, journal.Place{})
		return change{full: &r}
	}
	id := ids[n.rng.IntN(len(ids))]
	old := n.jobs[id].Record
	what := n.rng.IntN(4)
	switch keys := old.Keys.Tombstone(); {
	case old.State == journal.Deleted:
		what = 0
	case what == 0 && keys != (journal.Keys{}):
		r := journal.Record{ID: id, State: journal.Deleted, Due: 3e18 + int64(n.n), Tube: old.Tube, Keys: keys}
		n.jobs.Full(&r, journal.Place{})
		return change{full: &r}
	}
	switch what {
	case 0:
		n.jobs.Delete(id)
		return change{delete: id}
	case 1: // a full record of a known job: another tube
		r := recordOf(id, n.n, 0)
		r.Body = old.Body
		n.jobs.Full(&r, journal.Place{})
		return change{full: &r}
	default:
		r := recordOf(id, n.n, 0)
		r.Tube, r.Body, r.TTR, r.Created, r.Keys = "", nil, 0, 0, journal.Keys{}
		n.jobs.Update(&r)
		return change{update: &r}
	}
}

// write takes a snapshot while the queue goes on to change: each job is written as it is
// when the walk comes to it, and what was changed since the walk began follows.
func (n *node) write(w *Writer) error {
	var entries []change
	for last := uint64(0); ; {
		for range n.rng.IntN(3) {
			entries = append(entries, n.change())
		}
		next := n.lastID + 1
		for id := range n.jobs {
			if id > last {
				next = min(next, id)
			}
		}
		if _, ok := n.jobs[next]; !ok || len(entries) > 500 {
			break
		}
		last = next
		if err := w.Full(n.record(next)); err != nil {
			return err
		}
	}
	for _, s := range n.jobs.settings() {
		if err := w.Setting(&s); err != nil {
			return err
		}
	}
	for _, c := range entries {
		if err := c.tell(w); err != nil {
			return err
		}
	}
	return nil
}

// take takes a whole snapshot with small segments, of that index.
func (n *node) take(fs vfs.FS, index uint64) (Meta, string, error) {
	w, err := Create(fs, dir)
	if err != nil {
		return Meta{}, "", err
	}
	w.out.Limit = 4 << 10
	if err := n.write(w); err != nil {
		return Meta{}, "", cmp.Or(w.Abort(), err)
	}
	m := n.meta(index)
	if n.store != nil {
		if m.Files, err = n.store.Seal(w.Files()); err != nil {
			return Meta{}, "", cmp.Or(w.Abort(), err)
		}
	}
	return w.Finish(m)
}

func (n *node) meta(index uint64) Meta {
	m := metaOf(index)
	m.Highest, m.Decided = n.lastID, n.lastID/2
	return m
}

// metaOf is what a snapshot of three members says.
func metaOf(index uint64) Meta {
	return Meta{
		Index: index, Term: 3, ConfState: &raftpb.ConfState{Voters: []uint64{11, 12, 13}, Learners: []uint64{14}},
		Members: []member.Member{
			{ID: 11, Incarnation: 21, Name: "n1", Addr: "127.0.0.1:11390"},
			{ID: 12, Incarnation: 22, Name: "n2", Addr: "127.0.0.1:11391"},
		},
		BatchTerm: 2, Sequence: 7, Stamp: 1_700_000_000_123_456_789, Version: 1,
	}
}

// loaded is what the current snapshot holds; nil if there is none.
func loaded(fs vfs.FS) (Meta, queue, error) {
	m, path, err := Current(fs, dir)
	if err != nil {
		return m, nil, err
	}
	q := queue{}
	return m, q, load(fs, path, &m, q)
}

func load(fs vfs.FS, path string, m *Meta, q queue) error {
	r := spill.NewReader(fs, bodiesDir, m.Files)
	return errors.Join(Load(fs, path, Filled(q, r, func(err error) error { return err }), nil), r.Close())
}

// names are the names in the directory of snapshots.
func names(fs vfs.FS) string {
	es, _ := fs.List(dir)
	var ns []string
	for _, e := range es {
		ns = append(ns, e.Name)
	}
	return strings.Join(ns, " ")
}

// fill does many changes.
func (n *node) fill(changes int) *node {
	for range changes {
		n.change()
	}
	return n
}
