package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"trellis/binlog/vfs/faultfs"
)

var (
	errBoom = errors.New("boom")
	faults  = []faultfs.Fault{{Off: true}, {Err: errBoom}, {Err: syscall.EIO, Short: 100}, {Err: syscall.ENOSPC}, {Err: syscall.ENOSPC, Short: 3}}
)

// story is what a node does with its snapshots, in three steps: the first, one of its
// own, one that is received.
type story struct {
	jobs   map[uint64]queue // of each snapshot, by its index
	stream []byte           // of the last
	now    uint64           // index of the one that is current for certain, 0 before

	cold     bool // half of its own bodies are in body files
	unpruned bool // the last Prune has failed
}

func newStory(t *testing.T) *story {
	s := &story{jobs: map[uint64]queue{1: {}}}
	n := newNode(3)
	for range 60 {
		n.change()
	}
	from := faultfs.New(root)
	_, path, err := n.take(from, 20)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Send(from, path, &b); err != nil {
		t.Fatal(err)
	}
	s.stream, s.jobs[20] = b.Bytes(), n.jobs
	return s
}

func (s *story) own() *node {
	n := newNode(4)
	for range 60 {
		n.change()
	}
	return n
}

// run does all steps from the one on that comes after the current snapshot, and ends with
// the first error.
func (s *story) run(fs *faultfs.FS) error {
	if s.now < 1 {
		if err := WriteInitial(fs, dir, metaOf(1)); err != nil {
			return err
		}
		s.now = 1
	}
	if s.now < 10 {
		n := s.own()
		if s.cold {
			if err := n.spill(fs); err != nil {
				return err
			}
		}
		m, _, err := n.take(fs, 10)
		s.jobs[10] = n.jobs
		if err != nil {
			return err
		}
		if err := SetCurrent(fs, dir, &m); err != nil {
			return err
		}
		s.now = 10
		if err := s.prune(fs); err != nil {
			return err
		}
	}
	if s.now < 20 {
		m, _, err := Receive(fs, dir, 20, 3, bytes.NewReader(s.stream))
		if err != nil {
			return err
		}
		if err := SetCurrent(fs, dir, &m); err != nil {
			return err
		}
		s.now = 20
		if err := s.prune(fs); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) prune(fs *faultfs.FS) error {
	err := Prune(fs, dir)
	s.unpruned = err != nil
	return err
}

// check reads the current snapshot at the start of a node: what is current for certain,
// or what was about to be.
func (s *story) check(fs *faultfs.FS) error {
	m, q, err := loaded(fs)
	if errors.Is(err, ErrNone) && s.now == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if m.Index < s.now {
		return fmt.Errorf("the snapshot of entry %d was current, but there is that of %d", s.now, m.Index)
	}
	s.now = m.Index
	if err := q.diff(s.jobs[m.Index]); err != nil {
		return err
	}
	if ns := names(fs); ns != nameOf(m.Index, m.Term)+" current" {
		return fmt.Errorf("after a start there is %s", ns)
	}
	return nil
}

// A fault at any call, then a crash or none: what was current is there, whole, and the
// work can go on.
func TestAFaultAtAnyCallLeavesAWholeSnapshot(t *testing.T) { testFaults(t, false) }

// So it is with bodies in body files, of which none is removed.
func TestAFaultAtAnyCallLeavesAllBodies(t *testing.T) { testFaults(t, true) }

func testFaults(t *testing.T, cold bool) {
	clean := faultfs.New(root)
	newStory := func(t *testing.T) *story {
		s := newStory(t)
		s.cold = cold
		return s
	}
	if err := newStory(t).run(clean); err != nil {
		t.Fatal(err)
	}
	calls := clean.Calls()
	step := 13
	if proof {
		step = 1
	}
	for i, f := range faults {
		for _, end := range []string{"power", "kill", "go on"} {
			if f.Off && end == "go on" {
				continue
			}
			seeds := uint64(1) // only a power cut leaves things to chance
			if end == "power" {
				seeds = 3
			}
			t.Run(fmt.Sprintf("off %v, error %v after %d, %s", f.Off, f.Err, f.Short, end), func(t *testing.T) {
				for at := 1 + i%step; at <= calls; at += step {
					for seed := range seeds {
						if err := faultAt(newStory(t), at, f, end, seed); err != nil {
							t.Fatalf("call %d, seed %d: %v", at, seed, err)
						}
					}
				}
			})
		}
	}
}

func faultAt(s *story, at int, f faultfs.Fault, end string, seed uint64) error {
	fs := faultfs.New(root)
	op := ""
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.N == at {
			op = c.Op
			return f
		}
		return faultfs.Fault{}
	})
	_ = s.run(fs)
	fs.Hook(nil)
	if ns := names(fs); end == "go on" && op != "remove" && !s.unpruned && strings.Contains(ns, unfinished) {
		return fmt.Errorf("a failed %s has left %s", op, ns)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(at)))
	for range 2 {
		switch end {
		case "power":
			fs = fs.PowerCut(rng)
		case "kill":
			fs = fs.Killed()
		}
		if err := s.check(fs); err != nil {
			return fmt.Errorf("at the start: %w", err)
		}
	}
	if err := s.run(fs); err != nil {
		return fmt.Errorf("another try: %w", err)
	}
	return s.check(fs)
}

// A directory whose name could not be made durable is not taken for one that is, by whoever tries again.
func TestTheDirectoryOfSnapshotsIsDurableBeforeTheFirst(t *testing.T) {
	for seed := range uint64(20) {
		fs, dir := faultfs.New("m"), "m/snapshots"
		fs.Hook(func(c faultfs.Call) (x faultfs.Fault) {
			if c.Op == "syncdir" {
				x.Err = errBoom
			}
			return x
		})
		if _, err := Create(fs, dir); !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		fs.Hook(nil)
		w, err := Create(fs, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		if _, err := fs.PowerCut(rand.New(rand.NewPCG(seed, 0))).List(dir); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
