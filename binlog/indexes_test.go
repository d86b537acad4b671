package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/inspect"
	"trellis/binlog/internal/index"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// content is what a file holds.
func content(t *testing.T, fs *faultfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.OpenRead(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, _ := f.Size()
	b := make([]byte, n)
	f.ReadAt(b, 0)
	return b
}

func setContent(t *testing.T, fs *faultfs.FS, name string, b []byte) {
	t.Helper()
	fs.Remove(name)
	f, err := fs.Create(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), vfs.SyncDir(fs, testDir)); err != nil {
		t.Fatal(err)
	}
}

// copied is another file system with the same files, which a power cut leaves as they are.
func copied(t *testing.T, fs *faultfs.FS) *faultfs.FS {
	t.Helper()
	es, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	to := faultfs.New(testDir)
	for _, e := range es {
		name := filepath.Join(testDir, e.Name)
		setContent(t, to, name, content(t, fs, name))
	}
	return to
}

// indexFiles are the paths of the indexes in the test's directory.
func indexFiles(t *testing.T, fs *faultfs.FS) (names []string) {
	t.Helper()
	es, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name, "index.") {
			names = append(names, filepath.Join(testDir, e.Name))
		}
	}
	return names
}

// indexedLog is a file system with a log that has jobs in ten segments or so, and indexes of most.
func indexedLog(t *testing.T, policy SyncPolicy) (*faultfs.FS, *owner) {
	t.Helper()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Sync: policy, Indexes: true}); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= 100; id++ {
		o.put(testRecord(id, int(id)*3))
		if r := o.jobs[id].Record; id%3 == 0 {
			r.Pri++
			o.update(&r)
		}
		if id%5 == 0 && id > 50 {
			o.delete(id)
		}
		o.log.makeDurable()
	}
	eventually(t, "indexes", func() bool { return len(indexFiles(t, fs)) > 4 })
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	return fs, o
}

// reopened is the owner of a log that is opened again with indexes, and closed.
func reopened(t *testing.T, fs *faultfs.FS, policy SyncPolicy) *owner {
	t.Helper()
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Sync: policy, Indexes: true}); err != nil {
		t.Fatal(err)
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestARestartByIndexesTellsWhatOneWithoutTells(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs, was := indexedLog(t, policy)
			fs = fs.Killed()
			o := reopened(t, fs, policy)
			if d := diff(o.snapshot(), was.snapshot()); d != "" {
				t.Fatal(d)
			}
			if o.absent < 20 {
				t.Errorf("%d bodies were not read", o.absent)
			}
			if o.log.room.live != was.log.room.live || o.log.room.tombstones != was.log.room.tombstones {
				t.Error("the books of room differ")
			}
			if is, said := fs.Used(), o.log.room.disk; is != said || o.log.room.indexes == 0 {
				t.Errorf("files of %d bytes are said to have %d, indexes %d", is, said, o.log.room.indexes)
			}
		})
	}
}

// An index of a run without syncs is of no use after the machine has stopped.
func TestAnIndexOfARunWithoutSyncsEndsWithTheMachine(t *testing.T) {
	t.Parallel()
	fs, _ := indexedLog(t, SyncNever)
	if o := reopened(t, copied(t, fs), SyncNever); o.absent == 0 {
		t.Fatal("the indexes do not count while the machine runs")
	}
	fs = copied(t, fs).PowerCut(rand.New(rand.NewPCG(1, 1)))
	if o := reopened(t, fs, SyncNever); o.absent > 0 {
		t.Errorf("%d bodies were not read", o.absent)
	}
}

