package replica

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// coldQueue is a Spilling with jobs whose bodies are in body files, or are to be. All of them leave memory.
type coldQueue struct {
	modelStandby
	mu   sync.Mutex
	life *spill.Life
	jobs map[uint64]*coldBody

	calls int // of Spill
}

type coldBody struct {
	body []byte        // nil if it is in a file only
	size uint32        // of it
	at   journal.Place // zero if it is in no file
}

func (q *coldQueue) SpillTo(l *spill.Life) { q.life = l }

func (q *coldQueue) BodyMemory() (n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.jobs {
		n += int64(len(j.body))
	}
	return n
}

func (q *coldQueue) Spill(most int, give func(*journal.Record) bool) (freed int64, more bool) {
	if q.calls++; most == 0 {
		return 0, true
	}
	for id, j := range q.jobs {
		if j.body != nil && !give(&journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "a", Body: j.body}) {
			return 0, true
		}
	}
	return 0, false
}

func (q *coldQueue) Spilled(id uint64, at journal.Place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[id]
	if j == nil || !at.Known() {
		return false
	}
	j.at, j.body = at, nil
	return true
}

func (q *coldQueue) Leaves(id uint64, at journal.Place) bool {
	j := q.jobs[id]
	return j != nil && j.at == at
}

func (q *coldQueue) Moved(id uint64, from, to journal.Place) bool {
	if !q.Leaves(id, from) {
		return false
	}
	q.jobs[id].at = to
	return true
}

func (q *coldQueue) Loaded([]journal.Fetched) {}

func (q *coldQueue) Full(r *journal.Record, at journal.Place) (journal.Former, error) {
	q.jobs[r.ID] = &coldBody{body: bytes.Clone(r.Body), size: r.BodySize()}
	if r.Absent != nil {
		q.jobs[r.ID].at = at
	}
	return journal.Former{}, nil
}

func (q *coldQueue) Delete(id uint64) uint32 {
	if j := q.jobs[id]; j.at.Known() {
		q.life.Forget(j.at, j.size)
	}
	delete(q.jobs, id)
	return segment
}

// coldRig is a node's bodies and snapshots, without the node's goroutines.
type coldRig struct {
	t  *testing.T
	fs *faultfs.FS
	n  *Node
	q  *coldQueue
	id uint64
}

const coldDir = "n"

func newColdRig(t *testing.T) *coldRig {
	r := &coldRig{t: t, fs: faultfs.New(coldDir)}
	if err := r.fs.Mkdir(coldDir + "/" + snapshotsDir); err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(func() { r.n.bodies.store.Close() })
	return r
}

