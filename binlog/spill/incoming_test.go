package spill

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// listed tells of all bodies that are in files.
func (g *rig) listed() *Incoming {
	in := g.life.Incoming()
	all := g.places()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		in.Here(id, all[id].at)
	}
	return in
}

// readable reads bodies that a list has from where in says they are.
func (g *rig) readable(t *testing.T, in *Incoming, list []File, bodies map[uint64]job) {
	t.Helper()
	r := NewReader(g.disk, "d/bodies", list)
	defer r.Close()
	for id, j := range bodies {
		at, ok := in.Place(id)
		got, err := r.Body(&journal.Fetch{ID: id, Place: at, Size: uint32(len(j.body))})
		if !ok || err != nil || !bytes.Equal(got, j.body) {
			t.Errorf("job %d at %v: %v, %v", id, at, ok, err)
		}
	}
}

// Bodies that were told of stay where they are while the jobs move to other files, and end.
func TestBodiesOfAnIncomingSnapshotStayThoughFilesAreMovedAndRemoved(t *testing.T) {
	g := newRig(t)
	for range 30 {
		if err := g.put(5); err != nil {
			t.Fatal(err)
		}
	}
	in, before := g.listed(), g.places()
	for id := range g.ids {
		if (id+1)%4 > 0 {
			g.end(id + 1)
		}
	}
	if err := g.moves(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.snapshot(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.store.Remove(g.held()); err != nil {
		t.Fatal(err)
	}
	numbers := map[uint32]bool{}
	for _, j := range before {
		numbers[j.at.Segment] = true
	}
	list, err := in.Seal(slices.Sorted(maps.Keys(numbers)))
	if err != nil {
		t.Fatal(err)
	}
	g.readable(t, in, list, before)
	if s := g.store.Stats(); s.Empty > 0 {
		t.Errorf("%+v waits for a snapshot, which would not free it", s)
	}
	in.End()
	in.End()
	if err := g.store.Remove(g.held()); err != nil {
		t.Fatal(err)
	}
	if s := g.store.Stats(); s.Files >= len(numbers) || len(g.store.books.held) > 0 {
		t.Errorf("nobody holds them, and there are %+v", s)
	}
}

// What a sender is not told of: bodies that are known to be damaged, in files with damage, and in files that no list
// may have.
func TestBodiesThatAreOfNoUseAreNotTold(t *testing.T) {
	g := newRig(t)
	if err := errors.Join(g.put(13), g.put(13), g.put(1)); err != nil { // 13 are a file
		t.Fatal(err)
	}
	g.store.books.damaged(g.store.books.files[2])
	g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	if err := g.put(1); err == nil {
		t.Fatal("nothing has failed")
	}
	g.disk.Hook(nil)
	if f := g.store.books.files; f[2].phase != stuck || f[3].phase != whole || f[4].phase != broken {
		t.Fatalf("%+v", f)
	}
	in := g.listed()
	for id, j := range g.places() {
		if in.IDs.Has(id) != (j.at.Segment == 3) {
			t.Errorf("job %d in file %d is told, or is not", id, j.at.Segment)
		}
	}
}

// A body that turns out to be damaged when it is read is not told of.
func TestABodyThatCouldNotBeReadIsNotTold(t *testing.T) {
	g := newRig(t)
	if err := g.put(3); err != nil {
		t.Fatal(err)
	}
	j := g.places()[2]
	f, err := g.disk.Open("d/bodies/trellis.0000000002")
	if err == nil {
		_, err = f.WriteAt([]byte("spoiled"), int64(j.at.Offset)*8+100)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if x := g.read(2, j); !errors.Is(x.Err, journal.ErrUnreadable) {
		t.Fatal(x.Err)
	}
	if in := g.listed(); in.IDs.Has(2) || !in.IDs.Has(1) || !in.IDs.Has(3) {
		t.Errorf("it is told, or others are not")
	}
}

// Bodies that have come are in files that are whole, and stay if a list has them; then the jobs of the snapshot have
// them. Otherwise they go, but for those in a file where others are.
func TestBodiesThatComeAreInFiles(t *testing.T) {
	for _, installed := range []bool{false, true} {
		g := newRig(t)
		if err := g.put(3); err != nil {
			t.Fatal(err)
		}
		in, all := g.listed(), map[uint64]job{}
		numbers := map[uint32]bool{2: true}
		for id := uint64(100); id < 150; id++ {
			body := bytes.Repeat([]byte{byte(id)}, 300)
			at, err := in.Add(&journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "a", Body: body})
			if err == nil && (installed || id%5 == 0) { // the standby goes on
				err = g.life.Write()
			}
			if err == nil && installed {
				err = g.put(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			all[id] = job{body: body, at: at}
			numbers[at.Segment] = true
		}
		list, err := in.Seal(slices.Sorted(maps.Keys(numbers)))
		if err != nil || len(list) < 4 || g.store.Stats().Empty > 0 {
			t.Fatalf("%+v, %+v, %v", list, g.store.Stats(), err)
		}
		before := g.list
		if installed {
			g.list = list
		}
		in.End()
		if err := errors.Join(g.store.Remove(g.held()), g.checked()); err != nil {
			t.Error(err)
		}
		if !installed {
			if s := g.store.Stats(); s.Files != 2 { // the first one and the last
				t.Errorf("of the list %+v there are %+v", list, s)
			}
			g.list = before
			continue
		}
		g.placed = all
		if err := errors.Join(g.begin(), g.checked(), g.sums(g.disk), g.store.Remove(g.held()), g.checked()); err != nil {
			t.Error(err)
		}
	}
}

// A snapshot is not made of bodies that another owner has by now, nor after a disk has failed.
func TestAnIncomingSnapshotIsGivenUpWithItsFiles(t *testing.T) {
	g := newRig(t)
	if err := g.put(3); err != nil {
		t.Fatal(err)
	}
	in := g.listed()
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	if list, err := in.Seal([]uint32{2}); err == nil {
		t.Errorf("%+v has what another owner does not", list)
	}
	in = g.life.Incoming()
	r := journal.Record{ID: 7, State: journal.Ready, TTR: 1, Tube: "a", Body: []byte("body")}
	at, err := in.Add(&r)
	if err != nil {
		t.Fatal(err)
	}
	g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	if list, err := in.Seal([]uint32{at.Segment}); err == nil {
		t.Errorf("%+v is not on disk", list)
	}
	g.disk.Hook(nil)
	in.End()
	if _, err := g.disk.OpenRead(g.store.name(at.Segment)); err == nil {
		t.Error("its file is there")
	}
}
