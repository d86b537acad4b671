package entrylog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// image is the files of a log.
type image map[string][]byte

func imageOf(t testing.TB, fs vfs.FS) image {
	t.Helper()
	m := image{}
	list, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		f, err := fs.OpenRead(filepath.Join(testDir, e.Name))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, e.Size)
		if n, err := f.ReadAt(b, 0); n < len(b) {
			t.Fatal(err)
		}
		m[e.Name] = b
	}
	return m
}

func (m image) clone() image {
	c := image{}
	for name, b := range m {
		c[name] = bytes.Clone(b)
	}
	return c
}

func (m image) segments() []string {
	var names []string
	for name := range m {
		if fileIndex(name) != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m image) fs(t testing.TB) *faultfs.FS {
	t.Helper()
	fs := faultfs.New(testDir)
	for name, b := range m {
		f, err := fs.Create(filepath.Join(testDir, name), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.SyncDir(fs, testDir); err != nil {
		t.Fatal(err)
	}
	return fs
}

func (m image) open(t testing.TB, snapshot EntryID) (*Log, *faultfs.FS, error) {
	fs := m.fs(t)
	l, err := Open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Snapshot: metadata(snapshot)})
	return l, fs, err
}

func metadata(id EntryID) *raftpb.SnapshotMetadata {
	return &raftpb.SnapshotMetadata{Index: &id.Index, Term: &id.Term}
}

// wantDamage opens the files and wants damage in a file at an offset between two, and
// the files as they were.
func (m image) wantDamage(t *testing.T, snapshot EntryID, file string, from, to int64, what string) {
	t.Helper()
	l, fs, err := m.open(t, snapshot)
	if err == nil {
		l.Close()
		t.Fatal("damage was not noticed")
	}
	var d *DamageError
	if !errors.As(err, &d) || file != "" && filepath.Base(d.File) != file || d.Offset < from || d.Offset > to || !strings.Contains(err.Error(), what) {
		t.Fatalf("got %v, want damage of %s at %d to %d: %s", err, file, from, to, what)
	}
	for name, b := range imageOf(t, fs) {
		if name != "lock" && !bytes.Equal(b, m[name]) {
			t.Fatalf("%s was changed", name)
		}
	}
}

// aLog is a log of several segments that was closed, and what it says.
func aLog(t testing.TB) (image, *node) {
	n := newNode(5, Options{})
	if err := n.start(true); err != nil {
		t.Fatal(err)
	}
	us := []Update{
		{entries(1, 20, 1, 100), hard(1, 2, 3)},
		{entries(21, 60, 1, 300), hard(1, 2, 30)},
		{entries(40, 50, 2, 200), hard(3, 0, 36)},
		{nil, hard(3, 1, 45)},
		{entries(51, 70, 3, 150), nil},
	}
	for _, u := range us {
		for len(u.Entries) > 7 {
			var h *raftpb.HardState
			if u.HardState != nil {
				h = hard(u.HardState.GetTerm(), u.HardState.GetVote(), 0)
			}
			if err := n.append(Update{u.Entries[:7], h}); err != nil {
				t.Fatal(err)
			}
			u.Entries = u.Entries[7:]
		}
		if err := n.append(u); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.trim(EntryID{5, 1}); err != nil {
		t.Fatal(err)
	}
	if err := n.append(Update{entries(71, 72, 3, 0), nil}); err != nil {
		t.Fatal(err)
	}
	if err := n.log.Close(); err != nil {
		t.Fatal(err)
	}
	n.log = nil
	n.fs = n.fs.Killed()
	m := imageOf(t, n.fs)
	for _, name := range m.segments() {
		if b := m[name]; zero(b) {
			delete(m, name) // the keeper may or may not have made it
		}
	}
	if len(m.segments()) < 3 {
		t.Fatalf("only %d segments", len(m.segments()))
	}
	return m, n
}

// frames are the offsets of the frames in a segment, and the end of the last one.
func (m image) frames(t testing.TB, name string) (offs []int64) {
	t.Helper()
	var h header
	if wrong := h.decode(m[name]); wrong != "" {
		t.Fatal(wrong)
	}
	off := int64(headerSize)
	var f frame
	for f.decode(m[name][min(off, int64(len(m[name]))):], newSalt(h.seed)) {
		offs = append(offs, off)
		off += int64(f.size)
	}
	return append(offs, off)
}

func TestABitThatFlipsAnywhereIsNoticed(t *testing.T) {
	m, n := aLog(t)
	step := int64(307)
	if proof {
		step = 13
	}
	names := m.segments()
	for _, name := range names {
		offs := m.frames(t, name)
		end := offs[len(offs)-1]
		if name == names[len(names)-1] {
			end = offs[len(offs)-2] // the mark proves what is before it, and nothing proves the mark
		}
		for at := int64(0); at < end; at += step {
			bad := m.clone()
			bad[name][at] ^= 1 << (at % 8)
			start := int64(0)
			for _, off := range offs {
				if off <= at {
					start = off
				}
			}
			bad.wantDamage(t, n.snapshot, name, start, start, "")
		}
		if name == names[len(names)-1] {
			for at := end; at < offs[len(offs)-1]; at++ {
				bad := m.clone()
				bad[name][at] ^= 1 << (at % 8)
				l, _, err := bad.open(t, n.snapshot)
				if err != nil || l.Recovery().Cut == nil {
					t.Fatalf("a mark with a wrong byte at %d: %v", at, err)
				}
				if err := errors.Join(n.done.diff(l), l.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestFilesThatAreMissingOrCutOrElsewhereAreNoticed(t *testing.T) {
	m, n := aLog(t)
	other, _ := aLog(t)
	names := m.segments()
	first, middle, last := names[0], names[1], names[len(names)-1]
	for what, change := range map[string]func(image) string{
		"the first is missing":    func(m image) string { delete(m, first); return "" },
		"one is missing":          func(m image) string { delete(m, middle); return middle },
		"one is cut":              func(m image) string { m[middle] = m[middle][:len(m[middle])/2]; return "" },
		"one is empty":            func(m image) string { m[middle] = nil; return middle },
		"one is zero":             func(m image) string { clear(m[middle]); return middle },
		"a place is zero":         func(m image) string { clear(m[middle][headerSize : headerSize+64]); return middle },
		"the last lost its head":  func(m image) string { clear(m[last][:headerSize]); return last },
		"one has another's place": func(m image) string { m[middle] = m[last]; return middle },
		"one is of another log":   func(m image) string { m[middle] = other[middle]; return middle },
		"one is twice":            func(m image) string { m[fileName(fileIndex(last)+1)] = m[last]; return fileName(fileIndex(last) + 1) },
	} {
		t.Run(what, func(t *testing.T) {
			bad := m.clone()
			bad.wantDamage(t, n.snapshot, change(bad), 0, 1<<30, "")
		})
	}
}

// Cut at every byte: the last write is taken in whole or not at all, and with anything
// behind it nothing may be missing.
func TestALogThatIsCutAtEveryByteHoldsWholeWritesOnly(t *testing.T) {
	type op struct {
		name string
		do   func(n *node) error
	}
	for _, o := range []op{
		{"entries", func(n *node) error { return n.append(Update{entries(11, 13, 2, 77), nil}) }},
		{"entries and hard state", func(n *node) error { return n.append(Update{entries(11, 12, 2, 30), hard(3, 1, 11)}) }},
		{"hard state", func(n *node) error { return n.append(Update{nil, hard(5, 2, 8)}) }},
		{"several updates", func(n *node) error {
			return n.append(Update{entries(9, 12, 2, 10), nil}, Update{entries(10, 10, 3, 5), hard(3, 0, 10)})
		}},
		{"a conflicting suffix", func(n *node) error { return n.append(Update{entries(6, 7, 2, 40), nil}) }},
		{"trim", func(n *node) error { return n.trim(EntryID{3, 1}) }},
		{"install", func(n *node) error { return n.install(EntryID{40, 4}) }},
		{"mark", func(n *node) error { return n.do(n.log.Mark, func(*model) {}) }},
	} {
		t.Run(o.name, func(t *testing.T) {
			n := newNode(1, Options{})
			if err := n.start(true); err != nil {
				t.Fatal(err)
			}
			defer func() { n.crash(false) }()
			if err := n.append(Update{entries(1, 8, 1, 50), hard(2, 1, 5)}, Update{entries(9, 10, 2, 50), nil}); err != nil {
				t.Fatal(err)
			}
			before, was, pointer := imageOf(t, n.fs), n.done.clone(), n.snapshot
			if err := o.do(n); err != nil {
				t.Fatal(err)
			}
			after := imageOf(t, n.fs)
			name := fileName(1)
			offs := after.frames(t, name)
			from, to := offs[len(offs)-2], offs[len(offs)-1]
			next := func(at int64) int64 {
				if proof || at == to {
					return at + 1
				}
				return min(at+17, to)
			}
			for at := from; at <= to; at = next(at) {
				cut := before.clone()
				copy(cut[name], after[name][:at])
				want := was.clone()
				written := bytes.Equal(cut[name], after[name])
				if written {
					want = n.done
				}
				// The pointer is durable before the write.
				for _, p := range []EntryID{pointer, n.snapshot} {
					if written && p != n.snapshot {
						continue
					}
					w := want.clone()
					w.begin(p, false)
					l, fs, err := cut.open(t, p)
					if err != nil {
						t.Fatalf("cut at %d: %v", at-from, err)
					}
					if err := errors.Join(w.diff(l), l.Close()); err != nil {
						t.Fatalf("cut at %d: %v", at-from, err)
					}
					l, err = Open(testDir, Options{FS: fs.Killed(), Snapshot: metadata(p)})
					if err != nil {
						t.Fatalf("cut at %d, second start: %v", at-from, err)
					}
					if err := errors.Join(w.diff(l), l.Close()); err != nil {
						t.Fatalf("cut at %d, second start: %v", at-from, err)
					}
				}
			}
			// The same with a later write behind the gap.
			if err := n.append(Update{entries(n.done.last().Index+1, n.done.last().Index+1, n.done.hard.term, 9), nil}); err != nil {
				t.Fatal(err)
			}
			after = imageOf(t, n.fs)
			for at := from; at < to; at = next(at) {
				cut := after.clone()
				clear(cut[name][at:to])
				if bytes.Equal(cut[name], after[name]) {
					continue
				}
				cut.wantDamage(t, n.snapshot, name, from, from, "sound records follow")
			}
		})
	}
}

// forge gives a log a further frame with right checksums, and tells where.
func (m image) forge(t *testing.T, chained bool, items func(b []byte, salt uint32, content *uint32) []byte, count uint32) (file string, off int64) {
	t.Helper()
	names := m.segments()
	name := names[len(names)-1]
	var h header
	h.decode(m[name])
	salt := newSalt(h.seed)
	offs := m.frames(t, name)
	end := offs[len(offs)-1]
	var prev frame
	prev.decode(m[name][offs[len(offs)-2]:], salt)
	content := salt
	b := items(make([]byte, frameSize), salt, &content)
	f := frame{chain: prev.sum, pos: h.pos + uint64(end), size: uint32(len(b)), items: count, content: content}
	if !chained {
		f.chain++
	}
	f.encode(b, salt)
	m[name] = append(m[name][:end:end], b...)
	return name, end
}

func TestWhatNoCrashHasMadeIsDamage(t *testing.T) {
	m, n := aLog(t)
	last, h := n.done.last(), n.done.hard
	one := func(e *raftpb.Entry) func([]byte, uint32, *uint32) []byte {
		return func(b []byte, salt uint32, content *uint32) []byte { return appendEntry(b, salt, content, e) }
	}
	item := func(kind byte, x, y, z uint64) func([]byte, uint32, *uint32) []byte {
		return func(b []byte, salt uint32, content *uint32) []byte {
			return appendItem(b, salt, content, kind, x, y, z)
		}
	}
	for _, c := range []struct {
		what  string
		items func([]byte, uint32, *uint32) []byte
	}{
		{"is committed, as all up to", one(entry(h.commit, 3, 10))},
		{"behind", one(entry(last.Index+2, 3, 10))},
		{"follows an entry of term", one(entry(last.Index+1, 2, 10))},
		{"but there is an entry of term", one(entry(last.Index+1, 4, 10))},
		{"the term falls", item(itemHard, h.term-1, 0, h.commit)},
		{"two votes in term", item(itemHard, h.term, h.vote+1, h.commit)},
		{"the commit index falls", item(itemHard, h.term, h.vote, h.commit-1)},
		{"are committed, but the last is", item(itemHard, h.term, h.vote, last.Index+1)},
		{"which it lacks", item(itemTrim, 50, 1, 0)},
		{"which it lacks", item(itemTrim, last.Index+1, 3, 0)},
		{"the log is emptied", item(itemReset, h.commit, 3, 0)},
		{"impossible fields", item(9, 1, 1, 1)},
		{"impossible fields", item(itemReset, 100, 3, 1)},
	} {
		bad := m.clone()
		file, off := bad.forge(t, true, c.items, 1)
		bad.wantDamage(t, n.snapshot, file, off, off, c.what)
	}
	bad := m.clone()
	file, off := bad.forge(t, false, one(entry(last.Index+1, 3, 10)), 1)
	bad.wantDamage(t, n.snapshot, file, off, off, "does not continue the one before")
	bad = m.clone()
	file, off = bad.forge(t, true, one(entry(last.Index+1, 3, 10)), 1)
	bad[file] = bad[file][:len(bad[file])-8]
	bad.wantDamage(t, n.snapshot, file, off, off, "impossible fields")

	good := m.clone()
	good.forge(t, true, one(entry(last.Index+1, 3, 10)), 1)
	l, _, err := good.open(t, n.snapshot)
	if err != nil {
		t.Fatalf("a frame that continues the log was refused: %v", err)
	}
	l.Close()
}

func TestASnapshotThatContradictsTheLogIsDamage(t *testing.T) {
	m, n := aLog(t)
	m.wantDamage(t, EntryID{}, m.segments()[0], 0, 0, "the log begins behind entry 5 of term 1")
	m.wantDamage(t, EntryID{4, 1}, m.segments()[0], 0, 0, "the log begins behind entry 5 of term 1")
	m.wantDamage(t, EntryID{5, 2}, m.segments()[0], 0, 0, "another entry is committed in its place")
	m.wantDamage(t, EntryID{45, 1}, m.segments()[0], 0, 0, "another entry is committed in its place")
	for _, id := range []EntryID{{5, 1}, {20, 1}, {45, 2}, {60, 3}, {60, 4}, {72, 3}, {72, 9}, {73, 3}, {1000, 12}} {
		want := n.done.clone()
		want.begin(id, false)
		l, fs, err := m.open(t, id)
		if err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		if emptied := l.Recovery().Emptied; emptied != (want.base == id && id.Index != 5) {
			t.Errorf("%v: emptied %v", id, emptied)
		}
		if err := errors.Join(want.diff(l), l.Close()); err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		l, err = Open(testDir, Options{FS: fs.Killed(), Snapshot: metadata(id)})
		if err != nil {
			t.Fatalf("%v, second start: %v", id, err)
		}
		if err := errors.Join(want.diff(l), l.Close()); err != nil {
			t.Fatalf("%v, second start: %v", id, err)
		}
	}
}

// An overwritten suffix and a power cut must not leave a sound old entry behind a new
// one.
func TestAnOldEntryIsNeverTakenBehindANewOne(t *testing.T) {
	var fresh, kept int
	seeds := uint64(30)
	if proof {
		seeds = 300
	}
	for seed := range seeds {
		n := newNode(seed, Options{SegmentSize: 16 << 10})
		if err := n.start(true); err != nil {
			t.Fatal(err)
		}
		// One entry a write, all of one length, so that places would fit exactly.
		for i := uint64(1); i <= 12; i++ {
			if err := n.append(Update{entries(i, i, 1, 400), hard(1, 1, min(i, 4))}); err != nil {
				t.Fatal(err)
			}
		}
		n.fs.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.Op == "sync"} })
		if err := n.append(Update{entries(6, 6, 2, 400), hard(2, 1, 4)}); !errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
		n.crash(true)
		if err := n.start(false); err != nil {
			t.Fatal(err)
		}
		switch last, _ := n.log.LastIndex(); last {
		case 6:
			fresh++
		case 12:
			kept++
		default:
			t.Fatalf("the last entry is %d", last)
		}
		n.crash(false)
	}
	if fresh == 0 || kept == 0 {
		t.Errorf("%d times the new suffix, %d times the old one: want both", fresh, kept)
	}
}

// A frame of the same log, at its old place, behind one that was written later.
func TestAnOldFrameBehindANewOneIsNotTaken(t *testing.T) {
	n := newNode(3, Options{SegmentSize: 16 << 10})
	if err := n.start(true); err != nil {
		t.Fatal(err)
	}
	if err := n.append(Update{entries(1, 3, 1, 100), hard(1, 1, 1)}); err != nil {
		t.Fatal(err)
	}
	early := imageOf(t, n.fs)
	if err := errors.Join(n.append(Update{entries(4, 4, 1, 100), nil}), n.append(Update{entries(5, 5, 1, 100), nil})); err != nil {
		t.Fatal(err)
	}
	late := imageOf(t, n.fs)
	n.crash(false)
	// The disk went back to the early state, as if it had lied about two syncs.
	n.fs, n.done = early.fs(t), model{entries: entries(1, 3, 1, 100), hard: hardState{1, 1, 1}}
	if err := n.start(false); err != nil {
		t.Fatal(err)
	}
	name := fileName(1)
	mark := len(early.frames(t, name))
	if err := n.append(Update{entries(4, 4, 1, 100-frameSize), nil}); err != nil {
		t.Fatal(err)
	}
	mixed := imageOf(t, n.fs)
	end := mixed.frames(t, name)
	offs := late.frames(t, name)
	copy(mixed[name][end[len(end)-1]:], late[name][offs[mark]:])
	if end[len(end)-1] != offs[mark] {
		t.Fatalf("the frames do not lie behind each other: %v, %v", end, offs)
	}
	mixed.wantDamage(t, EntryID{}, name, offs[mark], offs[mark], "does not continue the one before")
	n.crash(false)
}

// A failed sync followed by a restart reads pages that are not on disk. What Open
// accepts is on disk nevertheless when it returns.
func TestWhatAFailedSyncHasLostIsWrittenAgainAtTheStart(t *testing.T) {
	for seed := range uint64(20) {
		n := newNode(seed, Options{})
		if err := n.start(true); err != nil {
			t.Fatal(err)
		}
		if err := n.append(Update{entries(1, 3, 1, 700), hard(1, 1, 1)}); err != nil {
			t.Fatal(err)
		}
		n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "sync" {
				return faultfs.Fault{Err: errBoom}
			}
			return faultfs.Fault{}
		})
		if err := n.append(Update{entries(4, 5, 1, 700), hard(1, 1, 3)}); !errors.Is(err, ErrFailed) || !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		n.fs.Hook(nil)
		if err := n.log.Append(Update{entries(4, 5, 1, 700), nil}); !errors.Is(err, ErrFailed) {
			t.Fatalf("an append after a failed sync: %v", err)
		}
		n.crash(false) // the process only
		if err := n.start(false); err != nil {
			t.Fatal(err)
		}
		if n.done.last().Index != 5 {
			t.Fatalf("the test needs that the write is read again: last is %v", n.done.last())
		}
		n.crash(true)
		if err := n.start(false); err != nil {
			t.Fatal(err)
		}
		n.crash(false)
	}
}

func TestANodeWhoseLogIsGoneIsRefused(t *testing.T) {
	fs := faultfs.New(testDir)
	if _, err := Open(testDir, Options{FS: fs}); !errors.Is(err, ErrNoLog) {
		t.Fatalf("an empty directory: %v", err)
	}
	l, err := Open(testDir, Options{FS: fs, New: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testDir, Options{FS: fs}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second start: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	fs = fs.PowerCut(rand.New(rand.NewPCG(1, 1)))
	if l, err = Open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestTheErrorOfADamagedLogTellsWhereToLook(t *testing.T) {
	m, n := aLog(t)
	name := m.segments()[1]
	off := m.frames(t, name)[0]
	m[name][off+40] ^= 1
	_, _, err := m.open(t, n.snapshot)
	if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", off)) {
		t.Errorf("open: %v", err)
	}
}

func TestASegmentOfALaterProgramIsNotTakenForDamage(t *testing.T) {
	m, n := aLog(t)
	names := m.segments()
	b := m[names[len(names)-1]]
	le.PutUint32(b[8:], formatVersion+1)
	le.PutUint32(b[100:], sum(0, b[:100]))
	for _, onlyHeader := range []bool{false, true} {
		if onlyHeader {
			clear(b[headerSize:])
		}
		_, fs, err := m.open(t, n.snapshot)
		if !errors.Is(err, ErrVersion) || errors.As(err, new(*DamageError)) || !strings.Contains(err.Error(), names[len(names)-1]) {
			t.Errorf("open: %v", err)
		}
		if !bytes.Equal(imageOf(t, fs)[names[len(names)-1]], b) {
			t.Error("the segment was changed")
		}
	}
}