// open opens what is in the directory, as a node does that starts.
func (r *coldRig) open() {
	r.t.Helper()
	n := &Node{opts: Options{FS: r.fs, Dir: coldDir, Bodies: 1000}, stopped: make(chan struct{})}
	n.opts.setDefaults()
	n.applier, n.writer = &applier{node: n}, &writer{node: n}
	var err error
	if n.store, err = openStore(r.fs, filepath.Join(coldDir, snapshotsDir)); err == nil {
		n.bodies, err = openBodies(n, n.store.current().Files)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.n = n
	r.load()
}

// load makes a new queue of the current snapshot, as a node does that has lost an office.
func (r *coldRig) load() {
	r.t.Helper()
	meta, path := r.n.store.hold()
	defer r.n.store.release(path)
	r.n.bodies.halt()
	r.q = &coldQueue{jobs: map[uint64]*coldBody{}}
	to, err := r.n.bodies.begin(r.q, meta.Files)
	if err == nil && path != "" {
		err = snapshot.Load(r.fs, path, to, nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.n.bodies.whole()
}

// fill makes some jobs, whose bodies are in memory.
func (r *coldRig) fill(n int) (ids []uint64) {
	for range n {
		r.id++
		ids = append(ids, r.id)
		r.q.jobs[r.id] = &coldBody{body: coldText(r.id), size: uint32(len(coldText(r.id)))}
	}
	return ids
}

// put makes some jobs and has their bodies leave memory.
func (r *coldRig) put(n int) (ids []uint64) {
	r.t.Helper()
	ids = r.fill(n)
	for r.q.BodyMemory() > 0 {
		if _, _, err := r.n.bodies.turn(r.q, r.q.life); err != nil {
			r.t.Fatal(err)
		}
	}
	return ids
}

func coldText(id uint64) []byte { return bytes.Repeat([]byte{byte(id), 'x'}, 200) }

// walk begins a snapshot of an entry, has something done when it has told of all jobs, and other things when it is whole
// and is not current yet, and ends it.
func (r *coldRig) walk(index uint64, meanwhile func(), finished ...func()) error {
	r.n.applier.walkLock.Lock()
	defer r.n.applier.walkLock.Unlock()
	w, err := snapshot.Create(r.fs, r.n.store.dir)
	if err != nil {
		return err
	}
	number := r.n.bodies.walk()
	for id, j := range r.q.jobs {
		rec := journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "a", Body: j.body}
		if j.at.Known() {
			rec.Body, rec.Absent = nil, &journal.Fetch{ID: id, Place: j.at, Size: j.size}
		}
		if err := w.Full(&rec); err != nil {
			return err
		}
	}
	meanwhile()
	m := snapshot.Meta{Index: index, Term: 1, Stamp: 1, Highest: r.id, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
	if m.Files, err = r.n.bodies.seal(w.Files()); err != nil {
		return errors.Join(err, w.Abort())
	}
	m, path, err := w.Finish(m)
	for _, f := range finished {
		f()
	}
	if err == nil {
		err = r.n.store.setCurrent(m, path)
	}
	if err == nil {
		r.n.bodies.current(number)
		r.n.bodies.remove()
	}
	return err
}

// files are the numbers of the body files that are there.
func (r *coldRig) files() (numbers []uint32) {
	es, err := r.fs.List(filepath.Join(coldDir, bodiesDir))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range es {
		numbers = append(numbers, record.FileIndex(e.Name))
	}
	return numbers
}

// read reads each body of the queue's jobs from where it is.
func (r *coldRig) read() {
	r.t.Helper()
	b := r.q.life.Reader(nil)
	defer b.Close()
	for id, j := range r.q.jobs {
		body, err := b.Body(&journal.Fetch{ID: id, Place: j.at, Size: j.size})
		if err != nil || !bytes.Equal(body, coldText(id)) {
			r.t.Errorf("job %d has the body %.10q, %v", id, body, err)
		}
	}
}

func (r *coldRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// restarted is what a node has that starts with what is on the disk after a loss of power.
func (r *coldRig) restarted(jobs int) {
	r.t.Helper()
	r.fs = r.fs.Killed()
	r.open()
	if len(r.q.jobs) != jobs {
		r.t.Errorf("%d jobs are there after a restart, not %d", len(r.q.jobs), jobs)
	}
	r.read()
}

// While no bodies are to leave memory nobody looks after them, and when the bell rings somebody does: while the queue
// serves, and while it is a standby.
func TestNobodyLooksAfterBodiesUnlessTheBellRings(t *testing.T) {
	for _, serves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newColdRig(t)
			b := r.n.bodies
			tend := func() {
				for !serves && b.tend() {
				}
				synctest.Wait()
			}
			if serves {
				b.lead()
				defer b.halt()
				synctest.Wait() // it looks once
			}
			for range 3 {
				r.fill(10)
				r.q.life.Crowded()
				if tend(); r.q.BodyMemory() > 0 {
					t.Errorf("serves %v: %d bytes stay in memory", serves, r.q.BodyMemory())
				}
				calls := r.q.calls
				for range 3 {
					time.Sleep(time.Minute)
					tend()
				}
				if r.q.calls > calls {
					t.Errorf("serves %v: it was called %d times for nothing", serves, r.q.calls-calls)
				}
			}
		})
	}
}

// While a disk takes nothing it is tried once a second, however often the bell rings.
func TestADiskThatTakesNoBodiesIsTriedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newColdRig(t)
		r.fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "sync" {
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		})
		r.fill(10)
		for range 1000 {
			r.q.life.Crowded()
			r.n.bodies.tend()
			time.Sleep(10 * time.Millisecond)
		}
		if r.q.calls < 9 || r.q.calls > 11 {
			t.Errorf("it was tried %d times in ten seconds", r.q.calls)
		}
		r.fs.Hook(nil)
		for r.q.BodyMemory() > 0 {
			r.n.bodies.tend()
			time.Sleep(10 * time.Millisecond)
		}
		r.read()
	})
}

