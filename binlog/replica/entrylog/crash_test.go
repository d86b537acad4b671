package entrylog

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"trellis/binlog/vfs/faultfs"
)

// Any history with any crashes: what was acknowledged is there, what was not is there
// in whole or not at all.
func TestRandomHistoriesSurviveRandomCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(rapid.Uint64().Draw(rt, "seed"), Options{
			SegmentSize: rapid.SampledFrom([]int64{MinSegmentSize, 3 * MinSegmentSize, 1 << 20}).Draw(rt, "segment"),
			CacheSize:   rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(rt, "cache"),
		})
		if err := n.start(true); err != nil {
			rt.Fatal(err)
		}
		defer func() { n.crash(false) }()
		for range rapid.IntRange(1, 5).Draw(rt, "crashes") {
			for range rapid.IntRange(0, 60).Draw(rt, "steps") {
				if err := n.step(); err != nil {
					rt.Fatal(err)
				}
				if n.rng.IntN(10) == 0 {
					if err := n.done.diff(n.log); err != nil {
						rt.Fatal(err)
					}
				}
			}
			if err := n.done.diff(n.log); err != nil {
				rt.Fatal(err)
			}
			switch end := rapid.SampledFrom([]string{"kill", "power", "close", "fault"}).Draw(rt, "end"); end {
			case "close":
				if err := n.log.Close(); err != nil {
					rt.Fatal(err)
				}
				n.log = nil
				n.crash(false)
			case "fault":
				at := n.fs.Calls() + rapid.IntRange(1, 12).Draw(rt, "call")
				f := rapid.SampledFrom(faults).Draw(rt, "fault")
				n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
					if c.N == at {
						return f
					}
					return faultfs.Fault{}
				})
				for range 12 {
					if err := n.step(); errors.Is(err, ErrFailed) {
						break
					}
				}
				n.fs.Hook(nil)
				n.crash(rapid.Bool().Draw(rt, "power"))
			default:
				n.crash(end == "power")
			}
			if err := n.start(false); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

var (
	errBoom = errors.New("boom")
	faults  = []faultfs.Fault{{Off: true}, {Err: errBoom}, {Err: syscall.EIO, Short: 20}, {Err: syscall.EIO, Short: 1000}, {Err: syscall.ENOSPC}, {Err: syscall.ENOSPC, Short: 40}}
)

const crashSteps = 60

// work does the same steps for the same seed, until one fails for good.
func (n *node) work() error {
	for range crashSteps {
		if err := n.step(); err != nil && !errors.Is(err, ErrNoSpace) {
			return err
		}
	}
	return nil
}

// A fault at any call, then a crash, another one soon after the start, and so on.
func TestAFaultAtAnyCallLosesNothingThatWasAcknowledged(t *testing.T) {
	const seed = 11
	n := newNode(seed, Options{CacheSize: 1000})
	if err := errors.Join(n.start(true), n.work()); err != nil {
		t.Fatal(err)
	}
	calls := n.fs.Calls()
	n.crash(false)
	if len(n.done.entries)+int(n.done.base.Index) < 20 {
		t.Fatalf("the work is too little: %+v", n.done)
	}
	step := 29
	if proof {
		step = 1
	}
	for i, f := range faults {
		for _, power := range []bool{true, false} {
			t.Run(fmt.Sprintf("off %v, error %v after %d, power cut %v", f.Off, f.Err, f.Short, power), func(t *testing.T) {
				for at := 1 + i%step; at <= calls; at += step {
					if err := faultAt(seed, at, f, power); err != nil {
						t.Fatalf("call %d: %v", at, err)
					}
				}
			})
		}
	}
}

func faultAt(seed uint64, at int, f faultfs.Fault, power bool) error {
	n := newNode(seed, Options{CacheSize: 1000})
	defer func() { n.crash(false) }()
	n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.N == at {
			return f
		}
		return faultfs.Fault{}
	})
	first := n.start(true) != nil
	if !first {
		n.work()
	}
	for range 3 {
		n.fs.Hook(nil)
		n.crash(power)
		if err := n.start(first); err != nil {
			return err
		}
		first = false
		for range 5 {
			if err := n.step(); err != nil {
				return err
			}
		}
		if err := n.done.diff(n.log); err != nil {
			return err
		}
	}
	return nil
}

// The machine may go off at any call of Open, again and again.
func TestAStartThatIsCutAtAnyCallLosesNothing(t *testing.T) {
	for _, power := range []bool{true, false} {
		for seed := range uint64(4) {
			n := newNode(seed, Options{})
			if err := n.start(true); err != nil {
				t.Fatal(err)
			}
			last := errors.New("no update")
			for at := 1; last != nil; at++ {
				for range 15 {
					if err := n.step(); err != nil {
						t.Fatal(err)
					}
				}
				// An update that is not synced, then a snapshot that the log does not know of.
				n.fs.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.Op == "sync"} })
				if err := n.step(); err != nil && !errors.Is(err, ErrFailed) {
					t.Fatal(err)
				}
				if at%3 == 0 {
					n.snapshot = EntryID{n.done.last().Index + 10, n.done.hard.term + 10}
					n.maybe = nil // whatever it is, the snapshot replaces it
				}
				n.crash(power)
				for call := 1; call < 40; call += 3 {
					from := n.fs.Calls()
					n.fs.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == from+call} })
					if n.start(false) == nil {
						break
					}
					n.crash(power)
				}
				n.crash(power)
				if err := n.start(false); err != nil {
					t.Fatalf("power %v, seed %d, round %d: %v", power, seed, at, err)
				}
				if at == 12 {
					last = nil
				}
			}
			n.crash(false)
		}
	}
}
