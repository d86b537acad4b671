package snapshot

import (
	"bytes"
	"errors"
	"io"
	iofs "io/fs"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"trellis/binlog"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func sameMeta(a, b *Meta) bool { return bytes.Equal(a.encode(), b.encode()) }

// Whatever happens while a snapshot is taken: it loads as the jobs were at its end, from
// the writer's disk, from a receiver's, and as a log of one server.
func TestASnapshotLoadsAsTheJobsWereAtItsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(0, 200).Draw(rt, "before") {
			n.change()
		}
		fs := faultfs.New(root)
		cold := rapid.Bool().Draw(rt, "cold")
		if cold {
			if err := n.spill(fs); err != nil {
				rt.Fatal(err)
			}
		}
		m, path, err := n.take(fs, 9)
		if err == nil {
			err = SetCurrent(fs, dir, &m)
		}
		if err != nil {
			rt.Fatal(err)
		}
		got, q, err := loaded(fs)
		if err != nil || !sameMeta(&got, &m) {
			rt.Fatalf("%+v, %v, want %+v", got, err, m)
		}
		if err := q.diff(n.jobs); err != nil {
			rt.Fatal(err)
		}

		var stream bytes.Buffer
		if err := send(fs, path, &m, &stream); err != nil {
			rt.Fatal(err)
		}
		stream.WriteString("more")
		to := faultfs.New(root)
		got, path, err = Receive(to, dir, 9, 3, &stream)
		if err != nil || !sameMeta(&got, &m) {
			rt.Fatalf("received %+v, %v, want %+v", got, err, m)
		}
		if stream.String() != "more" {
			rt.Fatalf("%q is left of the stream", stream.String())
		}
		q = queue{}
		if err := Load(to, path, q, nil); err != nil {
			rt.Fatal(err)
		}
		if err := q.diff(n.jobs); err != nil {
			rt.Fatal(err)
		}
		if err := asLog(to, path, n); err != nil {
			rt.Fatal(err)
		}
	})
}

// send sends a snapshot, plain if it is not, and then m is what is sent.
func send(fs vfs.FS, path string, m *Meta, w io.Writer) (err error) {
	if len(m.Files) == 0 {
		return Send(fs, path, w)
	}
	if Send(fs, path, io.Discard) == nil {
		return errors.New("it is sent as it is")
	}
	r := spill.NewReader(fs, bodiesDir, m.Files)
	defer func() { err = errors.Join(err, r.Close()) }()
	if *m, err = Plain(fs, path, r); err != nil {
		return err
	}
	return SendPlain(fs, path, m, r, w)
}

// asLog opens a copy of a snapshot as a log of one server.
func asLog(fs vfs.FS, path string, n *node) (err error) {
	if err := copyDir(fs, path, "d/copy"); err != nil {
		return err
	}
	if err := inspect.Verify(io.Discard, fs, "d/copy"); err != nil {
		return err
	}
	l, err := binlog.Open("d/copy", binlog.Options{FS: fs})
	if err != nil {
		return err
	}
	q := queue{}
	if err := l.Replay(q); err != nil {
		return err
	}
	if err := q.diff(n.jobs); err != nil {
		return err
	}
	if r := l.Recovery(); !r.Clean || r.Cut != nil || r.NextID != n.lastID+1 || r.Jobs != int64(len(n.jobs)-len(n.jobs.settings())) {
		return errors.New("not recovered as a clean log")
	}
	return errors.Join(l.Start(binlog.Hooks{}), l.Close())
}