// Bodies for which clients wait are read two at a time while entries are stored, and otherwise eight.
func TestReadsOfBodiesGiveWayToTheEntryLog(t *testing.T) {
	for store, want := range []int32{8, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newColdRig(t)
			var list []journal.Fetch
			for turn := range uint64(20) {
				id := r.put(1)[0]
				_, err := r.n.bodies.store.Seal(nil)
				r.must(err)
				list = append(list, journal.Fetch{ID: id, Place: r.q.jobs[id].at, Size: r.q.jobs[id].size, Turn: turn})
			}
			var reads atomic.Int32
			gate := make(chan struct{})
			r.fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op != "read" {
					return faultfs.Fault{}
				}
				reads.Add(1)
				return faultfs.Fault{Until: gate}
			})
			r.n.writer.store.Store(uint64(store))
			r.q.life.Load(list)
			synctest.Wait()
			if n := reads.Load(); n != want {
				t.Errorf("store %d: %d bodies are read at once, not %d", store, n, want)
			}
			close(gate)
			synctest.Wait()
			if n := reads.Load(); n != int32(len(list)) {
				t.Errorf("store %d: %d of %d bodies were read", store, n, len(list))
			}
		})
	}
}

// A body file that becomes empty while a snapshot is taken stays until the next one counts.
func TestABodyFileThatAWalkHasToldOfStays(t *testing.T) {
	r := newColdRig(t)
	ids := r.put(3)
	r.must(r.walk(2, func() {
		for _, id := range ids {
			r.q.Delete(id)
		}
		_, err := r.n.bodies.store.Seal(nil)
		r.must(err)
		r.put(1)
		r.n.bodies.remove()
	}))
	if files := r.files(); !slices.Contains(files, 2) {
		t.Errorf("of the files of a snapshot there are %d", files)
	}
	r.restarted(3)
	for _, id := range ids {
		r.q.Delete(id)
	}
	r.put(1)
	r.must(r.walk(3, func() {}))
	if files := r.files(); slices.Contains(files, 2) {
		t.Errorf("nobody needs file 2, and there are %d", files)
	}
	r.restarted(1)
}

// A walk that is given up when an office is lost may still make its snapshot current: what that lists is not removed,
// though the queue was made of the snapshot before.
func TestBodyFilesOfAWalkThatWasGivenUpStay(t *testing.T) {
	r := newColdRig(t)
	r.put(2)
	r.must(r.walk(2, func() {}))
	r.put(3)
	r.must(r.walk(3, func() {}, func() {
		r.put(1) // whose file is the last one, which stays anyway
		r.load()
	}))
	r.load()
	if len(r.q.jobs) != 5 {
		t.Errorf("%d jobs are there", len(r.q.jobs))
	}
	r.read()
	r.restarted(5)
}

// A snapshot counts after a restart though nobody knows whether its pointer is durable: the next walk removes nothing of
// what that one has told of.
func TestBodyFilesOfASnapshotInDoubtStay(t *testing.T) {
	r := newColdRig(t)
	ids := r.put(2)
	pointed := false
	err := r.walk(2, func() {
		for _, id := range ids {
			r.q.Delete(id)
		}
	}, func() {
		r.put(1)
		r.fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if pointed && c.Op == "syncdir" {
				return faultfs.Fault{Err: syscall.EIO}
			}
			pointed = pointed || c.Op == "rename" && strings.HasSuffix(c.Name, "current.tmp")
			return faultfs.Fault{}
		})
	})
	r.fs.Hook(nil)
	if err == nil || !pointed {
		t.Fatalf("the snapshot is not in doubt: %v, %v", pointed, err)
	}
	r.n.bodies.walk()
	r.n.bodies.remove()
	r.restarted(2)
}

