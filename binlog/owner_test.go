package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

type State = journal.State

const (
	Ready   = journal.Ready
	Buried  = journal.Buried
	Delayed = journal.Delayed
)

var le = binary.LittleEndian

// owner plays the engine: a map of jobs under one lock.
type owner struct {
	hooks Hooks // of the log, beside those of the owner
	mu    sync.Mutex
	log   *Log
	jobs  map[uint64]*ownedJob

	settings map[string]Setting

	tombstones int64 // bytes of those that the jobs may leave

	// orphans counts updates of ids that were not told before.
	orphans int

	absent int // jobs that were told without their bodies

	lost map[uint64]bool // jobs that the owner cannot move where their records cannot be read

	room rooms
	work func() // does what the goroutines of a log do that has none
}

// rooms counts the calls of OnRoom.
type rooms struct {
	mu    sync.Mutex
	cond  sync.Cond
	calls int
}

func (r *rooms) onRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.cond.Broadcast()
}

func (r *rooms) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// after waits until OnRoom was called more than n times.
func (r *rooms) after(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.calls <= n {
		r.cond.Wait()
	}
}

// inRoom does an append, and does it again for as long as there is no room, each
// time when OnRoom was called since the append before.
func (o *owner) inRoom(do func() error) error {
	for {
		n := o.room.count()
		err := do()
		switch {
		case !errors.Is(err, ErrRoom):
			return err
		case o.work != nil:
			o.work()
		default:
			o.room.after(n)
		}
	}
}

type ownedJob struct {
	Record
	place journal.Place
	size  int64 // of its last full record
}

func newOwner() *owner {
	o := &owner{jobs: map[uint64]*ownedJob{}, settings: map[string]Setting{}}
	o.room.cond.L = &o.room.mu
	return o
}

func (o *owner) Full(r *Record, place journal.Place) (was journal.Former, err error) {
	j := o.jobs[r.ID]
	if j != nil {
		was = j.former()
	}
	body := r.Body
	if a := r.Absent; a != nil {
		if body = o.bodyAt(place, r.ID); len(body) != int(a.Size) || a.ID != r.ID || a.Place != place {
			return was, fmt.Errorf("%+v asks for job %d at %v, of %d bytes", a, r.ID, place, len(body))
		}
	}
	kept := *r
	kept.Absent, kept.Body = nil, bytes.Clone(body)
	o.own(&kept, place)
	return was, nil
}

// bodyAt reads the body of a job where its full record is said to be.
func (o *owner) bodyAt(place journal.Place, id uint64) []byte {
	o.absent++
	for _, seg := range o.log.segs {
		if seg.Index != place.Segment {
			continue
		}
		f, err := o.log.fs.OpenRead(seg.name)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		b := make([]byte, seg.used-int64(place.Offset)*8)
		if _, err := f.ReadAt(b, int64(place.Offset)*8); err != nil {
			panic(err)
		}
		if b, err = record.First(b, seg.Index, seg.salt); err != nil || record.Number(b) != id {
			panic(fmt.Sprintf("no job %d at %v: %v", id, place, err))
		}
		return record.Body(b)
	}
	panic(fmt.Sprintf("no segment of %v", place))
}

// own takes a job whose full record was written to that place.
func (o *owner) own(r *Record, place journal.Place) *ownedJob {
	o.disown(r.ID)
	j := &ownedJob{*r, place, r.Size()}
	o.jobs[r.ID] = j
	o.tombstones += j.former().Tombstone
	return j
}

func (o *owner) disown(id uint64) {
	if j := o.jobs[id]; j != nil {
		o.tombstones -= j.former().Tombstone
		delete(o.jobs, id)
	}
}

func (j *ownedJob) former() journal.Former {
	f := journal.Former{Segment: j.place.Segment, Size: j.size}
	if j.State != journal.Deleted {
		f.Tombstone = journal.TombstoneSize(j.Tube, &j.Keys)
	}
	return f
}

// Setting implements Restorer.
func (o *owner) Setting(s *Setting) error {
	if delete(o.settings, s.Tube); !s.IsDefault() {
		o.settings[s.Tube] = *s
	}
	return nil
}

// Hold implements Restorer.
func (o *owner) Hold(h *journal.Hold) error {
	if j := o.jobs[h.ID]; j != nil {
		j.State, j.Due, j.BuryOrder, j.Reserves = journal.Ready, 0, 0, h.Reserves
	}
	return nil
}

// set changes a tube's setting of dead letters.
func (o *owner) set(s Setting) (p Pos, err error) {
	err = o.inRoom(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if p, err = o.log.Set(&s); err != nil {
			return err
		}
		return o.Setting(&s)
	})
	return p, err
}

func (o *owner) Update(r *Record) error {
	j := o.jobs[r.ID]
	if j == nil {
		o.orphans++
		return nil
	}
	j.apply(r)
	return nil
}

func (j *ownedJob) apply(r *Record) {
	tube, body, ttr, created, keys := j.Tube, j.Body, j.TTR, j.Created, j.Keys
	j.Record = *r
	j.Tube, j.Body, j.TTR, j.Created, j.Keys = tube, body, ttr, created, keys
}

func (o *owner) migrate(id uint64, place journal.Place, body []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	switch {
	case j == nil || j.place.Segment != place.Segment:
		return nil
	case place.Offset == 0 && o.lost[id]:
		return nil
	case place.Offset == 0:
	case place.Offset > j.place.Offset:
		return fmt.Errorf("job %d has a record behind the one at %v, at %v", id, j.place, place)
	case j.State != journal.Deleted && !bytes.Equal(body, j.Body):
		return fmt.Errorf("job %d has another body at %v", id, place)
	}
	t, err := o.log.Move(&j.Record, j.former())
	if err != nil {
		return err
	}
	j.place, j.size = t.Place(), j.Record.Size()
	return nil
}