// withIndexes gives each full segment an index that is right.
func withIndexes(t *testing.T, fs *faultfs.FS) (n int) {
	t.Helper()
	s, err := inspect.Directory(fs, testDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sc record.Scanner
	for _, f := range s.Segments {
		if !f.Sealed {
			continue
		}
		b := index.NewBuilder(&f.Header, 0)
		for rec, gap := range f.Records(fs, s.Seed, &sc) {
			if gap != nil {
				t.Fatal(gap.Err)
			}
			b.Add(sc.Offset()-int64(len(rec)), rec)
		}
		tail, err := index.Tail(bytes.NewReader(content(t, fs, f.Name)), f.Used)
		if err != nil {
			t.Fatal(err)
		}
		setContent(t, fs, filepath.Join(testDir, inspect.IndexName(f.Index)), b.Finish(f.Used, tail))
		n++
	}
	return n
}

// A segment that no record calls durable is read: it may be cut after a power cut, and filled again.
func TestAnIndexCountsOnlyIfALaterRecordCallsItsSegmentDurable(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{false, true} {
		o, fs := newOwner(), faultfs.New(testDir)
		if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Sync: SyncEvery(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for id := uint64(1); id <= 100; id++ {
			o.put(testRecord(id, 200))
		}
		o.log.commit()
		if synced {
			o.log.sync()
			o.put(testRecord(101, 1)) // with its batch comes a mark
			o.log.commit()
		}
		killed := copied(t, fs)
		o.log.Close()
		if n := withIndexes(t, killed); n < 3 {
			t.Fatalf("%d segments are full", n)
		}
		if again := reopened(t, killed, SyncAlways); (again.absent > 0) != synced {
			t.Errorf("synced %v: %d bodies were not read", synced, again.absent)
		}
	}
}

// Whatever is wrong with an index, the segment is read, and the index is gone, or is made anew.
func TestBadIndexesAreReplaced(t *testing.T) {
	t.Parallel()
	made, was := indexedLog(t, SyncAlways)
	want := was.snapshot()
	names := indexFiles(t, made)
	for name, change := range map[string]func(fs *faultfs.FS){
		"exchanged": func(fs *faultfs.FS) {
			a, b := content(t, fs, names[0]), content(t, fs, names[1])
			setContent(t, fs, names[0], b)
			setContent(t, fs, names[1], a)
		},
		"of another directory": func(fs *faultfs.FS) {
			other, _ := indexedLog(t, SyncAlways)
			for _, name := range indexFiles(t, other) {
				setContent(t, fs, name, content(t, other, name))
			}
		},
		"empty": func(fs *faultfs.FS) {
			for _, name := range names {
				setContent(t, fs, name, nil)
			}
		},
		"without a segment": func(fs *faultfs.FS) {
			setContent(t, fs, filepath.Join(testDir, inspect.IndexName(1000)), content(t, fs, names[0]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := copied(t, made)
			change(fs)
			if d := diff(reopened(t, fs, SyncAlways).snapshot(), want); d != "" {
				t.Fatal(d)
			}
			if again := reopened(t, fs, SyncAlways); diff(again.snapshot(), want) != "" || again.absent == 0 {
				t.Errorf("%d bodies were not read when the indexes were made anew", again.absent)
			}
			for _, name := range indexFiles(t, fs) {
				if strings.HasSuffix(name, "1000") {
					t.Errorf("there is still %s", name)
				}
			}
		})
	}
}

// Every byte of an index that is changed or cut leads to the same jobs.
func TestDamageOfAnIndexChangesNothing(t *testing.T) {
	t.Parallel()
	made, was := indexedLog(t, SyncAlways)
	want := was.snapshot()
	name := indexFiles(t, made)[1]
	b := content(t, made, name)
	step := 23
	if proof {
		step = 1
	}
	for n := 0; n < len(b); n += step {
		for _, cut := range []bool{false, true} {
			fs := copied(t, made)
			if cut {
				setContent(t, fs, name, b[:n])
			} else {
				c := append([]byte(nil), b...)
				c[n] ^= 4
				setContent(t, fs, name, c)
			}
			if d := diff(reopened(t, fs, SyncAlways).snapshot(), want); d != "" {
				t.Fatalf("byte %d, cut %v: %s", n, cut, d)
			}
		}
	}
}

// Hazards of a run with indexes: it ends at any call, by a kill or a power cut, and what is recovered is right.
func TestACrashAtAnyCallWithIndexesLosesNothing(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		for _, power := range []bool{false, true} {
			if power && policy == SyncNever {
				continue // may leave it damaged
			}
			t.Run(fmt.Sprint(name, " power ", power), func(t *testing.T) {
				t.Parallel()
				testCrashAtEveryCall(t, Options{Sync: policy, Indexes: true}, power, faultfs.Fault{Off: true})
			})
		}
	}
}

// bulkyLog is a file system with a log of segments of 1 MiB with more jobs than an index has room for in a few blocks.
func bulkyLog(t *testing.T) *faultfs.FS {
	t.Helper()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: 1 << 20, Sync: SyncAlways, Indexes: true}); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= 40_000; id++ {
		o.put(testRecord(id, 10))
		if id%1000 == 0 {
			o.log.makeDurable()
		}
	}
	eventually(t, "indexes", func() bool { return len(indexFiles(t, fs)) > 1 })
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// The memory of blocks is used again, but not before they are written.
func TestAnIndexOfManyBlocksIsWhatItsSegmentSays(t *testing.T) {
	t.Parallel()
	fs := bulkyLog(t)
	var out strings.Builder
	if err := inspect.Verify(&out, fs, testDir); err != nil || !strings.Contains(out.String(), ": index, ") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, name := range indexFiles(t, fs) {
		if n := len(content(t, fs, name)); n < 4*index.BlockSize {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
}

func TestDumpTellsAnUnfinishedIndexFromABadOne(t *testing.T) {
	t.Parallel()
	fs, o := faultfs.New(testDir), newOwner()
	if err := o.openStill(testDir, Options{FS: fs, SegmentSize: 1 << 20, Sync: SyncAlways, Indexes: true}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	for id := uint64(1); id <= 3000; id++ {
		o.put(testRecord(id, 10))
	}
	o.work()
	name := inspect.IndexName(o.jobs[1].place.Segment)
	dump := func() string {
		var out strings.Builder
		if err := inspect.Dump(&out, fs, testDir, false); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := dump(); !strings.Contains(got, name+" 0 unfinished\n") || strings.Contains(got, "BAD") {
		t.Error(got[max(0, len(got)-200):])
	}
	b := content(t, fs, filepath.Join(testDir, name))
	b[20]++
	setContent(t, fs, filepath.Join(testDir, name), b)
	if got := dump(); !strings.Contains(got, name+" 0 BAD") {
		t.Error(got[max(0, len(got)-200):])
	}
}

// countedFS counts by name how many bytes are read from its files.
type countedFS struct {
	*faultfs.FS
	read map[string]int
}

func (c countedFS) OpenRead(name string) (vfs.File, error) {
	f, err := c.FS.OpenRead(name)
	return countedFile{f, c.read, filepath.Base(name)}, err
}

type countedFile struct {
	vfs.File
	read map[string]int
	name string
}

func (c countedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.File.ReadAt(b, off)
	c.read[c.name] += n
	return n, err
}

// Of a segment with an index a restart reads header and end, and of the last one, which has none, what it holds twice:
// to find out where the log ends, and for the jobs.
func TestARestartByIndexesReadsFewBytesOfSegments(t *testing.T) {
	t.Parallel()
	fs := countedFS{bulkyLog(t), map[string]int{}}
	l, err := Open(testDir, Options{FS: fs, SegmentSize: 1 << 20, Sync: SyncAlways, Indexes: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Replay(&counter{}); err != nil {
		t.Fatal(err)
	}
	last := len(l.segs) - 1
	for i, seg := range l.segs {
		most := 10_000
		if i == last {
			most = int(seg.size+seg.used) + 1<<18 // and the first records once more
		}
		if n := fs.read[filepath.Base(seg.name)]; n > most {
			t.Errorf("%d bytes of %s are read, which has %d", n, seg.name, seg.used)
		}
	}
	if last < 2 {
		t.Errorf("%d segments", last+1)
	}
	l.Close()
}

func TestVerifyAndDumpReadIndexes(t *testing.T) {
	t.Parallel()
	fs, _ := indexedLog(t, SyncAlways)
	var out strings.Builder
	if err := inspect.Verify(&out, fs, testDir); err != nil || !strings.Contains(out.String(), ": index, ") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := inspect.Dump(&out, fs, testDir, true); err != nil || !strings.Contains(out.String(), "\nindex.") ||
		strings.Contains(out.String(), "BAD") {
		t.Fatalf("%v\n%s", err, out.String())
	}

	// One that is sound, and says of the segment what is not so.
	s, err := inspect.Directory(fs, testDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Segments {
		name := filepath.Join(testDir, inspect.IndexName(f.Index))
		if !slices.Contains(s.Indexes, name) {
			continue
		}
		b := index.NewBuilder(&f.Header, 0)
		setContent(t, fs, name, b.Finish(f.Used, 0))
		break
	}
	out.Reset()
	if err := inspect.Verify(&out, fs, testDir); err == nil || !strings.Contains(out.String(), "WRONG") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
