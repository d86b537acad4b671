package entrylog

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/vfs/faultfs"
)

// eventually waits for a condition that the log's goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func startNode(t *testing.T, opts Options) *node {
	t.Helper()
	n := newNode(1, opts)
	if err := n.start(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.crash(false) })
	return n
}

// The limit counts bytes as raft does, wherever the entries are.
func TestEntriesAreLimitedAsRaftsOwnStorageLimitsThem(t *testing.T) {
	for _, cache := range []int64{1, 5000, 1 << 20} {
		n := startNode(t, Options{CacheSize: cache})
		ms := raft.NewMemoryStorage()
		for i := uint64(1); i < 60; i += 3 {
			es := entries(i, i+2, 1+i/20, int(i*i*37%6000))
			es[1] = entry(i+1, 1+i/20, 0)
			if err := n.append(Update{es, hard(1+i/20, 0, 0)}); err != nil {
				t.Fatal(err)
			}
			if err := ms.Append(es); err != nil {
				t.Fatal(err)
			}
		}
		for lo := uint64(1); lo <= 60; lo++ {
			for _, hi := range []uint64{lo + 1, lo + 7, 61} {
				for _, limit := range []uint64{0, 1, 100, 3000, 7000, 50_000, math.MaxUint64} {
					hi := min(hi, 61)
					want, err := ms.Entries(lo, hi, limit)
					if err != nil {
						t.Fatal(err)
					}
					got, err := n.log.Entries(lo, hi, limit)
					// Fewer than fit are allowed: raft asks again.
					if err != nil || len(got) != len(want) {
						t.Fatalf("cache %d: entries %d to %d in %d bytes: %d entries, %v, want %d", cache, lo, hi, limit, len(got), err, len(want))
					}
					for i := range got {
						if err := same(got[i], want[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
}

func TestTheCallerOwnsTheSliceOfEntries(t *testing.T) {
	n := startNode(t, Options{})
	if err := n.append(Update{entries(1, 10, 1, 20), hard(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	es, err := n.log.Entries(2, 5, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	es = append(es, entry(99, 9, 1))
	es[0] = nil
	if err := n.done.diff(n.log); err != nil {
		t.Error(err)
	}
}

func TestTheCacheIsBoundedAndHoldsTheLastEntries(t *testing.T) {
	n := startNode(t, Options{CacheSize: 3000})
	for i := uint64(1); i <= 300; i++ {
		if err := n.append(Update{entries(i, i, 1, 100), hard(1, 0, 0)}); err != nil {
			t.Fatal(err)
		}
		c := &n.log.cache
		if c.bytes > 3000 || c.bytes != int64(len(c.entries))*(100+entryOverhead) || cap(c.entries) > 200 {
			t.Fatalf("after entry %d: %d bytes, %d entries, room for %d", i, c.bytes, len(c.entries), cap(c.entries))
		}
	}
	reads := n.counted("read")
	if _, err := n.log.Entries(295, 301, math.MaxUint64); err != nil || reads.Load() > 0 {
		t.Errorf("recent entries were read from the disk: %v", err)
	}
	if err := n.append(Update{entries(301, 301, 1, 9000), nil}); err != nil {
		t.Fatal(err)
	}
	if c := &n.log.cache; len(c.entries) != 1 {
		t.Errorf("%d entries beside one that is larger than the cache", len(c.entries))
	}
}

func TestCallsThatBreakTheRulesOfRaftChangeNothing(t *testing.T) {
	n := startNode(t, Options{})
	if err := n.append(Update{entries(1, 10, 2, 20), hard(3, 1, 5)}); err != nil {
		t.Fatal(err)
	}
	if err := n.trim(EntryID{3, 2}); err != nil {
		t.Fatal(err)
	}
	two := entries(11, 12, 3, 1)
	gap := []*raftpb.Entry{entry(11, 3, 1), entry(13, 3, 1)}
	for what, op := range map[string]func() error{
		"a gap":                             func() error { return n.log.Append(Update{entries(12, 12, 3, 1), nil}) },
		"a gap in an update":                func() error { return n.log.Append(Update{gap, nil}) },
		"an entry twice":                    func() error { return n.log.Append(Update{append(two, entry(12, 3, 1)), nil}) },
		"a committed entry":                 func() error { return n.log.Append(Update{entries(5, 6, 3, 1), nil}) },
		"an entry before the first":         func() error { return n.log.Append(Update{entries(2, 2, 3, 1), nil}) },
		"a term that falls":                 func() error { return n.log.Append(Update{entries(11, 11, 1, 1), nil}) },
		"an entry of no term":               func() error { return n.log.Append(Update{entries(11, 11, 0, 1), nil}) },
		"an entry newer than the term":      func() error { return n.log.Append(Update{entries(11, 11, 4, 1), nil}) },
		"a hard state whose term falls":     func() error { return n.log.Append(Update{nil, hard(2, 1, 5)}) },
		"a second vote":                     func() error { return n.log.Append(Update{nil, hard(3, 2, 5)}) },
		"a vote that is taken back":         func() error { return n.log.Append(Update{nil, hard(3, 0, 5)}) },
		"a commit of what is not there":     func() error { return n.log.Append(Update{nil, hard(3, 1, 11)}) },
		"a good update, then a bad one":     func() error { return n.log.Append(Update{two, nil}, Update{nil, hard(3, 2, 5)}) },
		"trim of an entry of another term":  func() error { return n.log.Trim(EntryID{7, 3}) },
		"trim of an entry that is not here": func() error { return n.log.Trim(EntryID{11, 3}) },
		"a snapshot of another history":     func() error { return n.log.Install(EntryID{5, 3}) },
	} {
		writes := n.counted("write")
		if err := op(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
		if err := n.done.diff(n.log); err != nil || writes.Load() > 0 {
			t.Fatalf("%s: %v, %d writes", what, err, writes.Load())
		}
	}
	// A hard state that waited while a snapshot has raised the commit index.
	if err := n.append(Update{nil, hard(4, 1, 2)}); err != nil {
		t.Error(err)
	}
	if n.done.hard != (hardState{4, 1, 5}) {
		t.Errorf("hard state %+v", n.done.hard)
	}
	// Nothing to do is nothing written.
	writes := n.counted("write")
	if err := errors.Join(n.log.Append(), n.log.Append(Update{}, Update{nil, hard(4, 1, 5)}), n.log.Trim(EntryID{1, 1}), n.log.Install(EntryID{2, 2})); err != nil || writes.Load() > 0 {
		t.Errorf("%v, %d writes", err, writes.Load())
	}
}

func TestAFullDiskPausesTheLogAndLosesNothing(t *testing.T) {
	n := startNode(t, Options{SegmentSize: 8 << 10})
	n.fs.SetCapacity(64 << 10)
	next := uint64(1)
	fill := func() {
		t.Helper()
		for {
			err := n.append(Update{entries(next, next, 1, 500), hard(1, 0, next)})
			if errors.Is(err, ErrNoSpace) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	fill()
	if next < 20 {
		t.Fatalf("only %d entries fitted", next)
	}
	if err := errors.Join(n.done.diff(n.log), n.log.writable()); err != nil {
		t.Fatal(err)
	}
	// It can be started on the full disk.
	n.crash(true)
	if err := n.start(false); err != nil {
		t.Fatal(err)
	}
	fill()
	// A snapshot frees space. Its record needs little, but some.
	n.fs.SetCapacity(72 << 10)
	if err := n.trim(EntryID{next - 1, 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "space", func() bool { return n.append(Update{entries(next, next+9, 1, 500), nil}) == nil })
	if err := n.done.diff(n.log); err != nil {
		t.Fatal(err)
	}
	n.crash(true)
	if err := n.start(false); err != nil {
		t.Fatal(err)
	}
}

// Not all file systems keep the promise of allocated space.
func TestAWriteThatFindsNoSpaceCanBeRepeated(t *testing.T) {
	for _, short := range []int{0, 10, 40, 300} {
		n := startNode(t, Options{SegmentSize: 64 << 10})
		for i := uint64(1); i < 10; i++ {
			n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "write" {
					return faultfs.Fault{Err: syscall.ENOSPC, Short: short}
				}
				return faultfs.Fault{}
			})
			if err := n.append(Update{entries(i, i+3, 1, 100), hard(1, 0, 0)}); !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			if i == 5 {
				// What was written of it is not half taken.
				n.fs.Hook(nil)
				n.crash(false)
				if err := n.start(false); err != nil {
					t.Fatal(err)
				}
			}
			n.fs.Hook(nil)
			if err := n.append(Update{entries(i, i, 1, 50), hard(1, 0, 0)}); err != nil {
				t.Fatal(err)
			}
		}
		n.crash(true)
		if err := n.start(false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheErrorOfASyncIsFinalWhateverItIs(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		n := startNode(t, Options{})
		n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "sync" {
				return faultfs.Fault{Err: errno}
			}
			return faultfs.Fault{}
		})
		u := Update{entries(1, 1, 1, 10), hard(1, 0, 0)}
		if err := n.append(u); !errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
		n.fs.Hook(nil)
		for what, op := range map[string]func() error{
			"append": func() error { return n.log.Append(u) }, "mark": n.log.Mark, "writable": n.log.writable,
			"install": func() error { return n.log.Install(EntryID{9, 9}) },
		} {
			if err := op(); !errors.Is(err, ErrFailed) || !errors.Is(err, errno) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := n.done.diff(n.log); err != nil {
			t.Errorf("what is on disk cannot be read any more: %v", err)
		}
	}
}

func TestSegmentsThatAreNotNeededGoAndTheOthersSuffice(t *testing.T) {
	n := startNode(t, Options{})
	for i := uint64(1); i <= 200; i++ {
		if err := n.append(Update{entries(i, i, 1, 300), hard(1, 0, i)}); err != nil {
			t.Fatal(err)
		}
	}
	files := func() (count int) {
		list, err := n.fs.List(testDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if fileIndex(e.Name) != 0 {
				count++
			}
		}
		return count
	}
	before, size := files(), n.log.Size()
	if err := n.trim(EntryID{100, 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "half of the files to go", func() bool { return files() <= before/2+3 })
	if now := n.log.Size(); now > size/2+2*MinSegmentSize || now < size/2-2*MinSegmentSize {
		t.Errorf("%d bytes, before %d", now, size)
	}
	if err := n.install(EntryID{500, 4}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all but two files to go", func() bool { return files() <= 2 })
	if err := n.append(Update{entries(501, 502, 5, 10), hard(5, 0, 500)}); err != nil {
		t.Fatal(err)
	}
	n.crash(true)
	if err := n.start(false); err != nil {
		t.Fatal(err)
	}
}

// Readers meet a writer that appends, supersedes, trims and installs.
func TestReadersSeeOneHistoryAtATime(t *testing.T) {
	n := startNode(t, Options{CacheSize: 2000})
	if err := n.append(Update{entries(1, 1, 1, 10), hard(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	var reads atomic.Int64
	for range 3 {
		wg.Go(func() {
			for !done.Load() {
				first, _ := n.log.FirstIndex()
				last, _ := n.log.LastIndex()
				if first > last {
					continue
				}
				es, err := n.log.Entries(first, last+1, 20_000)
				switch {
				case errors.Is(err, raft.ErrCompacted), errors.Is(err, raft.ErrUnavailable):
					continue
				case err != nil || len(es) == 0:
					t.Errorf("entries %d to %d: %d, %v", first, last, len(es), err)
					return
				}
				for i, e := range es {
					if e.GetIndex() != first+uint64(i) || i > 0 && e.GetTerm() < es[i-1].GetTerm() {
						t.Errorf("%v at %d", idOf(e), i)
						return
					}
					if err := same(e, entry(e.GetIndex(), e.GetTerm(), len(e.GetData()))); err != nil {
						t.Error(err)
						return
					}
				}
				if _, err := n.log.Term(first); err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
					t.Error(err)
					return
				}
				if _, _, err := n.log.InitialState(); err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	for i := 0; i < 500 || reads.Load() < 300 && i < 100_000; i++ {
		if err := n.step(); err != nil {
			t.Error(err)
			break
		}
	}
	done.Store(true)
	wg.Wait()
	if err := n.done.diff(n.log); err != nil {
		t.Error(err)
	}
}

func TestDamageIsNoticedWhenAnEntryIsReadBack(t *testing.T) {
	n := startNode(t, Options{SegmentSize: 64 << 10, CacheSize: 1})
	if err := n.append(Update{entries(1, 30, 1, 300), hard(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	f, err := n.fs.Open(n.log.path(1))
	if err != nil {
		t.Fatal(err)
	}
	pos := int64(n.log.table.pos[9])
	if _, err := f.WriteAt([]byte{77}, pos+itemSize+20); err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if _, err := n.log.Entries(10, 12, 0); !errors.As(err, &d) || d.Offset != pos || d.File != n.log.path(1) {
		t.Errorf("got %v, want damage at %d", err, pos)
	}
	if es, err := n.log.Entries(1, 10, math.MaxUint64); err != nil || len(es) != 9 {
		t.Errorf("sound entries before it: %d, %v", len(es), err)
	}
	if err := n.log.Mark(); !errors.Is(err, ErrFailed) || !errors.As(err, &d) || d.Offset != pos {
		t.Errorf("the writer goes on: %v", err)
	}
}

func TestAnEntryThatCannotBeReadEndsTheLog(t *testing.T) {
	n := startNode(t, Options{CacheSize: 1})
	if err := n.append(Update{entries(1, 9, 1, 30), hard(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "read" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	_, err := n.log.Entries(1, 5, 100)
	n.fs.Hook(nil)
	for what, err := range map[string]error{
		"entries": err, "append": n.log.Append(Update{entries(10, 10, 1, 1), nil}), "mark": n.log.Mark(),
	} {
		var d *DamageError
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) || !errors.As(err, &d) || d.File != n.log.path(1) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAClosedLogSaysSo(t *testing.T) {
	n := startNode(t, Options{CacheSize: 1})
	if err := n.append(Update{entries(1, 9, 1, 30), hard(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	if err := n.log.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := n.log.Entries(1, 5, 100)
	for what, err := range map[string]error{
		"append": n.log.Append(Update{entries(10, 10, 1, 1), nil}), "trim": n.log.Trim(EntryID{1, 1}), "install": n.log.Install(EntryID{99, 9}),
		"mark": n.log.Mark(), "close": n.log.Close(), "entries": err,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSnapshotsAndMembersAreTheOwners(t *testing.T) {
	index, term := uint64(7), uint64(2)
	meta := &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{3, 5}}}
	snap := &raftpb.Snapshot{Metadata: meta, Data: []byte("pointer")}
	fs := faultfs.New(testDir)
	l, err := Open(testDir, Options{FS: fs, New: true, Snapshot: meta, OfferSnapshot: func() (*raftpb.Snapshot, error) { return snap, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got, err := l.Snapshot(); err != nil || got != snap {
		t.Errorf("%v, %v", got, err)
	}
	hs, cs, err := l.InitialState()
	if err != nil || hardOf(hs) != (hardState{2, 0, 7}) || fmt.Sprint(cs.GetVoters()) != "[3 5]" {
		t.Errorf("%v, %v, %v", hs, cs, err)
	}
	n := startNode(t, Options{})
	if _, err := n.log.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Error(err)
	}
}

// A cluster of one on the operating system's files: raft itself accepts what the log
// says, also after a restart and a snapshot.
func TestRaftRunsOnTheLog(t *testing.T) {
	dir := t.TempDir()
	conf := &raftpb.ConfState{Voters: []uint64{1}}
	var index, term uint64
	index, term = 1, 1
	applied := index
	for round := range 4 {
		l, err := Open(dir, Options{
			New: round == 0, SegmentSize: 64 << 10, CacheSize: 4 << 10,
			Snapshot: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf},
		})
		if err != nil {
			t.Fatal(err)
		}
		rn, err := raft.NewRawNode(&raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: l, Applied: index, AsyncStorageWrites: true,
			MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, PreVote: true, CheckQuorum: true,
			MaxCommittedSizePerReady: 8 << 10, Logger: &raft.DefaultLogger{Logger: discard},
		})
		if err != nil {
			t.Fatal(err)
		}
		applied = index
		if err := rn.Campaign(); err != nil {
			t.Fatal(err)
		}
		for step := 0; step < 200 || rn.HasReady(); step++ {
			if rn.BasicStatus().RaftState == raft.StateLeader && step < 200 {
				if err := rn.Propose(make([]byte, 500)); err != nil {
					t.Fatal(err)
				}
			}
			if !rn.HasReady() {
				continue
			}
			for _, m := range rn.Ready().Messages {
				switch m.GetTo() {
				case raft.LocalAppendThread:
					u := Update{Entries: m.GetEntries()}
					if m.Term != nil {
						u.HardState = hard(m.GetTerm(), m.GetVote(), m.GetCommit())
					}
					if err := l.Append(u); err != nil {
						t.Fatal(err)
					}
				case raft.LocalApplyThread:
					for _, e := range m.GetEntries() {
						if e.GetIndex() != applied+1 {
							t.Fatalf("entry %d was applied after %d", e.GetIndex(), applied)
						}
						applied++
					}
				default:
					t.Fatalf("a message to %d", m.GetTo())
				}
				for _, r := range m.GetResponses() {
					if err := rn.Step(r); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		last, _ := l.LastIndex()
		if applied != last || applied < index+100 {
			t.Fatalf("round %d: applied %d of %d", round, applied, last)
		}
		if round%2 == 0 { // a snapshot, and in the other rounds none
			index = applied - 50
			if term, err = l.Term(index); err != nil {
				t.Fatal(err)
			}
			if err := l.Trim(EntryID{index, term}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReadEntryIsOneAllocationBesideItsData(t *testing.T) {
	e := entry(5, 3, 100)
	content := uint32(0)
	b := appendEntry(nil, 1, &content, e)
	if got := decodeEntry(b); !proto.Equal(got, e) {
		t.Errorf("got %v, want %v", got, e)
	}
	if n := testing.AllocsPerRun(100, func() { decodeEntry(b) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

var discard = log.New(io.Discard, "", 0)