// jobsIn are the jobs whose last full records are in a segment.
func (o *owner) jobsIn(segment uint32) (ids []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, j := range o.jobs {
		if j.place.Segment == segment {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (o *owner) put(r *Record) (p Pos, err error) {
	err = o.inRoom(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		t, err := o.log.Put(r)
		if err == nil {
			o.own(r, t.Place())
		}
		p = t.Pos
		return err
	})
	return p, err
}

func (o *owner) update(r *Record) (p Pos, err error) {
	err = o.inRoom(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		p, err = o.log.Update(r)
		if err == nil {
			o.jobs[r.ID].apply(r)
		}
		return err
	})
	return p, err
}

// replace records all of a job again, as it is now.
func (o *owner) replace(r *Record) (p Pos, err error) {
	err = o.inRoom(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		old := o.jobs[r.ID]
		t, err := o.log.Replace(r, old.former())
		if err == nil {
			o.own(r, t.Place())
		}
		p = t.Pos
		return err
	})
	return p, err
}

// delete never needs to be done again: its room is reserved.
func (o *owner) delete(id uint64) (Pos, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	p, err := o.log.Delete(id, j.former())
	if err != nil {
		return 0, err
	}
	o.disown(id)
	return p, nil
}

// small gives a log small segments unless its test wants others: a file system in memory
// clears and copies all that was allocated.
func small(opts Options) Options {
	if opts.SegmentSize == 0 {
		opts.SegmentSize = 64 << 10
	}
	return opts
}

// open opens a log for o and replays it.
func (o *owner) open(dir string, opts Options) error {
	o.hooks.Migrate, o.hooks.Jobs, o.hooks.OnRoom = o.migrate, o.jobsIn, o.room.onRoom
	l, err := Open(dir, small(opts))
	if err != nil {
		return err
	}
	o.log = l
	o.absent = 0
	err = l.Replay(o)
	if err == nil {
		err = l.Start(o.hooks)
	}
	if err != nil {
		l.Close()
	}
	return err
}

// openStill opens a log that has no goroutines, so that what it writes depends on
// nothing but what is done to it. Its owner works for it.
func (o *owner) openStill(dir string, opts Options) error {
	o.hooks.Migrate = func(id uint64, place journal.Place, body []byte) error {
		for {
			err := o.migrate(id, place, body)
			o.log.keepRoom(false) // compaction needs room for its own records too
			if !errors.Is(err, ErrRoom) {
				return err
			}
		}
	}
	l, err := Open(dir, small(opts))
	if err != nil {
		return err
	}
	o.log, l.hooks = l, o.hooks
	if err := errors.Join(l.replay(o), l.begins()); err != nil {
		l.Close()
		return err
	}
	var sc record.Scanner
	o.work = func() {
		l.makeDurable()
		l.nameSpares()
		l.trim()
		l.keepRoom(false)
		if err := l.compact(&sc); err != nil {
			panic(err)
		}
		l.keepRoom(false)
		if l.index != nil {
			l.index.work()
		}
	}
	return nil
}

// snapshot is the owner's jobs as plain values, and its settings, each as something like
// a job under an id that no job has.
func (o *owner) snapshot() map[uint64]Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := map[uint64]Record{}
	for id, j := range o.jobs {
		m[id] = j.Record
	}
	for _, s := range o.settings {
		keepSetting(m, s)
	}
	return m
}

// keepSetting puts a setting into a snapshot, or takes it out.
func keepSetting(m map[uint64]Record, s Setting) {
	h := fnv.New64a()
	h.Write([]byte(s.Tube))
	id := h.Sum64() | 1<<63
	if delete(m, id); !s.IsDefault() {
		m[id] = Record{Tube: s.Tube + ">" + s.Dead, Attempts: s.Attempts, Delay: s.RetryMin}
	}
}

func sameRecord(a, b *Record) bool {
	x, y := *a, *b
	x.Body, y.Body = nil, nil
	x.Keys, y.Keys = journal.Keys{}, journal.Keys{}
	return a.Keys.Equal(&b.Keys) && fmt.Sprint(x) == fmt.Sprint(y) && bytes.Equal(a.Body, b.Body)
}

// diff tells in what two sets of jobs differ, or "".
func diff(got, want map[uint64]Record) string {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		w := want[id]
		g, ok := got[id]
		if !ok {
			return fmt.Sprintf("job %d is lost: %+v", id, plain(w))
		}
		if !sameRecord(&g, &w) {
			return fmt.Sprintf("job %d is\n%+v, want\n%+v", id, plain(g), plain(w))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[id]; !ok {
			return fmt.Sprintf("job %d is back: %+v", id, plain(got[id]))
		}
	}
	return ""
}

// plain is a record that is short to print.
func plain(r Record) Record {
	r.Body = bytes.Clone(r.Body[:min(len(r.Body), 8)])
	return r
}

func testRecord(id uint64, body int) *Record {
	return &Record{
		ID: id, State: Ready, Pri: uint32(id % 7), TTR: 60, Created: 1_700_000_000_000_000_000 + int64(id),
		Tube: "default", Body: bytes.Repeat([]byte{byte('a' + id%26)}, body),
	}
}
