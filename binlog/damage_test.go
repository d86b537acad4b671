package binlog

import (
	"bytes"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// aLog is a log of several segments with records of all kinds that has ended in
// good order, and the jobs in it. For the same options it has the same records.
func aLog(t testing.TB, opts Options) (files, map[uint64]Record) {
	h := newHistory(t, 3, opts)
	h.still = true
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	for range 400 {
		h.step()
		h.await()
	}
	jobs := h.snapshot()
	if err := h.log.Close(); err != nil {
		t.Fatal(err)
	}
	m := readFiles(t, h.fs, testDir)
	names := m.segments()
	if len(names) < 3 {
		t.Fatalf("only %d segments", len(names))
	}
	for _, name := range names[:len(names)-1] {
		m[name] = m[name][:m.end(t, name)] // the last may have been closed before it was trimmed
	}
	return m, jobs
}

func openFiles(t testing.TB, m files, opts Options) (*owner, *faultfs.FS, error) {
	o := newOwner()
	fs := m.fs(t)
	opts.FS = fs
	if opts.SegmentSize == 0 {
		opts.SegmentSize = MinSegmentSize
	}
	return o, fs, o.open(testDir, opts)
}

// opensWith checks that a log of these files can be opened and has these jobs.
func opensWith(t *testing.T, m files, want map[uint64]Record) {
	t.Helper()
	o, _, err := openFiles(t, m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if d := diff(o.snapshot(), want); d != "" {
		t.Error(d)
	}
}

// within reports whether all jobs of got are in want, unchanged or in an earlier
// state, which may be that before they went to another tube, or before they were deleted and
// left a tombstone.
func within(t testing.TB, got, want map[uint64]Record) {
	t.Helper()
	for id, g := range got {
		if w, ok := want[id]; ok && (w.State != journal.Deleted || g.State == w.State) && (g.Created != w.Created || string(g.Body) != string(w.Body)) {
			t.Errorf("job %d is %+v, was %+v", id, plain(g), plain(w))
		}
	}
}

func TestABitThatFlipsAnywhereIsNoticed(t *testing.T) {
	t.Parallel()
	m, jobs := aLog(t, Options{})
	step := 1511
	if proof {
		step = 53
	}
	names := m.segments()
	for _, name := range names {
		for at := 0; at < m.end(t, name); at += step {
			bad := m.clone()
			bad[name][at] ^= 1 << (at % 8)
			before := bad.clone()

			o, fs, err := openFiles(t, bad, Options{})
			var damage *DamageError
			switch {
			case err == nil:
				// Only the stop record can go without anybody knowing of it.
				if c := o.log.Recovery().Cut; c == nil || c.Sound > 0 || diff(o.snapshot(), jobs) != "" {
					t.Fatalf("%s, byte %d: not noticed, cut %+v", name, at, c)
				}
				o.log.Close()
				continue
			case !errors.As(err, &damage):
				t.Fatalf("%s, byte %d: %v", name, at, err)
			case filepath.Base(damage.File) != name || damage.Offset > int64(at) || damage.Offset < int64(at)-3*MinSegmentSize:
				t.Fatalf("%s, byte %d: %v", name, at, damage)
			}
			for name, b := range readFiles(t, fs, testDir) {
				if string(b) != string(before[name]) {
					t.Fatalf("%s was changed, although Open has refused", name)
				}
			}

			o, fs, err = openFiles(t, bad, Options{SkipDamaged: true})
			if err != nil {
				t.Fatalf("%s, byte %d: salvage: %v", name, at, err)
			}
			s := o.log.Recovery().Salvaged
			if s == nil || s.Skipped == 0 && at >= record.HeaderSize || len(o.snapshot()) < len(jobs)-1 {
				t.Fatalf("%s, byte %d: %d of %d jobs salvaged, %+v", name, at, len(o.snapshot()), len(jobs), s)
			}
			within(t, o.snapshot(), jobs)
			if got := readFiles(t, fs, s.Aside); string(got[name]) != string(before[name]) {
				t.Fatalf("%s was not kept", name)
			}
			if err := o.log.Close(); err != nil {
				t.Fatal(err)
			}
			// Now the log is a sound one.
			again := newOwner()
			if err := again.open(testDir, Options{FS: fs.Killed()}); err != nil {
				t.Fatalf("%s, byte %d: after salvage: %v", name, at, err)
			}
			if d := diff(again.snapshot(), o.snapshot()); d != "" {
				t.Fatal(d)
			}
			again.log.Close()
		}
	}
}

func TestFilesThatAreMissingOrCutAreNoticed(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	names := m.segments()
	first, middle, last := names[0], names[len(names)/2], names[len(names)-1]
	for what, change := range map[string]func(files) string{
		"the oldest is missing":   func(m files) string { delete(m, first); return first },
		"one is missing":          func(m files) string { delete(m, middle); return middle },
		"one is cut":              func(m files) string { m[middle] = m[middle][:len(m[middle])/2]; return middle },
		"one is empty":            func(m files) string { m[middle] = nil; return middle },
		"one is zero":             func(m files) string { clear(m[middle]); return middle },
		"a place is zero":         func(m files) string { clear(m[middle][record.HeaderSize : record.HeaderSize+64]); return middle },
		"one has another's place": func(m files) string { m[middle] = m[last]; return middle },
	} {
		t.Run(what, func(t *testing.T) {
			bad := m.clone()
			name := change(bad)
			_, _, err := openFiles(t, bad, Options{})
			var damage *DamageError
			if !errors.As(err, &damage) || filepath.Base(damage.File) != name {
				t.Fatalf("open: %v", err)
			}
			o, _, err := openFiles(t, bad, Options{SkipDamaged: true})
			if err != nil {
				t.Fatal(err)
			}
			o.log.Close()
		})
	}
}

// The deletes of one log are not those of another one's jobs.
func TestTwoLogsOfOursInOneDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	own, other := newClient(t, Options{SegmentSize: MinSegmentSize}), newClient(t, Options{SegmentSize: MinSegmentSize})
	for range 60 {
		own.newJob(100)
	}
	for range 120 {
		other.newJob(100)
	}
	for id := range uint64(60) {
		other.end(id + 1)
	}
	want := own.snapshot()
	if err := errors.Join(own.log.Close(), other.log.Close()); err != nil {
		t.Fatal(err)
	}
	m := readFiles(t, own.fs.Killed(), testDir)
	names := m.segments()
	last := names[len(names)-1]
	bad := m.clone()
	for name, b := range readFiles(t, other.fs.Killed(), testDir) {
		if record.FileIndex(name) > record.FileIndex(last) {
			bad[name] = b
		}
	}
	names = bad.segments()
	first := names[slices.Index(names, last)+1]
	for _, skip := range []bool{false, true} {
		o, fs, err := openFiles(t, bad, Options{SkipDamaged: skip})
		if err == nil {
			t.Fatalf("%d jobs came out of two logs, the first of which had %d", len(o.jobs), len(want))
		}
		if text := err.Error(); !strings.Contains(text, last) || !strings.Contains(text, first) || !strings.Contains(text, "move away") {
			t.Errorf("open: %v", err)
		}
		unchanged(t, fs, bad)
	}
	var out strings.Builder
	if err := inspect.Verify(&out, bad.fs(t), testDir); err == nil || !strings.Contains(err.Error(), "move away") || out.Len() > 0 {
		t.Errorf("verify: %v\n%s", err, out.String())
	}
	opensWith(t, m, want)
}

// unchanged reports whether Open, which has refused them, has left the files as they were.
func unchanged(t *testing.T, fs vfs.FS, want files) {
	t.Helper()
	got := readFiles(t, fs, testDir)
	delete(got, "lock")
	for name, b := range want {
		if name != "lock" && string(got[name]) != string(b) {
			t.Errorf("%s was changed or removed, although Open has refused", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s was made, although Open has refused", name)
	}
}

// Nothing has vouched for the newest segment yet: its only batch was acknowledged a moment
// before the server was killed.
func TestAHeaderThatTheSystemCannotReadIsDamage(t *testing.T) {
	t.Parallel()
	for level, policy := range levels {
		t.Run(level, func(t *testing.T) {
			c := newClient(t, Options{Sync: policy, SegmentSize: MinSegmentSize})
			for c.log.Stats().CurrentSegment < 3 {
				c.nextID++
				pos, err := c.put(testRecord(c.nextID, 100))
				if err != nil {
					t.Fatal(err)
				}
				c.log.Flush()
				for c.log.Committed() < pos {
					<-c.committed
				}
			}
			want := c.snapshot()
			m := readFiles(t, c.fs.Killed(), testDir)
			newest := record.FileName(3)
			for _, once := range []bool{true, false} {
				fs := m.fs(t)
				failed := false
				fs.Hook(func(call faultfs.Call) faultfs.Fault {
					if call.Op != "read" || filepath.Base(call.Name) != newest || once && failed {
						return faultfs.Fault{}
					}
					failed = true
					return faultfs.Fault{Err: syscall.EIO}
				})
				o := newOwner()
				err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize})
				fs.Hook(nil)
				var damage *DamageError
				if !errors.As(err, &damage) || !errors.Is(err, syscall.EIO) || filepath.Base(damage.File) != newest {
					t.Errorf("open: %v", err)
				}
				unchanged(t, fs, m)
				if err == nil {
					o.log.Close()
				}
			}
			opensWith(t, m, want)
		})
	}
}

// replaceStop replaces the stop record, which is the log's last one, by one of
// another kind.
func (m files) replaceStop(t *testing.T, k record.Kind, value uint64) {
	t.Helper()
	names := m.segments()
	name := names[len(names)-1]
	var h record.Header
	if what := h.Decode(m[name]); what != nil {
		t.Fatal(what)
	}
	end := m.end(t, name)
	record.EncodeSmall(m[name][end-record.SmallSize:end], h.Salt(), k, value)
}

// changeHeader gives a segment a sound header that says something else.
func (m files) changeHeader(t *testing.T, name string, change func(*record.Header)) {
	t.Helper()
	var h record.Header
	if err := h.Decode(m[name]); err != nil {
		t.Fatal(err)
	}
	change(&h)
	h.Encode(m[name])
}

// A segment can only say of older ones that they are not needed. What says more is
// not believed, for the files would be removed.
func TestASegmentThatDisownsLaterOnesIsDamage(t *testing.T) {
	t.Parallel()
	for level, policy := range levels {
		m, _ := aLog(t, Options{Sync: policy})
		names := m.segments()
		last := names[len(names)-1]
		index := uint64(record.FileIndex(last))
		for what, change := range map[string]func(*testing.T, files){
			"a drop of itself":              func(t *testing.T, m files) { m.replaceStop(t, record.Drop, index+1) },
			"a drop of an index of 33 bits": func(t *testing.T, m files) { m.replaceStop(t, record.Drop, 1<<32+index) },
			"a drop before a torn end": func(t *testing.T, m files) {
				end := m.end(t, last)
				m.replaceStop(t, record.Drop, index+1)
				m[last][end] = 1 // there is always room for an end record
			},
			"a header": func(t *testing.T, m files) {
				m.changeHeader(t, last, func(h *record.Header) { h.Oldest = uint32(index) + 1 })
			},
		} {
			t.Run(level+", "+what, func(t *testing.T) {
				bad := m.clone()
				change(t, bad)
				_, fs, err := openFiles(t, bad.clone(), Options{})
				var damage *DamageError
				if !errors.As(err, &damage) || filepath.Base(damage.File) != last {
					t.Fatalf("open: %v", err)
				}
				unchanged(t, fs, bad)
				o, _, err := openFiles(t, bad, Options{SkipDamaged: true})
				if err != nil {
					t.Fatal(err)
				}
				o.log.Close()
			})
		}
	}
}

// A power cut may take the names of files that were not synced, and leave those of
// later ones.
func TestAFileThatIsMissingFromWhatWasNotSyncedIsATornEnd(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Sync: SyncEvery(time.Hour), SegmentSize: MinSegmentSize})
	for range 300 {
		c.newJob(100)
	}
	c.log.Flush()
	eventually(t, "the commit", func() bool { return c.log.Stats().PendingBytes == 0 })
	want := c.snapshot()
	m := readFiles(t, c.fs.Killed(), testDir)
	names := m.segments()
	for what, change := range map[string]func(files){
		"a file is missing":               func(files) {},
		"the one behind it is torn":       func(m files) { m[names[4]][record.HeaderSize-1] ^= 1 },
		"the one behind it is missing":    func(m files) { delete(m, names[4]) },
		"the one before it has lost some": func(m files) { clear(m[names[2]][2000:]) },
		"a drop was not synced either": func(m files) {
			m.changeHeader(t, names[4], func(h *record.Header) { h.Oldest = record.FileIndex(names[3]) })
		},
	} {
		bad := m.clone()
		delete(bad, names[3])
		change(bad)
		o, fs, err := openFiles(t, bad, Options{})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if cut := o.log.Recovery().Cut; cut == nil || len(o.jobs) < 40 || len(o.jobs) > 100 {
			t.Errorf("%s: %d jobs, cut %+v", what, len(o.jobs), cut)
		}
		for id := range uint64(len(o.jobs)) {
			if o.jobs[id+1] == nil {
				t.Errorf("%s: job %d is lost before the last one", what, id+1)
			}
		}
		within(t, o.snapshot(), want)
		if err := o.log.Close(); err != nil {
			t.Fatal(err)
		}
		again := newOwner()
		if err := again.open(testDir, Options{FS: fs.Killed()}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := diff(again.snapshot(), o.snapshot()); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		again.log.Close()
	}
}

