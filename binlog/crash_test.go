package binlog

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/vfs/faultfs"
)

var levels = map[string]SyncPolicy{"synced": SyncAlways, "interval": SyncEvery(time.Millisecond), "never": SyncNever}

func TestWhatWasWrittenIsThereAfterACleanEnd(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, 1, Options{Sync: policy})
			if err := h.start(); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				for range 500 {
					h.step()
				}
				last := Pos(0)
				if len(h.ops) > 0 {
					last = h.ops[len(h.ops)-1].pos
				}
				if err := h.log.Close(); err != nil {
					t.Fatal(err)
				}
				h.fs = h.fs.Killed()
				if err := h.recoverAndCheck(last); err != nil {
					t.Fatal(err)
				}
				if !h.log.Recovery().Clean {
					t.Fatal("the end was not clean")
				}
			}
			eventually(t, "compaction", func() bool { return h.log.Stats().OldestSegment > 1 })
			h.log.Close()
		})
	}
}

// runUntil does the workload in which every call of the file system is once the
// last one, or fails. It returns nil if the log could not even be opened.
func (h *history) runUntil(steps int) error {
	if err := h.start(); err != nil {
		return err
	}
	for range steps {
		if !h.step() {
			break
		}
	}
	h.await()
	return nil
}

const crashSteps = 120

func countCalls(t *testing.T, opts Options) int {
	h := newHistory(t, 7, opts)
	if err := h.runUntil(crashSteps); err != nil {
		t.Fatal(err)
	}
	h.log.Close()
	return h.fs.Calls()
}

func testCrashAtEveryCall(t *testing.T, opts Options, power bool, fault faultfs.Fault) {
	step := 7
	if proof {
		step = 1
	}
	testCrashAtCalls(t, opts, power, fault, 1, step)
}

func testCrashAtCalls(t *testing.T, opts Options, power bool, fault faultfs.Fault, first, step int) {
	calls := countCalls(t, opts)
	for n := first; n <= calls; n += step {
		h := newHistory(t, 7, opts)
		h.fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.N == n {
				return fault
			}
			return faultfs.Fault{}
		})
		if err := h.runUntil(crashSteps); err != nil {
			// Not even open: there is nothing to lose.
			h.fs.Off()
			if power {
				h.fs = h.fs.PowerCut(h.rng)
			} else {
				h.fs = h.fs.Killed()
			}
			if err := h.start(); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			h.log.Close()
			continue
		}
		for round := range 3 {
			// After a fault there is a power cut in any case, for the system may
			// have lost more than it tells the next process.
			required := h.crash(power || fault.Err != nil && round == 1)
			if err := h.recoverAndCheck(required); err != nil {
				t.Fatalf("call %d, round %d: %v", n, round, err)
			}
			for range 10 {
				h.step()
			}
		}
		h.log.Close()
	}
}

func TestAPowerCutAtAnyCallLosesNothingThatWasSynced(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"synced", "interval"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCrashAtEveryCall(t, Options{Sync: levels[name]}, true, faultfs.Fault{Off: true})
		})
	}
}

func TestAKillAtAnyCallLosesNothingThatWasCommitted(t *testing.T) {
	t.Parallel()
	for name := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCrashAtEveryCall(t, Options{Sync: levels[name]}, false, faultfs.Fault{Off: true})
		})
	}
}

func TestAnErrorOfAnyCallLosesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	faults := []faultfs.Fault{{Err: boom}, {Err: boom, Short: 20}, {Err: syscall.ENOSPC}, {Err: syscall.EINTR}}
	for i, f := range faults {
		t.Run(fmt.Sprint(f.Err, " after ", f.Short), func(t *testing.T) {
			t.Parallel()
			step := len(faults)
			if !proof {
				step *= 5
			}
			testCrashAtCalls(t, Options{}, true, f, 1+i, step)
			testCrashAtCalls(t, Options{Sync: SyncEvery(time.Millisecond)}, false, f, len(faults)-i, step)
		})
	}
}
