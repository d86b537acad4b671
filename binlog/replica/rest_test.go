package replica

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
)

// coldWalk is the Queue of a coldRig.
type coldWalk struct {
	Queue
	rig *coldRig
}

func (w coldWalk) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (uint64, error) {
	q := w.rig.q
	for _, id := range slices.Sorted(maps.Keys(q.jobs)) {
		if id < from {
			continue
		}
		if n--; n < 0 {
			return id, nil
		}
		j := q.jobs[id]
		r := journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "a", Body: j.body}
		if j.body == nil {
			r.Absent = &journal.Fetch{ID: id, Place: j.at, Size: j.size}
		}
		if err := f(&r, nil); err != nil {
			return id, err
		}
	}
	return 0, nil
}

// list is what a follower tells of the bodies that it has.
func (r *coldRig) list() *spill.Incoming {
	r.t.Helper()
	r.n.opts.Queue, r.n.applier.standby = coldWalk{rig: r}, r.q
	in, err := r.n.applier.list()
	r.must(err)
	return in
}

// rest is the stream of the current snapshot for a follower that has told of bodies.
func (r *coldRig) rest(in *spill.Incoming) []byte {
	r.t.Helper()
	meta, path := r.n.store.hold()
	defer r.n.store.release(path)
	has, err := spill.DecodeIDs(in.IDs.Encode())
	r.must(err)
	var b bytes.Buffer
	bodies := r.n.bodies.reader(meta.Files)
	r.must(errors.Join(snapshot.SendRest(r.fs, path, bodies, &has, &b), bodies.Close()))
	return b.Bytes()
}

// receive receives the snapshot of an entry.
func (r *coldRig) receive(index uint64, stream io.Reader, in *spill.Incoming) (snapshot.Meta, string, error) {
	of := raftpb.SnapshotMetadata{Index: &index, Term: new(uint64(1))}
	return r.n.receive(&of, stream, in)
}

// installed installs what was received, and looks at the jobs.
func (r *coldRig) installed(m snapshot.Meta, path string, in *spill.Incoming, jobs int) {
	r.t.Helper()
	r.must(r.n.store.setCurrent(m, path))
	r.n.removeUnused(path, in)
	r.load()
	if len(r.q.jobs) != jobs {
		r.t.Errorf("%d jobs are there, not %d", len(r.q.jobs), jobs)
	}
	r.read()
	r.restarted(jobs)
}

// aLeader is a rig with so many jobs and the snapshot of an entry.
func aLeader(t *testing.T, jobs int, index uint64) *coldRig {
	t.Helper()
	l := newColdRig(t)
	l.put(jobs)
	l.must(l.walk(index, func() {}))
	return l
}

// The list has what all entries before it have done, though they are only about to be applied, and nothing of a queue
// that has executed what may not be committed.
func TestTheListOfBodiesIsAsOfWhatWasApplied(t *testing.T) {
	r := newColdRig(t)
	ids := r.put(3)
	r.n.opts.Queue, r.n.applier.standby = coldWalk{rig: r}, r.q
	a := r.n.applier
	a.waker = newWaker()
	a.post(func() error {
		r.q.Delete(ids[0])
		ids = append(ids, r.put(1)...)
		return nil
	})
	run := func() {
		for _, f := range a.tasks {
			r.must(f())
		}
		a.tasks = nil
	}
	asked := make(chan struct{})
	var in *spill.Incoming
	var err error
	go func() {
		defer close(asked)
		in, err = r.n.bodiesHere()
	}()
	for {
		a.mu.Lock()
		n := len(a.tasks)
		a.mu.Unlock()
		if n == 2 || isClosed(asked) {
			break
		}
	}
	run()
	<-asked
	r.must(err)
	for i, id := range ids {
		if in.IDs.Has(id) != (i > 0) {
			t.Errorf("body %d of %d is told of: %v", i, len(ids), i == 0)
		}
	}
	r.n.endBodies(in)
	a.leadership, a.standby = &Leadership{}, nil
	if in, err := a.list(); err != nil || len(in.IDs.Encode()) > 1 {
		t.Errorf("a queue that serves tells of bodies: %v", err)
	}
}