// What compaction has dropped stays so, also if its file could not be removed.
func TestASalvageBringsNoDroppedJobsBack(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: MinSegmentSize})
	for range 100 {
		c.newJob(100)
	}
	c.log.Flush()
	eventually(t, "the commit", func() bool { return c.log.Stats().PendingBytes == 0 && c.log.Stats().UnsyncedBytes == 0 })
	first := record.FileName(1)
	stale := readFiles(t, c.fs, testDir)[first]
	for id := range uint64(100) {
		c.end(id + 1)
	}
	for range 300 {
		c.end(c.newJob(100))
	}
	c.newJob(100)
	eventually(t, "compaction", func() bool { return c.log.Stats().OldestSegment > 4 })
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	m := readFiles(t, c.fs.Killed(), testDir)
	m[first] = stale
	names := m.segments()
	m[names[1]][record.HeaderSize] ^= 1 // the oldest that is needed has a record that later ones vouch for
	o, fs, err := openFiles(t, m, Options{SkipDamaged: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	for id := range o.snapshot() {
		if id <= 100 {
			t.Errorf("job %d is back", id)
		}
	}
	if kept := readFiles(t, fs, o.log.Recovery().Salvaged.Aside); string(kept[first]) != string(stale) {
		t.Error("the stale file was not kept")
	}
}

func TestWithoutSyncsOnlyTheLastSegmentCanBeTorn(t *testing.T) {
	t.Parallel()
	m, jobs := aLog(t, Options{Sync: SyncNever})
	names := m.segments()
	bad := m.clone()
	bad[names[1]][len(bad[names[1]])/2] ^= 1
	if _, _, err := openFiles(t, bad, Options{}); !errors.As(err, new(*DamageError)) {
		t.Errorf("damage in an older segment: %v", err)
	}
	bad = m.clone()
	last := bad[names[len(names)-1]]
	last[len(bytes.TrimRight(last, "\x00"))-1] ^= 1
	o, _, err := openFiles(t, bad, Options{})
	if err != nil || o.log.Recovery().Cut == nil {
		t.Fatalf("damage in the last segment: %v", err)
	}
	within(t, o.snapshot(), jobs)
	o.log.Close()
}

func TestTheErrorOfADamagedLogTellsWhatToLookAt(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	name := m.segments()[1]
	m[name][len(m[name])/2] ^= 4
	_, _, err := openFiles(t, m, Options{})
	if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "offset ") || !strings.Contains(err.Error(), "sound records follow") {
		t.Errorf("open: %v", err)
	}
}

