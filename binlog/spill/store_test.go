package spill

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func TestBodiesComeBackFromTheirFiles(t *testing.T) {
	g := newRig(t)
	for range 10 {
		if err := g.put(9); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.places()); n != 90 {
		t.Errorf("%d of 90 bodies are in files", n)
	}
	if err := g.checked(); err != nil {
		t.Error(err)
	}
	if s := g.store.Stats(); s.Files != 5 || s.Needed < 9*s.Bytes/10 {
		t.Errorf("the files are %+v", s)
	}
}

// The owner is told a place only when the body is durable there.
func TestNothingIsToldBeforeItIsSynced(t *testing.T) {
	g := newRig(t)
	g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" && len(g.places()) > 0 {
			t.Error("a place is told before")
		}
		return faultfs.Fault{}
	})
	if err := g.put(3); err != nil || len(g.places()) != 3 {
		t.Errorf("%d places are told, %v", len(g.places()), err)
	}
}

// days is a life of a store: bodies are spilled, end, and move, snapshots are taken and files removed. Errors do not
// end it.
func (g *rig) days() (err error) {
	note := func(e error) { err = errors.Join(err, e) }
	for day := range 3 {
		for range 6 {
			note(g.put(5))
		}
		for id := g.ids - 29; id < g.ids-5; id++ {
			if id%5 > 0 {
				g.end(id)
			}
		}
		note(g.snapshot(func() error {
			e := g.moves()
			if day == 1 {
				g.end(g.ids)
			}
			return errors.Join(e, g.put(2))
		}))
		note(g.store.Remove(g.held()))
		note(g.moves())
		note(g.put(1))
		note(g.store.Remove(g.held()))
	}
	return err
}

func TestFilesTakeNoMuchMoreThanWhatLives(t *testing.T) {
	g := newRig(t)
	for range 5 {
		if err := g.days(); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func() error { return nil }
	if err := errors.Join(g.snapshot(nothing), g.store.Remove(g.held()), g.checked()); err != nil {
		t.Fatal(err)
	}
	if s := g.store.Stats(); s.Bytes > s.Needed+s.Needed/2+2*rigLimit || s.Empty > rigLimit+1000 {
		t.Errorf("the files are %+v", s)
	}
}

// step is how many calls lie between two that are interrupted.
var step = map[bool]int{false: 4, true: 1}[proof]

// Whichever call a power cut interrupts, the list of the snapshot that counts has all that it refers to, and the next
// life goes on with it.
func TestWhatASnapshotRefersToSurvivesAPowerCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; ; n += step {
			disk := faultfs.New("d")
			disk.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == n} })
			g, err := openRig(disk)
			if err == nil {
				if err = g.begin(); err == nil {
					err = g.days()
					g.store.Close()
				}
			}
			if err == nil {
				if n < 100 {
					t.Errorf("there were %d calls", n)
				}
				break
			}
			for seed := range uint64(2) {
				after := disk.PowerCut(rand.New(rand.NewPCG(seed, uint64(n))))
				next, err := openRig(after)
				if err != nil {
					t.Fatalf("power cut at call %d: %v", n, err)
				}
				if g != nil {
					next.ids, next.list, next.placed = g.ids, g.list, g.placed
				}
				if err := errors.Join(next.begin(), next.sums(after)); err != nil {
					t.Fatalf("power cut at call %d: %v", n, err)
				}
				if err := errors.Join(next.checked(), next.days(), next.checked()); err != nil {
					t.Fatalf("power cut at call %d: %v", n, err)
				}
				next.store.Close()
			}
		}
	})
}

// failing has the nth write or sync of a file fail.
func failing(n int) func(faultfs.Call) faultfs.Fault {
	return func(c faultfs.Call) faultfs.Fault {
		if c.Op == "write" || c.Op == "sync" {
			if n--; n == 0 {
				return faultfs.Fault{Err: syscall.EIO}
			}
		}
		return faultfs.Fault{}
	}
}

// Whichever call fails, no body is lost, and no list has a file of which a part may be missing.
func TestNoBodyIsLostWhenACallFails(t *testing.T) {
	for name, fault := range map[string]faultfs.Fault{
		"no space": {Err: syscall.ENOSPC, Short: 100}, "damage": {Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := 1; ; n += step {
					g, err := openRig(faultfs.New("d"))
					if err = errors.Join(err, g.begin()); err != nil {
						t.Fatal(err)
					}
					first, hit := g.disk.Calls(), ""
					g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
						if c.N != first+n {
							return faultfs.Fault{}
						}
						hit = c.Op
						return fault
					})
					err = g.days()
					g.disk.Hook(nil)
					if e := g.checked(); e != nil {
						t.Fatalf("call %d, %s, fails: %v, and then %v", n, hit, err, e)
					}
					if e := errors.Join(g.days(), g.checked()); e != nil {
						t.Fatalf("after call %d, %s, has failed: %v", n, hit, e)
					}
					g.store.Close()
					if hit == "" {
						break
					}
					after := g.disk.PowerCut(rand.New(rand.NewPCG(1, uint64(n))))
					next, err := openRig(after)
					if err != nil {
						t.Fatal(err)
					}
					next.list, next.placed = g.list, g.placed
					if e := errors.Join(next.begin(), next.sums(after), next.checked()); e != nil {
						t.Fatalf("call %d, %s, fails, then the power: %v", n, hit, e)
					}
					next.store.Close()
				}
			})
		})
	}
}

