package offline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// coldDir is the directory of a member with jobs whose bodies are in body files. It owns the files.
type coldDir struct {
	dir    string
	store  *spill.Store
	life   *spill.Life
	places map[uint64]journal.Place
	index  uint64 // of the last snapshot
}

const coldBody = 1000

func (c *coldDir) Spilled(id uint64, at journal.Place) bool {
	c.places[id] = at
	return at.Known()
}

func (c *coldDir) Leaves(uint64, journal.Place) bool               { return false }
func (c *coldDir) Moved(uint64, journal.Place, journal.Place) bool { return false }
func (c *coldDir) Loaded([]journal.Fetched)                        {}

func newColdDir(t *testing.T) *coldDir {
	t.Helper()
	c := &coldDir{dir: t.TempDir(), places: map[uint64]journal.Place{}, index: 1}
	var err error
	c.store, err = spill.Open(spill.Options{
		FS: vfs.OS{}, Dir: filepath.Join(c.dir, bodiesDir), Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		c.life, err = c.store.Begin(c, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.life.Listed()
	t.Cleanup(c.store.Close)
	return c
}

// spill has the bodies of n more jobs in body files.
func (c *coldDir) spill(n int) error {
	for range n {
		id := uint64(len(c.places) + 1)
		if err := c.life.Add(job(id, strings.Repeat(fmt.Sprint(id%10), coldBody))); err != nil {
			return err
		}
		c.places[id] = journal.Place{}
	}
	return c.life.Write()
}

// take makes a snapshot of all jobs and of another one the current one; place may say where a job has its body.
func (c *coldDir) take(place func(id uint64) journal.Place) error {
	c.index++
	walk := c.store.Walk()
	w, err := snapshot.Create(vfs.OS{}, filepath.Join(c.dir, snapshotsDir))
	if err != nil {
		return err
	}
	last := uint64(len(c.places) + 1)
	err = w.Full(job(last, "in-the-snapshot"))
	for id := uint64(1); id < last && err == nil; id++ {
		r := job(id, "")
		r.Absent = &journal.Fetch{ID: id, Place: place(id), Size: coldBody}
		err = w.Full(r)
	}
	m := snapshot.Meta{Index: c.index, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{1}}, Highest: last}
	if err == nil {
		m.Files, err = c.store.Seal(w.Files())
	}
	if err == nil {
		m, _, err = w.Finish(m)
	}
	dir := filepath.Join(c.dir, snapshotsDir)
	if err == nil {
		err = snapshot.SetCurrent(vfs.OS{}, dir, &m)
	}
	if err != nil {
		return err
	}
	c.store.Current(walk)
	var held []uint32
	for _, f := range m.Files {
		held = append(held, f.Number)
	}
	return errors.Join(snapshot.Prune(vfs.OS{}, dir), c.store.Remove(held))
}

func (c *coldDir) at(id uint64) journal.Place { return c.places[id] }

// end ends all jobs.
func (c *coldDir) end() {
	for _, at := range c.places {
		c.life.Forget(at, coldBody)
	}
	clear(c.places)
}

// aColdDir has jobs 1 to 5 in body file 2, which the snapshot names, and 6 to 8 in file 3, which nothing names.
func aColdDir(t *testing.T) *coldDir {
	t.Helper()
	c := newColdDir(t)
	if err := errors.Join(c.spill(5), c.take(c.at), c.spill(3)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *coldDir) bodyFile(n uint32) string {
	return filepath.Join(c.dir, bodiesDir, record.FileName(n))
}

func (c *coldDir) snapshotFile(name string) string {
	return filepath.Join(c.dir, snapshotsDir, fmt.Sprintf("%d-1", c.index), name)
}

func TestASoundMembersDirectoryIsVerified(t *testing.T) {
	t.Parallel()
	c := aColdDir(t)
	for range 2 {
		var out bytes.Buffer
		mine, err := Verify(&out, vfs.OS{}, c.dir)
		if !mine || err != nil || !strings.Contains(out.String(), "snapshot 2-1: 1 records in ") ||
			!strings.Contains(out.String(), ", 5 jobs with their bodies in 1 body files\n") ||
			!strings.Contains(out.String(), "bodies/trellis.0000000002: sealed, in the snapshot, ") ||
			!strings.Contains(out.String(), "bodies/trellis.0000000003: open, or given up, ") {
			t.Errorf("%v, %v\n%s", mine, err, &out)
		}
		// What nobody needs may be torn: a power cut leaves it so.
		flip(t, c.bodyFile(3), "7777", 0)
	}
}

func TestWhatHasNoBodyFilesIsNotVerifiedAsAMembersDirectory(t *testing.T) {
	t.Parallel()
	m := newMemberDir(t)
	var out bytes.Buffer
	mine, err := Verify(&out, vfs.OS{}, m.dir)
	dumped, err2 := Dump(&out, vfs.OS{}, m.dir, true)
	if mine || dumped || err != nil || err2 != nil || out.Len() > 0 {
		t.Errorf("%v, %v, %v, %v\n%s", mine, dumped, err, err2, &out)
	}
	// Before anything has left memory there is no file of jobs either.
	if err := os.Mkdir(filepath.Join(m.dir, bodiesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if mine, err := Verify(&out, vfs.OS{}, m.dir); !mine || err != nil || !strings.Contains(out.String(), "0 body files") {
		t.Errorf("%v, %v\n%s", mine, err, &out)
	}
	out.Reset()
	if mine, err := Dump(&out, vfs.OS{}, m.dir, true); !mine || err != nil || !strings.Contains(out.String(), `body="body3"`) {
		t.Errorf("%v, %v\n%s", mine, err, &out)
	}
}

func TestDamageOfAMembersDirectoryIsNamedWithFileAndOffset(t *testing.T) {
	t.Parallel()
	const size = record.HeaderSize
	cut := func(t *testing.T, name string, bytes int64) int64 {
		t.Helper()
		i, err := os.Stat(name)
		if err == nil {
			err = os.Truncate(name, i.Size()-bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		return i.Size() - bytes
	}
	for what, damage := range map[string]func(t *testing.T, c *coldDir) (file string, offset int64){
		"a body": func(t *testing.T, c *coldDir) (string, int64) {
			flip(t, c.bodyFile(2), "3333", 9)
			return c.bodyFile(2), int64(c.places[3].Offset) * 8
		},
		"the header of a body file": func(t *testing.T, c *coldDir) (string, int64) {
			flip(t, c.bodyFile(2), "TRELLIS", 16)
			return c.bodyFile(2), 0
		},
		"the end record of a body file": func(t *testing.T, c *coldDir) (string, int64) {
			return c.bodyFile(2), cut(t, c.bodyFile(2), record.SmallSize)
		},
		"a body that is cut": func(t *testing.T, c *coldDir) (string, int64) {
			cut(t, c.bodyFile(2), record.SmallSize+100)
			return c.bodyFile(2), int64(c.places[5].Offset) * 8
		},
		"a body file that is missing": func(t *testing.T, c *coldDir) (string, int64) {
			if err := os.Remove(c.bodyFile(2)); err != nil {
				t.Fatal(err)
			}
			return c.bodyFile(2), size
		},
		"another body file of that number": func(t *testing.T, c *coldDir) (string, int64) {
			other := newColdDir(t)
			if err := errors.Join(other.spill(5), other.take(other.at), os.Rename(other.bodyFile(2), c.bodyFile(2))); err != nil {
				t.Fatal(err)
			}
			return c.bodyFile(2), size
		},
		"a place of another job": func(t *testing.T, c *coldDir) (string, int64) {
			c.places[3] = c.places[2]
			if err := c.take(c.at); err != nil {
				t.Fatal(err)
			}
			return c.bodyFile(2), int64(c.places[2].Offset) * 8
		},
		"a sealed body file that no snapshot names": func(t *testing.T, c *coldDir) (string, int64) {
			at := int64(c.places[7].Offset) * 8
			delete(c.places, 8)
			delete(c.places, 7)
			delete(c.places, 6)
			if err := c.take(c.at); err != nil {
				t.Fatal(err)
			}
			flip(t, c.bodyFile(3), "7777", 0)
			return c.bodyFile(3), at
		},
		"the file of jobs": func(t *testing.T, c *coldDir) (string, int64) {
			flip(t, c.snapshotFile("jobs"), "mail", 1)
			return c.snapshotFile("jobs"), 0
		},
		"a job in the snapshot": func(t *testing.T, c *coldDir) (string, int64) {
			flip(t, c.snapshotFile(record.FileName(1)), "in-the-snapshot", 1)
			return c.snapshotFile(record.FileName(1)), size
		},
		"the snapshot's description": func(t *testing.T, c *coldDir) (string, int64) {
			flip(t, c.snapshotFile("meta"), "TRELSNP", 30)
			return c.snapshotFile("meta"), 0
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := aColdDir(t)
			file, offset := damage(t, c)
			var out bytes.Buffer
			mine, err := Verify(&out, vfs.OS{}, c.dir)
			want := fmt.Sprintf("%s: offset %d: ", file, offset)
			if !mine || !errors.As(err, new(*record.DamageError)) || !strings.Contains(out.String(), "DAMAGED: ") ||
				!strings.Contains(out.String(), want) {
				t.Errorf("%v, %v: %s is not named\n%s", mine, err, want, &out)
			}
		})
	}
}

// All jobs that have lost their bodies are told, and where.
func TestEachBodyThatIsLostIsNamed(t *testing.T) {
	t.Parallel()
	c := aColdDir(t)
	flip(t, c.bodyFile(2), "2222", 9)
	flip(t, c.bodyFile(2), "4444", 9)
	var out bytes.Buffer
	_, err := Verify(&out, vfs.OS{}, c.dir)
	for id := uint64(1); id <= 5; id++ {
		line := fmt.Sprintf("%s: offset %d: the body of job %d is not there: ", c.bodyFile(2), c.places[id].Offset*8, id)
		if lost := id%2 == 0; strings.Contains(out.String(), line) != lost {
			t.Errorf("job %d is lost: %v; %v\n%s", id, lost, err, &out)
		}
	}
}

func TestAMembersBodyFilesAndJobsAreDumped(t *testing.T) {
	t.Parallel()
	c := aColdDir(t)
	var out bytes.Buffer
	if mine, err := Dump(&out, vfs.OS{}, c.dir, false); !mine || err != nil {
		t.Fatal(mine, err)
	}
	for id := uint64(1); id <= 8; id++ {
		at, n := c.places[id], 0
		for line := range strings.Lines(out.String()) {
			place, said, _ := strings.Cut(strings.TrimSpace(line), " full ")
			if !strings.HasPrefix(said, fmt.Sprintf("id=%d ready pri=7 ", id)) || !strings.HasSuffix(said, " bytes=1000") {
				continue
			}
			n++
			if want := fmt.Sprintf("%s %d", record.FileName(at.Segment), at.Offset*8); place != "bodies/"+want && place != "snapshots/2-1/jobs "+want {
				t.Errorf("job %d is at %v: %s", id, at, line)
			}
		}
		if want := map[bool]int{true: 2, false: 1}[id <= 5]; n != want {
			t.Errorf("job %d is told of %d times, not %d", id, n, want)
		}
	}
	for _, want := range []string{"snapshots/2-1/trellis.0000000001 80 full id=6 ", "bodies/trellis.0000000002 0 header "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q", want)
		}
	}
	if strings.Contains(out.String(), "BAD") || strings.Contains(out.String(), "1111") {
		t.Errorf("damage, or bodies\n%s", &out)
	}
	flip(t, c.snapshotFile("jobs"), "mail", 1)
	flip(t, c.bodyFile(2), "3333", 9)
	out.Reset()
	if _, err := Dump(&out, vfs.OS{}, c.dir, true); err != nil || !strings.Contains(out.String(), "snapshots/2-1/jobs 0 BAD ") ||
		!strings.Contains(out.String(), fmt.Sprintf("bodies/trellis.0000000002 %d BAD ", c.places[3].Offset*8)) ||
		!strings.Contains(out.String(), `body="1111`) {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A member that runs spills bodies, takes snapshots, and removes files, while its directory is read.
func TestAMembersDirectoryIsVerifiedWhileItChanges(t *testing.T) {
	t.Parallel()
	c := aColdDir(t)
	var rounds atomic.Int32
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() {
		var err error
		for ; err == nil && !stop.Load(); rounds.Add(1) {
			if err = c.spill(3); err == nil && rounds.Load()%3 == 2 {
				err = c.take(c.at)
				c.end()
			}
		}
		ended <- err
	}()
	for rounds.Load() < 12 && len(ended) == 0 {
		var out bytes.Buffer
		// It may change faster than it is read, which is no damage.
		if mine, err := Verify(&out, vfs.OS{}, c.dir); !mine || strings.Contains(out.String(), "DAMAGED") ||
			err != nil && !strings.Contains(err.Error(), "it changes faster") {
			t.Errorf("%v, %v\n%s", mine, err, &out)
		}
	}
	stop.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