func TestAnUnknownVersionIsNotSalvaged(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	for _, name := range m.segments() {
		le.PutUint32(m[name][8:], 2)
		le.PutUint32(m[name][76:], crc32.Checksum(m[name][:76], crc32.MakeTable(crc32.Castagnoli)))
	}
	if _, _, err := openFiles(t, m, Options{SkipDamaged: true}); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("open: %v", err)
	}
}

func TestADirectoryOfAClusterIsRefusedAndNotWrittenTo(t *testing.T) {
	t.Parallel()
	for mark, advice := range map[string]string{"cluster": "--cluster", "meta": "copy its segments"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, mark), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, Options{})
		if !errors.Is(err, ErrCluster) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", mark, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("%s: there are %v, %v", mark, list, err)
		}
	}
}

func TestALockedDirectoryIsRefusedWithItsHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := newOwner()
	if err := o.open(dir, Options{Sync: SyncEvery(time.Second)}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process") {
		t.Errorf("second open: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "nowhere"), Options{}); err == nil {
		t.Error("a directory that does not exist was opened")
	}
}

func TestReplayNoticesWhatHasChangedSinceTheSurvey(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	name := m.segments()[1]
	for what, harm := range map[string]func(b []byte){
		"one byte":          func(b []byte) { b[len(b)/2] ^= 1 },
		"zeros to the end":  func(b []byte) { clear(b[len(b)/2:]) },
		"zeros and nothing": func(b []byte) { clear(b[record.HeaderSize:]) },
	} {
		fs := m.fs(t)
		l, err := Open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize})
		if err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(m[name])
		harm(bad)
		f, err := fs.Open(filepath.Join(testDir, name))
		if err == nil {
			_, err = f.WriteAt(bad, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if err := l.Replay(newOwner()); !errors.As(err, &damage) || filepath.Base(damage.File) != name {
			t.Errorf("%s: %v", what, err)
		}
		l.Close()
	}
}