// A body file whose sync has failed is in no list: the system may believe that what it could not write is on disk.
func TestAFileWhoseSyncHasFailedIsInNoList(t *testing.T) {
	g := newRig(t)
	if err := g.put(3); err != nil {
		t.Fatal(err)
	}
	g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	if err := g.put(2); !errors.Is(err, syscall.EIO) || len(g.places()) != 3 {
		t.Errorf("%d places are told, %v", len(g.places()), err)
	}
	g.disk.Hook(nil)
	nothing := func() error { return nil }
	if err := g.snapshot(nothing); err == nil {
		t.Errorf("a snapshot has the list %+v", g.list)
	}
	if err := errors.Join(g.moves(), g.snapshot(nothing), g.checked()); err != nil || len(g.list) != 1 || g.list[0].Number != 3 {
		t.Errorf("then it has the list %+v, %v", g.list, err)
	}
}

// A walk has told of places that compaction empties before the snapshot counts.
func TestWhatAWalkHasSeenStaysUntilTheNextSnapshotCounts(t *testing.T) {
	g := newRig(t)
	if err := errors.Join(g.put(20), g.put(20), g.put(20), g.put(20), g.put(20)); err != nil {
		t.Fatal(err)
	}
	if err := g.snapshot(func() error {
		for id := range uint64(80) {
			if id%5 > 0 {
				g.end(id)
			}
		}
		return errors.Join(g.moves(), g.store.Remove(nil), g.put(20), g.store.Remove(nil))
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.store.Remove(g.held()), g.sums(g.disk)); err != nil {
		t.Error(err)
	}
	nothing := func() error { return nil }
	before := g.store.Stats()
	if err := errors.Join(g.snapshot(nothing), g.store.Remove(g.held()), g.checked()); err != nil {
		t.Error(err)
	}
	if now := g.store.Stats(); now.Files >= before.Files {
		t.Errorf("after the next one there are %d files, and %d before", now.Files, before.Files)
	}
}

// What the owner before is told too late, or says, counts for nothing, and its places are not taken over.
func TestALifeThatHasEndedTakesNoPart(t *testing.T) {
	g := newRig(t)
	if err := g.put(3); err != nil {
		t.Fatal(err)
	}
	old := g.owner
	r := journal.Record{ID: 9, State: journal.Ready, TTR: 1, Tube: "a", Body: []byte("x")}
	if err := old.life.Add(&r); err != nil {
		t.Fatal(err)
	}
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	if err := g.put(1); err != nil {
		t.Fatal(err)
	}
	_, moving := old.life.Move()
	for _, err := range []error{old.life.Add(&r), old.life.Write(), moving} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("it may: %v", err)
		}
	}
	if err := old.life.Keep(journal.Place{Segment: 3, Offset: 10}, 1); !errors.Is(err, ErrEnded) {
		t.Errorf("it may keep a place: %v", err)
	}
	if list, err := g.store.Seal([]uint32{firstNumber}); err == nil {
		t.Errorf("a walk of the life before has the list %+v", list)
	}
	for id := range old.places() {
		if x := old.read(id, *old.jobs[id]); !errors.Is(x.Err, ErrEnded) {
			t.Errorf("it is told a body, %v", x.Err)
		}
		old.end(id)
	}
	if s := g.store.Stats(); s.Needed == 0 || len(old.places()) != 0 {
		t.Errorf("the files are %+v", s)
	}
	if err := errors.Join(g.store.Remove(nil), g.checked()); err != nil {
		t.Error(err)
	}
	if _, err := g.disk.OpenRead("d/bodies/" + record.FileName(firstNumber)); err == nil {
		t.Error("the file of the life before is there")
	}
}

