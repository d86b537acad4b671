package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// receiver is a member that has some of the bodies in body files.
type receiver struct {
	*node
	fs *faultfs.FS
	in *spill.Incoming
}

// newReceiver is one that has the bodies of these jobs that spill copies, and tells of those that are wanted.
func newReceiver(jobs queue, want func(id uint64) bool) (*receiver, error) {
	r := &receiver{node: &node{jobs: jobs}, fs: faultfs.New(root)}
	if err := r.spill(r.fs); err != nil {
		return nil, err
	}
	r.in = r.life.Incoming()
	for _, id := range slices.Sorted(maps.Keys(r.places)) {
		if want(id) {
			r.in.Here(id, r.places[id].at)
		}
	}
	return r, nil
}

// has is what the sender is told.
func (r *receiver) has() *spill.IDs {
	ids, err := spill.DecodeIDs(r.in.IDs.Encode())
	if err != nil {
		panic(err)
	}
	return &ids
}

// sendTo sends the rest of a snapshot.
func sendTo(fs vfs.FS, m *Meta, path string, r *receiver, w io.Writer) error {
	bodies := spill.NewReader(fs, bodiesDir, m.Files)
	return errors.Join(SendRest(fs, path, bodies, r.has(), w), bodies.Close())
}

// Whatever a receiver has of the bodies, and whatever happens while the snapshot is taken: what it makes of the stream
// loads as the jobs were at the snapshot's end.
func TestTheRestOfASnapshotMakesItWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(rapid.Uint64().Draw(rt, "seed"))
		change := func(what string) {
			for range rapid.IntRange(0, 200).Draw(rt, what) {
				n.change()
			}
		}
		change("before")
		share := rapid.Uint64Range(0, 4).Draw(rt, "share")
		r, err := newReceiver(maps.Clone(n.jobs), func(id uint64) bool { return id/2%4 < share })
		if err != nil {
			rt.Fatal(err)
		}
		change("then")
		fs := faultfs.New(root)
		if err := n.spill(fs); err != nil {
			rt.Fatal(err)
		}
		m, path, err := n.take(fs, 9)
		if err != nil {
			rt.Fatal(err)
		}
		var stream bytes.Buffer
		if err := sendTo(fs, &m, path, r, &stream); err != nil {
			rt.Fatal(err)
		}
		stream.WriteString("more")
		got, path, err := ReceiveRest(r.fs, dir, 9, 3, &stream, r.in)
		if err != nil {
			rt.Fatal(err)
		}
		if stream.String() != "more" {
			rt.Fatalf("%q is left of the stream", stream.String())
		}
		q := queue{}
		if err := load(r.fs, path, &got, q); err != nil {
			rt.Fatal(err)
		}
		if err := q.diff(n.jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

// backlog is a node with jobs of a KiB, all of whose bodies are in body files, and its snapshot of that index. The bodies
// lie in an order of their own.
func backlog(t testing.TB, fs vfs.FS, jobs int, index uint64) (n *node, m Meta, path string) {
	t.Helper()
	n = newNode(1)
	n.places = map[uint64]placed{}
	var err error
	n.store, err = spill.Open(spill.Options{FS: fs, Dir: bodiesDir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	life, err := n.store.Begin(n, nil)
	n.life = life
	for _, i := range rand.New(rand.NewPCG(2, index)).Perm(jobs) {
		r := recordOf(uint64(i)+1, 3, 1<<10)
		r.Tube, r.Keys, r.Reserves, r.Kicks = "orders", journal.Keys{}, 0, 0
		n.jobs[r.ID], n.places[r.ID] = job{Record: r}, placed{body: r.Body}
		if err == nil {
			err = life.Add(&r)
		}
		if err == nil && life.Full() {
			err = life.Write()
		}
	}
	w, werr := Create(fs, dir)
	if err = errors.Join(err, life.Write(), werr); err != nil {
		t.Fatal(err)
	}
	n.lastID = uint64(jobs)
	for id := range uint64(jobs) {
		if err := w.Full(n.record(id + 1)); err != nil {
			t.Fatal(err)
		}
	}
	m = n.meta(index)
	if m.Files, err = n.store.Seal(w.Files()); err == nil {
		m, path, err = w.Finish(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n, m, path
}

// A follower that lacks a hundredth of the bodies is sent a tenth of the bytes at most; 6 % are meant.
func TestAFollowerIsSentWhatItLacks(t *testing.T) {
	const jobs = 5000
	fs := faultfs.New(root)
	n, m, path := backlog(t, fs, jobs, 9)
	var all, rest bytes.Buffer
	if err := send(fs, path, new(m), &all); err != nil {
		t.Fatal(err)
	}
	to := faultfs.New(root)
	there, _, _ := backlog(t, to, jobs, 8)
	r := &receiver{node: there, fs: to, in: there.life.Incoming()}
	for id := range uint64(jobs) {
		if id%100 != 7 {
			r.in.Here(id+1, there.places[id+1].at)
		}
	}
	if err := sendTo(fs, &m, path, r, &rest); err != nil {
		t.Fatal(err)
	}
	sent, list := rest.Len(), len(r.in.IDs.Encode())
	t.Logf("%d bytes, a list of %d, and %d with all bodies", sent, list, all.Len())
	if (sent+list)*100 > all.Len()*6 {
		t.Errorf("%d bytes are sent, and %d with all bodies", sent, all.Len())
	}
	got, path, err := ReceiveRest(to, dir, 9, 3, &rest, r.in)
	q := queue{}
	if err == nil {
		err = load(to, path, &got, q)
	}
	if err == nil {
		err = q.diff(n.jobs)
	}
	if err != nil {
		t.Error(err)
	}
}

// Bodies are read in the order of their places, though the jobs are in the order of their ids.
func TestTheRestIsReadInTheOrderOfItsPlaces(t *testing.T) {
	const jobs = 8000 // two windows
	fs := faultfs.New(root)
	_, m, path := backlog(t, fs, jobs, 9)
	r, err := newReceiver(queue{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "read" && strings.Contains(c.Name, "bodies") {
			reads.Add(1)
		}
		return faultfs.Fault{}
	})
	if err := sendTo(fs, &m, path, r, io.Discard); err != nil {
		t.Fatal(err)
	}
	fs.Hook(nil)
	if n := reads.Load(); n == 0 || n > 3*m.Files[0].Size/(128<<10) {
		t.Errorf("%d reads for %d bytes", n, m.Files[0].Size)
	}
}

// What no sender writes is refused, and nothing is left.
func TestARestThatCannotBeIsRefused(t *testing.T) {
	fs, n := faultfs.New(root), newNode(8).fill(150)
	r, err := newReceiver(maps.Clone(n.jobs), func(id uint64) bool { return id%3 > 0 })
	if err == nil {
		err = n.spill(fs)
	}
	m, path, terr := n.take(fs, 9)
	if err = errors.Join(err, terr); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := sendTo(fs, &m, path, r, &stream); err != nil {
		t.Fatal(err)
	}
	whole := stream.Bytes()
	refused := func(what string, b []byte, in *spill.Incoming) {
		t.Helper()
		_, _, err := ReceiveRest(r.fs, dir, 9, 3, bytes.NewReader(b), in)
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		if names := names(r.fs); names != "" {
			t.Fatalf("%s: there is %s", what, names)
		}
	}
	for _, size := range []int{0, 10, metaFixed, len(m.encode()) + 3, len(whole) / 2, len(whole) - 1} {
		refused(fmt.Sprint(size, " bytes"), whole[:size], r.in)
	}
	for at := 0; at < len(whole); at += 97 {
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		refused(fmt.Sprint("a wrong byte ", at), b, r.in)
	}
	refused("of bodies that are not here", whole, r.life.Incoming())
	if _, _, err := ReceiveRest(r.fs, dir, 8, 3, bytes.NewReader(whole), r.in); !errors.Is(err, ErrMalformed) {
		t.Errorf("of another entry: %v", err)
	}

	// These have right checksums.
	stray := func(kind part, write func(w *Writer) error) []byte {
		b := bytes.NewBuffer(bytes.Clone(whole[:len(m.encode())]))
		w := &Writer{tmp: "x", out: sealed.Writer{FS: pipe{out: parts{kind, b}}, Limit: 1 << 20, Index: 1}}
		if err := errors.Join(write(w), w.out.Sync()); err != nil {
			t.Fatal(err)
		}
		_, _ = parts{partEnd, b}.Write(nil)
		check := sum(0, b.Bytes())
		return le.AppendUint32(append(b.Bytes(), trailerMagic...), check)
	}
	full := func(w *Writer) error { return w.Full(new(recordOf(1, 1, 9))) }
	if _, path, err := ReceiveRest(r.fs, dir, 9, 3, bytes.NewReader(stray(partRecords, full)), r.in); err != nil {
		t.Errorf("a job alone: %v", err)
	} else if err := Remove(r.fs, dir, path); err != nil {
		t.Fatal(err)
	}
	refused("an end", stray(partRecords, func(w *Writer) error {
		b, salt, err := w.extend(record.SmallSize, 0)
		record.EncodeSmall(b, salt, record.End, 1)
		return err
	}), r.in)
	refused("records in a part with jobs", stray(partJobs, full), r.in)
	refused("an unknown part", stray(partRecords+1, full), r.in)
}

// FuzzReceiveRest feeds a stream to ReceiveRest, as it is and with its checksum made right. It is refused and nothing is
// left, or it is a snapshot that loads.
func FuzzReceiveRest(f *testing.F) {
	for jobs := range 3 {
		fs, n := faultfs.New(root), newNode(8)
		for id := range uint64(jobs) {
			r := recordOf(id+1, 3, 9)
			n.jobs[id+1] = job{Record: r}
			n.lastID = id + 1
		}
		r, err := newReceiver(n.jobs, func(uint64) bool { return true })
		if err == nil {
			err = n.spill(fs)
		}
		m, path, terr := n.take(fs, 9)
		var s bytes.Buffer
		if err := errors.Join(err, terr, sendTo(fs, &m, path, r, &s)); err != nil {
			f.Fatal(err)
		}
		f.Add(s.Bytes(), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if forge && len(b) > trailerSize {
			b = bytes.Clone(b)
			if n := metaFixed; len(b) > n+trailerSize {
				n = min(int(le.Uint32(b[12:])), len(b)-trailerSize)
				if n >= metaFixed {
					forgeMeta(b[:n])
				}
			}
			le.PutUint32(b[len(b)-4:], sum(0, b[:len(b)-trailerSize]))
		}
		index, term := uint64(9), uint64(3)
		if len(b) > metaFixed {
			index, term = le.Uint64(b[16:]), le.Uint64(b[24:])
		}
		jobs := queue{}
		for id := range uint64(3) {
			jobs[id+1] = job{Record: recordOf(id+1, 3, 9)}
		}
		r, err := newReceiver(jobs, func(uint64) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		m, path, err := ReceiveRest(r.fs, dir, index, term, bytes.NewReader(b), r.in)
		if err == nil {
			if err := Load(r.fs, path, queue{}, nil); err != nil {
				t.Fatal(err)
			}
			if m.Index != index {
				t.Fatalf("%+v", m)
			}
			return
		}
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
			t.Fatal(err)
		}
		if s := names(r.fs); s != "" {
			t.Fatalf("there is %s", s)
		}
	})
}
