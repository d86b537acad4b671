package spill

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// listed tells of all bodies that are in files.
func (g *rig) listed() *Incoming {
	in := g.store.Incoming()
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
	if err := errors.Join(in.End(nil), in.End(nil), g.store.Remove(g.held())); err != nil {
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

// Files of its own are whole, and go with it unless a list has them; then the jobs of the snapshot have them.
func TestBodiesThatComeAreInFilesOfTheirOwn(t *testing.T) {
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
			if err != nil {
				t.Fatal(err)
			}
			all[id] = job{body: body, at: at}
			numbers[at.Segment] = true
			if err := g.put(1); err != nil { // the standby goes on
				t.Fatal(err)
			}
		}
		list, err := in.Seal(slices.Sorted(maps.Keys(numbers)))
		if err != nil || len(list) < 4 {
			t.Fatalf("%+v, %v", list, err)
		}
		var lists []uint32
		if installed {
			g.list, g.placed = list, all
			lists = g.held()
		}
		if err := errors.Join(in.End(lists), g.store.Remove(lists), g.begin(), g.checked()); err != nil {
			t.Error(err)
		}
		if installed {
			if err := errors.Join(g.sums(g.disk), g.store.Remove(lists), g.checked()); err != nil {
				t.Error(err)
			}
			continue
		}
		names := ""
		es, err := g.disk.List("d/bodies")
		for _, e := range es {
			names += e.Name + " "
		}
		for id, j := range all {
			if strings.Contains(names, g.store.name(j.at.Segment)[len("d/bodies/"):]) {
				t.Errorf("job %d in file %d: there is %s, %v", id, j.at.Segment, names, err)
			}
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
	in = g.store.Incoming()
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
	if err := in.End(nil); err != nil {
		t.Error(err)
	}
	if _, err := g.disk.OpenRead(g.store.name(at.Segment)); err == nil {
		t.Error("its file is there")
	}
}