// A body that a follower has in memory only goes with its standby: it comes with the snapshot.
func TestBodiesThatAreInMemoryAreSent(t *testing.T) {
	l, f := aLeader(t, 6, 5), newColdRig(t)
	f.put(3)
	for range 2 {
		f.id++
		f.q.jobs[f.id] = &coldBody{body: coldText(f.id), size: uint32(len(coldText(f.id)))}
	}
	in := f.list()
	if in.IDs.Has(4) || !in.IDs.Has(3) {
		t.Error("a body is told of that is in memory, or one in a file is not")
	}
	m, path, err := f.receive(5, bytes.NewReader(l.rest(in)), in)
	f.must(err)
	if in.Came != 3 || in.Used != 3 {
		t.Errorf("%d bodies have come, and %d were here", in.Came, in.Used)
	}
	f.installed(m, path, in, 6)
}

// While a snapshot comes in the follower goes on: jobs end whose bodies it has told of, and others move to another
// file. The snapshot has the bodies all the same: the ends of these jobs follow.
func TestAJobEndsAtAFollowerThatHasToldOfItsBody(t *testing.T) {
	l, f := aLeader(t, 8, 5), newColdRig(t)
	ids := f.put(4)
	f.put(2)
	in := f.list()
	stream := l.rest(in)
	for _, id := range ids {
		f.q.Delete(id)
	}
	for range 2 {
		f.id = 100
		f.put(1)
		f.must(f.walk(f.n.store.current().Index+1, func() {}))
	}
	f.n.bodies.remove()
	m, path, err := f.receive(5, bytes.NewReader(stream), in)
	f.must(err)
	f.installed(m, path, in, 8)
	if files := f.files(); len(files) > 4 {
		t.Errorf("there are %d", files)
	}
}

// A follower that restarts at any moment has the snapshot before, or the one that was made current, and each with its
// bodies. Nothing else is left.
func TestAFollowerRestartsWhileASnapshotComesIn(t *testing.T) {
	l := aLeader(t, 8, 5)
	for _, when := range []string{"in the middle", "when it is there", "when it is current"} {
		t.Run(when, func(t *testing.T) {
			f := newColdRig(t)
			f.put(4)
			f.must(f.walk(3, func() {}))
			before := f.files()
			in := f.list()
			stream := l.rest(in)
			jobs := 4
			switch when {
			case "in the middle":
				cut := io.MultiReader(bytes.NewReader(stream[:len(stream)*2/3]), iotest.ErrReader(io.ErrClosedPipe))
				if _, _, err := f.receive(5, cut, in); err == nil {
					t.Fatal("it is whole")
				}
			default:
				m, path, err := f.receive(5, bytes.NewReader(stream), in)
				f.must(err)
				if when == "when it is current" {
					jobs = 8
					f.must(f.n.store.setCurrent(m, path))
				}
			}
			f.restarted(jobs)
			if files := f.files(); jobs == 4 && len(files) > len(before)+1 { // the last one stays
				t.Errorf("of %d there are %d", before, files)
			}
		})
	}
}