// copyDir copies a snapshot's segments.
func copyDir(fs vfs.FS, from, to string) error {
	es, err := fs.List(from)
	if err != nil {
		return err
	}
	if err := fs.Mkdir(to); err != nil {
		return err
	}
	for _, e := range es {
		if record.FileIndex(e.Name) == 0 {
			continue
		}
		b, err := readFile(fs, filepath.Join(from, e.Name), maxFile)
		if err == nil {
			err = vfs.WriteFile(fs, filepath.Join(to, e.Name), b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aSnapshot is a current one of several segments.
func aSnapshot(t testing.TB) (*faultfs.FS, *node, string) {
	t.Helper()
	n := newNode(5)
	for range 300 {
		n.change()
	}
	fs := faultfs.New(root)
	m, path, err := n.take(fs, 9)
	if err == nil {
		err = SetCurrent(fs, dir, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(m.segments) < 3 {
		t.Fatalf("%d segments are too few", len(m.segments))
	}
	return fs, n, path
}

// A copy that was damaged on its way is not taken for a log that ends there.
func TestNothingOfACopyIsTakenForTorn(t *testing.T) {
	fs, n, path := aSnapshot(t)
	es, err := fs.List(path)
	if err != nil {
		t.Fatal(err)
	}
	last := es[len(es)-1]
	for off := int64(record.HeaderSize); off < last.Size-2*record.SmallSize; off += 8 {
		if err := copyDir(fs, path, "d/copy"); err != nil {
			t.Fatal(err)
		}
		flip(t, fs, filepath.Join("d/copy", last.Name), off+off/8%8)
		var damage *DamageError
		if _, err := binlog.Open("d/copy", binlog.Options{FS: fs}); !errors.As(err, &damage) || damage.Offset > off {
			t.Fatalf("a wrong byte near %d: %v", off, err)
		}
		if err := errors.Join(removeLock(fs), vfs.RemoveAll(fs, "d/copy")); err != nil {
			t.Fatal(err)
		}
	}
	if err := asLog(fs, path, n); err != nil {
		t.Fatal(err)
	}
}

func removeLock(fs vfs.FS) error { return fs.Remove("d/copy/lock") }

func flip(t testing.TB, fs vfs.FS, name string, off int64) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (off % 8)
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

func TestALargeRecordHasASegmentOfItsOwn(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := queue{}
	for id := uint64(1); id <= 3; id++ {
		r := recordOf(id, int(id), 16<<20)
		want.Full(&r, journal.Place{})
		if err := w.Full(&r); err != nil {
			t.Fatal(err)
		}
	}
	r := recordOf(4, 1, entry.MaxSize)
	if err := w.Full(&r); !errors.Is(err, record.ErrInvalid) {
		t.Fatalf("a body of %d bytes: %v", len(r.Body), err)
	}
	m := metaOf(2)
	m.Highest = 3
	m, path, err := w.Finish(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.segments) != 3 || m.Fulls != 3 || m.Records != 3 {
		t.Errorf("%+v", m)
	}
	got := queue{}
	if err := errors.Join(Load(fs, path, got, nil), got.diff(want)); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstSnapshotHasNoJobsAndIsWrittenAgainOnlyByAFounding(t *testing.T) {
	fs := faultfs.New(root)
	if _, _, err := Current(fs, dir); !errors.Is(err, ErrNone) {
		t.Fatalf("before: %v", err)
	}
	// What a founding has left that did not come to its pointer.
	if _, _, err := newNode(1).take(fs, 1); err != nil {
		t.Fatal(err)
	}
	want := metaOf(1)
	want.ConfState.AutoLeave = proto.Bool(true)
	if err := WriteInitial(fs, dir, want); err != nil {
		t.Fatal(err)
	}
	m, q, err := loaded(fs)
	if err != nil || len(q) != 0 || m.Entry() != want.Entry() || !proto.Equal(m.ConfState, want.ConfState) || m.Records != 0 || len(m.Members) != 2 || m.Members[1] != want.Members[1] {
		t.Fatalf("%+v, %v, %v", m, q, err)
	}
	want.ConfState.Voters = []uint64{99} // the founding is tried again
	if err := WriteInitial(fs, dir, want); err != nil {
		t.Fatal(err)
	}
	if m, _, err := loaded(fs); err != nil || !proto.Equal(m.ConfState, want.ConfState) {
		t.Errorf("%+v, %v", m, err)
	}
	if s := names(fs); s != "1-3 current" {
		t.Errorf("there is %s", s)
	}
	m, _, err = newNode(1).take(fs, 5)
	if err := errors.Join(err, SetCurrent(fs, dir, &m)); err != nil {
		t.Fatal(err)
	}
	if err := WriteInitial(fs, dir, want); !errors.Is(err, iofs.ErrExist) {
		t.Errorf("when there are jobs: %v", err)
	}
}

func TestThePointerDoesNotGoBack(t *testing.T) {
	fs, n, path := aSnapshot(t)
	older, olderPath, err := n.take(fs, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := SetCurrent(fs, dir, &older); !errors.Is(err, ErrOlder) {
		t.Fatalf("an older one: %v", err)
	}
	newer, newerPath, err := n.take(fs, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := Prune(fs, dir, olderPath); err != nil {
		t.Fatal(err)
	}
	if s := names(fs); s != "10-3 8-3 9-3 current" {
		t.Fatalf("one is read, one is current, one is newer: there is %s", s)
	}
	if err := errors.Join(SetCurrent(fs, dir, &newer), SetCurrent(fs, dir, &newer)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Prune(fs, dir, path), Prune(fs, dir, path)); err != nil {
		t.Fatal(err)
	}
	if s := names(fs); s != "10-3 9-3 current" {
		t.Fatalf("one is read, one is current: there is %s", s)
	}
	if _, got, err := Current(fs, dir); err != nil || got != newerPath {
		t.Fatalf("%s, %v", got, err)
	}
	if s := names(fs); s != "10-3 current" {
		t.Fatalf("after a start there is %s", s)
	}
}

// A snapshot of an entry of which there is one already, and perhaps read, leaves that.
func TestASecondSnapshotOfAnEntryLeavesTheFirst(t *testing.T) {
	fs, n, path := aSnapshot(t)
	was, _, err := Current(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	m, again, err := w.Finish(n.meta(9))
	if err != nil || again != path || !sameMeta(&m, &was) {
		t.Fatalf("%s, %+v, %v", again, m, err)
	}
	if s := names(fs); s != "9-3 current" {
		t.Errorf("there is %s", s)
	}
}

func TestAnAbortedSnapshotLeavesNothing(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	w.out.Limit = 4 << 10
	n := newNode(1)
	for range 200 {
		n.change()
	}
	if err := errors.Join(n.write(w), w.Abort(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	if s := names(fs); s != "" {
		t.Errorf("there is %s", s)
	}
	r := recordOf(1, 1, 1)
	if _, _, err := w.Finish(metaOf(1)); !errors.Is(err, ErrEnded) {
		t.Errorf("finish: %v", err)
	}
	if err := w.Full(&r); !errors.Is(err, ErrEnded) {
		t.Errorf("full: %v", err)
	}
}

func TestWhatASnapshotCannotHoldIsRefused(t *testing.T) {
	fs := faultfs.New(root)
	for what, do := range map[string]func(w *Writer) error{
		"a job without a tube":       func(w *Writer) error { return w.Full(&journal.Record{ID: 1, State: journal.Ready}) },
		"an update without a state":  func(w *Writer) error { return w.Update(&journal.Record{ID: 1}) },
		"a delete without an id":     func(w *Writer) error { return w.Delete(0) },
		"a job above the highest id": func(w *Writer) error { return finish(w, func(m *Meta) { m.Highest = 4 }, 5) },
		"no entry":                   func(w *Writer) error { return finish(w, func(m *Meta) { m.Index = 0 }) },
		"no voters":                  func(w *Writer) error { return finish(w, func(m *Meta) { m.ConfState = nil }) },
		"a member twice":             func(w *Writer) error { return finish(w, func(m *Meta) { m.Members[1].ID = 11 }) },
		"a member's name":            func(w *Writer) error { return finish(w, func(m *Meta) { m.Members[1].Name = "a b" }) },
		"ids that are decided":       func(w *Writer) error { return finish(w, func(m *Meta) { m.Decided = 2 }) },
		"a batch of a later term":    func(w *Writer) error { return finish(w, func(m *Meta) { m.BatchTerm = 4 }) },
		"many members":               func(w *Writer) error { return finish(w, func(m *Meta) { m.ConfState.Voters = make([]uint64, 1000) }) },
	} {
		w, err := Create(fs, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(w); err == nil {
			t.Errorf("%s: accepted", what)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if s := names(fs); s != "" {
		t.Errorf("there is %s", s)
	}
}

func finish(w *Writer, change func(*Meta), ids ...uint64) error {
	for _, id := range ids {
		r := recordOf(id, 1, 1)
		if err := w.Full(&r); err != nil {
			return nil
		}
	}
	m := metaOf(1)
	change(&m)
	_, _, err := w.Finish(m)
	return err
}

// A standby that cannot take a job ends the loading, and is not said to be loaded.
func TestAStandbysErrorEndsTheLoading(t *testing.T) {
	fs, _, path := aSnapshot(t)
	err := Load(fs, path, full{}, nil)
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), path) {
		t.Fatalf("%v", err)
	}
}

var errFull = errors.New("no memory")

type full struct{ queue }

func (full) Full(*journal.Record, journal.Place) (journal.Former, error) {
	return journal.Former{}, errFull
}

// renaming is a file system that does something before it renames.
type renaming struct {
	vfs.FS
	before func(from string)
}

func (r renaming) Rename(from, to string) error {
	r.before(from)
	return r.FS.Rename(from, to)
}

// A snapshot may begin to arrive while an old one is removed.
func TestASnapshotThatBeginsWhileAnotherIsRemovedIsComplete(t *testing.T) {
	fs := faultfs.New(root)
	n := newNode(1)
	for range 50 {
		n.change()
	}
	var old string
	for index := uint64(9); index < 11; index++ {
		m, path, err := n.take(fs, index)
		if err == nil {
			err = SetCurrent(fs, dir, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		if index == 9 {
			old = path
		}
	}
	var w *Writer
	before := func(from string) {
		var err error
		if w, err = Create(fs, dir); from != old || err != nil {
			t.Fatal(from, err)
		}
	}
	if err := Prune(renaming{fs, before}, dir); err != nil {
		t.Error(err)
	}
	r := journal.Record{ID: 1, State: journal.Ready, TTR: 1, Tube: "default", Body: []byte("body")}
	if err := w.Full(&r); err != nil {
		t.Fatal(err)
	}
	last := metaOf(11)
	last.Highest = 1
	m, _, err := w.Finish(last)
	if err == nil {
		err = SetCurrent(fs, dir, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, q, err := loaded(fs); err != nil || len(q) != 1 {
		t.Errorf("%d jobs, %v", len(q), err)
	}
}

// failing is a file system in which a directory cannot be synced.
type failing struct {
	vfs.FS
	dir  string
	sync func() error
}

func (f failing) OpenDir(name string) (vfs.Dir, error) {
	if name == f.dir {
		return nil, f.sync()
	}
	return f.FS.OpenDir(name)
}

// A snapshot that has its name is not in the directory any more that was drawn for it.
func TestASnapshotThatBeginsWhileAnotherFailsIsComplete(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	var later *Writer
	w.fs = failing{fs, dir, func() error {
		if later, err = Create(fs, dir); err != nil {
			t.Fatal(err)
		}
		return errBoom
	}}
	if _, _, err := w.Finish(metaOf(9)); !errors.Is(err, errBoom) {
		t.Fatalf("finish: %v", err)
	}
	m, path, err := later.Finish(metaOf(10))
	if err == nil {
		err = SetCurrent(fs, dir, &m)
	}
	if err == nil {
		err = Load(fs, path, queue{}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := names(fs); s != "10-3 current" {
		t.Errorf("there is %s", s)
	}
}

// A snapshot may come again before what is left of its first removal has gone.
func TestASnapshotThatWasHalfRemovedBeforeIsRemoved(t *testing.T) {
	for when, removeAgain := range map[string]func(fs vfs.FS) error{
		"at a start":              func(fs vfs.FS) error { _, _, err := Current(fs, dir); return err },
		"with all old ones":       func(fs vfs.FS) error { return Prune(fs, dir) },
		"because nobody wants it": func(fs vfs.FS) error { return Remove(fs, dir, filepath.Join(dir, nameOf(9, 3))) },
	} {
		t.Run(when, func(t *testing.T) {
			fs := faultfs.New(root)
			n := newNode(1).fill(50)
			take := func(index uint64) Meta {
				t.Helper()
				m, _, err := n.take(fs, index)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			take(9)
			m := take(10)
			if err := SetCurrent(fs, dir, &m); err != nil {
				t.Fatal(err)
			}
			fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "remove" {
					return faultfs.Fault{Err: errBoom}
				}
				return faultfs.Fault{}
			})
			if err := Prune(fs, dir); !errors.Is(err, errBoom) {
				t.Fatalf("prune: %v", err)
			}
			fs.Hook(nil)
			take(9)
			if s := names(fs); s != "10-3 9-3 current unfinished.9-3" {
				t.Fatalf("there is %s", s)
			}
			if err := removeAgain(fs); err != nil {
				t.Error(err)
			}
			if s := names(fs); s != "10-3 current" {
				t.Errorf("there is %s", s)
			}
		})
	}
}
