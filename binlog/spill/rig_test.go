package spill

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// job is a job of an owner.
type job struct {
	body []byte
	at   journal.Place // zero: it refers to none
	cold bool          // its body is at that place only
}

// owner has jobs, some of which have their bodies in body files.
type owner struct {
	mu     sync.Mutex
	life   *Life
	jobs   map[uint64]*job
	loaded map[uint64]journal.Fetched
	came   chan struct{}
	keeps  bool // all bodies in memory, whatever it is told
}

func newOwner() *owner {
	return &owner{jobs: map[uint64]*job{}, loaded: map[uint64]journal.Fetched{}, came: make(chan struct{}, 1)}
}

func (o *owner) Spilled(id uint64, at journal.Place) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	if j == nil || j.at.Known() || !at.Known() || o.keeps {
		return false
	}
	j.at, j.cold = at, true
	return true
}

func (o *owner) Leaves(id uint64, at journal.Place) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	if j == nil || j.at != at {
		return false
	}
	if !j.cold {
		o.forget(j)
	}
	return j.cold
}

func (o *owner) forget(j *job) {
	o.life.Forget(j.at, uint32(len(j.body)))
	j.at = journal.Place{}
}

func (o *owner) Moved(id uint64, from, to journal.Place) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	if j == nil || j.at != from {
		return false
	}
	j.at = to
	return true
}

func (o *owner) Loaded(list []journal.Fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range list {
		x.Body = bytes.Clone(x.Body)
		o.loaded[x.ID] = x
	}
	select {
	case o.came <- struct{}{}:
	default:
	}
}

// end ends a job.
func (o *owner) end(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.jobs[id]; j != nil {
		if j.at.Known() {
			o.forget(j)
		}
		delete(o.jobs, id)
	}
}

// places are those of the jobs whose bodies are in files only.
func (o *owner) places() map[uint64]job {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := map[uint64]job{}
	for id, j := range o.jobs {
		if j.cold {
			list[id] = *j
		}
	}
	return list
}

// read reads a body from where a job has it.
func (o *owner) read(id uint64, j job) journal.Fetched {
	o.mu.Lock()
	delete(o.loaded, id)
	o.mu.Unlock()
	o.life.Load([]journal.Fetch{{ID: id, Place: j.at, Size: uint32(len(j.body))}})
	for {
		<-o.came
		o.mu.Lock()
		x, ok := o.loaded[id]
		o.mu.Unlock()
		if ok {
			return x
		}
	}
}

// checked says what is wrong with the bodies of cold jobs; of each life there is one owner.
func (o *owner) checked() error {
	all := o.places()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if x := o.read(id, all[id]); x.Err != nil || !bytes.Equal(x.Body, all[id].body) {
			return fmt.Errorf("job %d at %v has the body %.10q, %v", id, all[id].at, x.Body, x.Err)
		}
	}
	return nil
}

// rig is a store with a short limit of files, and what a snapshot has that counts.
type rig struct {
	*owner
	store *Store
	disk  *faultfs.FS
	ids   uint64

	list   []File
	placed map[uint64]job // that it has
}

const rigLimit = 4000

func openRig(disk *faultfs.FS) (*rig, error) {
	s, err := Open(Options{FS: disk, Dir: "d/bodies", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s.limit, s.books.limit = rigLimit, rigLimit
	return &rig{store: s, disk: disk}, nil
}

// begin gives the bodies to a new owner, with the jobs of the snapshot.
func (g *rig) begin() error {
	o := newOwner()
	g.owner = o
	life, err := g.store.Begin(o, g.list)
	if err != nil {
		return err
	}
	o.life = life
	for id, j := range g.placed {
		o.jobs[id] = &j
		if err := life.Keep(j.at, uint32(len(j.body))); err != nil {
			return err
		}
	}
	life.Listed()
	return nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g, err := openRig(faultfs.New("d"))
	if err == nil {
		err = g.begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.store.Close)
	return g
}

// put makes n jobs with bodies of some hundred bytes, and has them spilled in one piece.
func (g *rig) put(n int) error {
	var first error
	for range n {
		g.ids++
		body := bytes.Repeat([]byte{byte(g.ids)}, 300+int(g.ids%7))
		g.mu.Lock()
		g.jobs[g.ids] = &job{body: body}
		g.mu.Unlock()
		r := journal.Record{ID: g.ids, State: journal.Ready, TTR: 1, Tube: "a tube", Body: body}
		if err := g.life.Add(&r); err != nil && first == nil {
			first = err
		}
	}
	if err := g.life.Write(); first == nil {
		first = err
	}
	return first
}

// moves moves what is to be moved.
func (g *rig) moves() error {
	for range 1000 {
		if more, err := g.life.Move(); err != nil || !more {
			return err
		}
	}
	return fmt.Errorf("compaction has no end: %+v", g.store.Stats())
}

// snapshot takes one, which counts when it is returned without an error.
func (g *rig) snapshot(meanwhile func() error) error {
	walk, all := g.store.Walk(), g.places()
	numbers := map[uint32]bool{}
	for _, j := range all {
		numbers[j.at.Segment] = true
	}
	if err := meanwhile(); err != nil {
		return err
	}
	list, err := g.store.Seal(slices.Sorted(maps.Keys(numbers)))
	if err != nil {
		return err
	}
	g.list, g.placed = list, all
	g.store.Current(walk)
	return nil
}

func (g *rig) held() (list []uint32) {
	for _, f := range g.list {
		list = append(list, f.Number)
	}
	return list
}

// sums says what is wrong with the files of the list.
func (g *rig) sums(disk vfs.FS) error {
	for _, x := range g.list {
		f, err := disk.OpenRead("d/bodies/" + record.FileName(x.Number))
		if err != nil {
			return err
		}
		b := make([]byte, x.Size)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		if crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) != x.Sum {
			return fmt.Errorf("file %d has other bytes than its list says", x.Number)
		}
	}
	return nil
}