// The bell rings when files have come to take much more than what lives in them, and when one is broken.
func TestTheBellRingsWhenAFileIsToBeMoved(t *testing.T) {
	g := newRig(t)
	rung := func() bool {
		select {
		case <-g.life.Bell():
			return true
		default:
			return false
		}
	}
	if !rung() {
		t.Error("nobody looks at what was there before")
	}
	for range 10 {
		if err := g.put(9); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.moves(); err != nil || rung() {
		t.Fatalf("it rings for nothing: %v", err)
	}
	for id := range uint64(80) {
		g.end(id + 1)
	}
	if s := g.store.Stats(); !rung() {
		t.Errorf("it does not ring: %+v", s)
	}
	if err := g.moves(); err != nil {
		t.Fatal(err)
	}
	rung() // by what has left the files that were moved
	if rung(); g.put(1) != nil || rung() {
		t.Error("it rings when all is done")
	}
	g.disk.Hook(failing(1))
	if err := g.put(1); err == nil || !rung() {
		t.Errorf("a file has failed, and it does not ring: %v", err)
	}
}

// The header of a file may be unreadable, or damaged: no body is lost by that, and the file can be emptied.
func TestAHeaderThatCannotBeReadCostsNothing(t *testing.T) {
	for _, what := range []string{"unreadable", "damaged"} {
		g := newRig(t)
		if err := errors.Join(g.put(5), g.snapshot(func() error { return nil })); err != nil {
			t.Fatal(err)
		}
		g.store.Close()
		next, err := openRig(g.disk.Killed())
		if err != nil {
			t.Fatal(err)
		}
		next.list, next.placed, next.ids = g.list, g.placed, g.ids
		if what == "unreadable" {
			next.disk.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "read" {
					return faultfs.Fault{Err: syscall.EIO}
				}
				return faultfs.Fault{}
			})
		} else {
			f, err := next.disk.Open(next.store.name(g.list[0].Number))
			if err == nil {
				_, err = f.WriteAt(make([]byte, record.HeaderSize), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := next.begin(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		next.disk.Hook(nil)
		if err := next.checked(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for id := range uint64(4) {
			next.end(id + 1)
		}
		if err := errors.Join(next.days(), next.checked()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if next.store.books.files[g.list[0].Number] != nil {
			t.Errorf("%s: the file is not emptied: %+v", what, next.store.Stats())
		}
		next.store.Close()
	}
}

// Nothing is removed before a list was read whole, nor where a file of it is not what it says.
func TestNothingIsRemovedInTheFaceOfDamage(t *testing.T) {
	g := newRig(t)
	if err := errors.Join(g.put(5), g.snapshot(func() error { return g.put(5) }), g.put(12), g.put(1)); err != nil {
		t.Fatal(err)
	}
	g.store.Close()
	names := func(disk *faultfs.FS) int {
		list, err := disk.List("d/bodies")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for _, what := range []string{"missing", "short", "another header", "sound"} {
		disk := g.disk.Killed()
		before := names(disk)
		next, err := openRig(disk)
		if err != nil {
			t.Fatal(err)
		}
		next.list, next.placed = append([]File(nil), g.list...), g.placed
		switch what {
		case "missing":
			next.list[0].Number = 77
		case "short":
			next.list[0].Size--
		case "another header":
			next.list[0].Seed++
		}
		life, err := next.store.Begin(newOwner(), next.list)
		if bad := (*record.DamageError)(nil); (what != "sound") != errors.As(err, &bad) {
			t.Errorf("%s: %v", what, err)
		}
		if err := next.store.Remove(nil); err != nil || names(disk) != before {
			t.Errorf("%s: %d of %d files are left, %v", what, names(disk), before, err)
		}
		if life != nil {
			life.Listed()
			if err := next.store.Remove(next.held()); err != nil || names(disk) >= before {
				t.Errorf("%s: %d of %d files are left, %v", what, names(disk), before, err)
			}
		}
		next.store.Close()
		g.disk = disk
	}
}

// A body that is damaged stays where it is, and so does its file until the job has ended. What is behind it is moved.
func TestAFileWithADamagedBodyStays(t *testing.T) {
	g := newRig(t)
	if err := errors.Join(g.put(5), g.put(8), g.put(20)); err != nil {
		t.Fatal(err)
	}
	at := g.jobs[2].at
	f, err := g.disk.Open("d/bodies/" + record.FileName(at.Segment))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), int64(at.Offset)*8+150); err != nil {
		t.Fatal(err)
	}
	g.store.mu.Lock()
	g.store.books.files[at.Segment].phase = broken // so that it is moved
	g.store.mu.Unlock()
	if err := g.moves(); err == nil || !strings.Contains(err.Error(), "damaged in 1 places: 1 bodies") {
		t.Errorf("the move ends with %v", err)
	}
	if err := g.moves(); err != nil {
		t.Errorf("then with %v", err)
	}
	if s := g.store.Stats(); s.Stuck != 1 {
		t.Errorf("the files are %+v", s)
	}
	if x := g.read(2, *g.jobs[2]); !errors.Is(x.Err, journal.ErrUnreadable) || g.jobs[2].at != at || g.jobs[3].at.Segment == at.Segment {
		t.Errorf("it is at %v, %v; another one at %v", g.jobs[2].at, x.Err, g.jobs[3].at)
	}
	g.end(2)
	nothing := func() error { return nil }
	if err := errors.Join(g.snapshot(nothing), g.store.Remove(g.held()), g.checked()); err != nil {
		t.Error(err)
	}
	if s := g.store.Stats(); s.Stuck != 0 {
		t.Errorf("when it has ended, the files are %+v", s)
	}
}

// While the disk hangs a file is not taken for damaged.
func TestADiskThatHangsIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := openRig(faultfs.New("d"))
		if err = errors.Join(err, g.begin(), g.put(5), g.put(20)); err != nil {
			t.Fatal(err)
		}
		defer g.store.Close()
		g.store.books.files[2].phase = broken
		g.disk.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "read" || c.Op == "open" {
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		})
		if err := g.moves(); !errors.Is(err, journal.ErrHangs) {
			t.Errorf("the move ends with %v", err)
		}
		g.disk.Hook(nil)
		for range 20 {
			time.Sleep(time.Second)
			if err = g.moves(); err == nil {
				break
			}
		}
		if s := g.store.Stats(); err != nil || s.Stuck != 0 || g.jobs[1].at.Segment == 2 {
			t.Errorf("the files are %+v", s)
		}
		if err := g.checked(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a file has, moving it hands out sound records only, and ends.
func FuzzMove(f *testing.F) {
	b := make([]byte, record.HeaderSize)
	var second journal.Place // of the second job
	for id := range uint64(3) {
		if id == 1 {
			second = journal.Place{Segment: firstNumber, Offset: uint32(len(b) / 8)}
		}
		r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 1, Tube: "a", Body: []byte("some bytes")}
		full := make([]byte, r.Size())
		record.EncodeFull(full, record.NewSalt(7, firstNumber), &r)
		b = append(b, full...)
	}
	f.Add(b)
	f.Add(b[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := faultfs.New("d")
		g, err := openRig(disk)
		if err == nil {
			err = vfs.WriteFile(disk, "d/bodies/"+record.FileName(firstNumber), b)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer g.store.Close()
		if err := g.begin(); err != nil {
			t.Fatal(err)
		}
		x := &file{File: File{Number: firstNumber, Seed: 7, Size: int64(len(b)), Records: 1}, phase: broken}
		g.store.books.files[firstNumber], g.store.books.last = x, firstNumber
		body := []byte("some bytes")
		g.jobs[2] = &job{body: body, cold: true, at: second}
		g.store.books.add(firstNumber, uint32(len(body)))
		err = g.moves()
		if at := g.jobs[2].at; (at.Segment == firstNumber) != (x.phase == ruined) {
			t.Errorf("it is at %v, and the file %d: %v", at, x.phase, err)
		}
		if g.jobs[2].at.Segment != firstNumber {
			if err := g.checked(); err != nil && !strings.Contains(err.Error(), "body") {
				t.Error(err)
			}
		}
	})
}

// While bodies are spilled and moved, and files removed, others read what they refer to, and end.
func TestBodiesAreReadWhileFilesAreMovedAndRemoved(t *testing.T) {
	g := newRig(t)
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		read := 0
		for {
			select {
			case <-done:
				if read == 0 {
					ended <- errors.New("nothing was read")
				}
				ended <- nil
				return
			default:
			}
			for id, j := range g.places() {
				x := g.read(id, j)
				moved := g.places()[id].at != j.at
				if x.Err == nil && !bytes.Equal(x.Body, j.body) || x.Err != nil && !moved {
					ended <- fmt.Errorf("job %d at %v has the body %.10q, %w", id, j.at, x.Body, x.Err)
					return
				}
				if read++; read%7 == 0 {
					g.end(id)
				}
				break
			}
		}
	}()
	for range 10 {
		if err := g.days(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := g.checked(); err != nil {
		t.Error(err)
	}
}

// A directory whose name could not be made durable is not taken for one that is at the next start.
func TestTheDirectoryOfBodyFilesIsDurable(t *testing.T) {
	for seed := range uint64(20) {
		fs, dir := faultfs.New("m"), "m/bodies"
		fs.Hook(func(c faultfs.Call) (x faultfs.Fault) {
			if c.Op == "syncdir" {
				x.Err = syscall.EIO
			}
			return x
		})
		if _, err := Open(Options{FS: fs, Dir: dir}); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		fs.Hook(nil)
		s, err := Open(Options{FS: fs, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := fs.PowerCut(rand.New(rand.NewPCG(seed, 0))).List(dir); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