// When another member leads in the middle of a stream, that ends, and the follower tells the new leader what it has. The
// bodies of the stream before are gone.
func TestAnotherMemberLeadsWhileASnapshotComesIn(t *testing.T) {
	l, next, f := aLeader(t, 8, 5), aLeader(t, 9, 7), newColdRig(t)
	f.put(4)
	f.must(f.walk(3, func() {}))
	first := f.list()
	stream := l.rest(first)
	cut := io.MultiReader(bytes.NewReader(stream[:len(stream)-5]), iotest.ErrReader(io.ErrClosedPipe))
	f.n.applier.waker = newWaker()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-f.n.applier.waker
		f.must(f.n.applier.tasks[0]())
	}()
	var told []byte
	m1 := &raftpb.Message{Context: []byte(askBodies), Snapshot: &raftpb.Snapshot{
		Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(1))},
	}}
	if err := f.n.Snapshot(m1, cut, func(b []byte) error { told = b; return nil }); err == nil {
		t.Fatal("it is whole")
	}
	<-ended
	if !bytes.Equal(told, first.IDs.Encode()) {
		t.Errorf("the leader is told %x", told)
	}
	f.n.endBodies(first)
	f.must(f.walk(4, func() {})) // which seals file 3, with what has come
	f.put(1)                     // what the first leader had committed
	f.n.bodies.remove()
	if files := f.files(); !slices.Equal(files, []uint32{2, 4}) {
		t.Errorf("there are %d", files)
	}
	in := f.list()
	m, path, err := f.receive(7, bytes.NewReader(next.rest(in)), in)
	f.must(err)
	if in.Used != 5 || in.Came != 4 {
		t.Errorf("%d bodies have come, and %d were here", in.Came, in.Used)
	}
	f.installed(m, path, in, 9)
}

// A snapshot that came and is not wanted goes with its bodies, but not while the walk may make it current that has the
// same entry.
func TestASnapshotThatIsNotWantedGoesWithItsBodies(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, f := aLeader(t, 8, 5), newColdRig(t)
			f.put(4)
			f.must(f.walk(3, func() {}))
			in := f.list()
			m, path, err := f.receive(5, bytes.NewReader(l.rest(in)), in)
			f.must(err)
			f.n.applier.walkLock.Lock()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.n.removeUnused(path, in)
			}()
			synctest.Wait()
			jobs := 4
			if adopted {
				f.must(f.n.store.setCurrent(m, path))
				jobs = 8
			}
			f.n.applier.walkLock.Unlock()
			<-ended
			f.read()
			f.put(1) // to another file
			f.n.bodies.remove()
			if files := f.files(); slices.Contains(files, 3) != adopted {
				t.Errorf("there are %d", files)
			}
			f.restarted(jobs)
		})
	}
}

// sender is a Transport that keeps what is to be sent.
type sender struct {
	Transport
	sent []*raftpb.Message
}

func (s *sender) SendSnapshot(m *raftpb.Message, _ func(io.Writer, func() ([]byte, error)) error) {
	s.sent = append(s.sent, m)
}

// A member is asked what it has if it has told that it can say so; one that has told nothing yet is not sent a snapshot
// with bodies in files, and one without body files gets all bodies.
func TestWhoIsAskedWhatItHas(t *testing.T) {
	r := newColdRig(t)
	for _, x := range []struct {
		cold        bool
		of          report
		told        bool
		sent, asked bool
	}{
		{cold: false, of: report{bodies: true}, told: true, sent: true},
		{cold: false, sent: true},
		{cold: true, of: report{bodies: true}, told: true, sent: true, asked: true},
		{cold: true, told: true, sent: true},
		{cold: true},
	} {
		if x.cold {
			r.put(1)
		}
		r.must(r.walk(r.n.store.current().Index+1, func() {}))
		var to sender
		r.n.transport, r.n.inbox = &to, newInbox()
		m := &raftpb.Message{To: new(uint64(2))}
		r.n.sendSnapshot(m, x.of, x.told)
		r.n.disk.Wait()
		failed := len(r.n.inbox.calls) > 0
		if sent := len(to.sent) > 0; sent != x.sent || failed == sent || (len(m.GetContext()) > 0) != x.asked {
			t.Errorf("%+v: sent %v, and failed %v; %q", x, sent, failed, m.GetContext())
		}
	}
	for _, r := range []report{{arrived: 7, version: 3}, {arrived: 7, bodies: true}} {
		var m raftpb.Message
		if r.put(&m); reportOf(&m) != r {
			t.Errorf("%+v is read as %+v", r, reportOf(&m))
		}
	}
}