// What a snapshot lists stays while it is sent, also when there are others.
func TestBodyFilesStayWhileASnapshotIsSent(t *testing.T) {
	r := newColdRig(t)
	ids := r.put(3)
	r.must(r.walk(2, func() {}))
	meta, path := r.n.store.hold()
	for _, id := range ids {
		r.q.Delete(id)
	}
	r.put(1)
	r.must(r.walk(3, func() {}))
	r.must(r.walk(4, func() {}))
	var b bytes.Buffer
	plain, err := r.n.plain(path, &meta)
	if err == nil {
		err = r.n.sendFrom(path, &meta, plain, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, _, err := snapshot.Receive(faultfs.New("to"), "to/s", 2, 1, &b); err != nil || m.Fulls != 3 || m.Files != nil {
		t.Errorf("received %+v, %v", m, err)
	}
	r.n.store.release(path)
	r.n.bodies.remove()
	if files := r.files(); slices.Contains(files, 2) {
		t.Errorf("it was sent, and there are %d", files)
	}
}

// A body file whose sync fails is in no snapshot, and its bodies stay in memory.
func TestABodyFileWhoseSyncFailsIsInNoSnapshot(t *testing.T) {
	r := newColdRig(t)
	r.put(2)
	r.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" && strings.Contains(c.Name, bodiesDir) {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	r.fill(1)
	if _, _, err := r.n.bodies.turn(r.q, r.q.life); err == nil || r.q.jobs[r.id].body == nil {
		t.Errorf("a body has left memory: %v", err)
	}
	if err := r.walk(2, func() {}); err == nil {
		t.Error("a snapshot is made with a file that is not whole")
	}
	if m := r.n.store.current(); m.Index != 0 {
		t.Errorf("the snapshot of entry %d counts", m.Index)
	}
	r.fs.Hook(nil)
	for calm := false; !calm; {
		_, calm = r.n.bodies.work(r.q, r.q.life)
	}
	r.must(r.walk(3, func() {}))
	r.restarted(3)
}

// Puts that wait for memory hear from Spill that they are tried again, and refused if the disk stays full.
func TestTheQueueIsCalledThoughNoBodyFileCanBeMade(t *testing.T) {
	r := newColdRig(t)
	for range 4 {
		r.id++
		r.q.jobs[r.id] = &coldBody{body: coldText(r.id)}
	}
	r.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "create" {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	if _, _, err := r.n.bodies.turn(r.q, r.q.life); !vfs.IsNoSpace(err) || r.q.calls != 1 {
		t.Errorf("it was called %d times: %v", r.q.calls, err)
	}
}

// A body file that is missing, or another one, ends the start, and nothing is removed.
func TestNothingIsRemovedInTheFaceOfDamage(t *testing.T) {
	r := newColdRig(t)
	r.put(2)
	r.must(r.walk(2, func() {}))
	r.put(1)
	_, err := r.n.bodies.store.Seal(nil)
	r.must(err)
	r.put(1)
	before := r.files()
	for name, size := range map[string]int64{"snapshots/2-1/jobs": 0, "bodies/" + record.FileName(2): 67} {
		fs := r.fs.Killed()
		f, err := fs.Open(filepath.Join(coldDir, name))
		r.must(err)
		_, err = f.WriteAt([]byte("spoiled"), 60)
		if size > 0 {
			r.must(f.Truncate(size))
		}
		r.must(errors.Join(err, f.Close()))
		x := &coldRig{t: t, fs: fs}
		n := &Node{opts: Options{FS: fs, Dir: coldDir, Bodies: 1000}, stopped: make(chan struct{})}
		n.opts.setDefaults()
		n.applier = &applier{node: n}
		n.store, err = openStore(fs, filepath.Join(coldDir, snapshotsDir))
		r.must(err)
		meta, path := n.store.hold()
		n.bodies, err = openBodies(n, meta.Files)
		r.must(err)
		to, err := n.bodies.begin(&coldQueue{jobs: map[uint64]*coldBody{}}, meta.Files)
		if err == nil {
			err = snapshot.Load(fs, path, to, nil)
		}
		if !errors.As(err, new(*record.DamageError)) {
			t.Errorf("%s: %v", name, err)
		}
		n.bodies.remove()
		if files := x.files(); !slices.Equal(files, before) {
			t.Errorf("%s: of %d there are %d", name, before, files)
		}
		n.bodies.store.Close()
	}
}
