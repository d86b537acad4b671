package clustertest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// logPatience is how much later than a member's clients a test may know that its leadership has ended.
const logPatience = 3 * time.Second

// Undisturbed runs a test of a new cluster whose leader must lead until the test ends that. On a busy
// machine a leader may not hear from the others for a second, and lose its leadership to one of them: a
// test that fails in such a cluster runs again in another one.
func Undisturbed(t testing.TB, nodes int, test func(t testing.TB, w *Cluster)) {
	t.Helper()
	for range servertest.Attempts {
		a := &Attempt{TB: t}
		w := NewCluster(a, nodes)
		a.Run(func() { test(a, w) })
		why := w.disturbed()
		for end := time.Now().Add(logPatience); a.Failed() && why == "" && time.Now().Before(end); why = w.disturbed() {
			time.Sleep(10 * time.Millisecond)
		}
		a.Clean()
		switch {
		case !a.Failed():
			return
		case why == "":
			t.FailNow()
		}
		t.Logf("once more, for %s", why)
	}
	t.Fatal("there was no attempt that nobody disturbed")
}

// disturbed is which leadership has ended without the test's doing, "" if none has.
// Nothing excuses a data race.
func (w *Cluster) disturbed() (why string) {
	for _, p := range w.launched {
		for _, l := range p.Log() {
			if strings.Contains(l, "DATA RACE") {
				return ""
			}
		}
	}
	for _, p := range w.launched {
		for _, l := range p.Log() {
			var record struct{ Msg, Why, Reason string }
			switch err := json.Unmarshal([]byte(l), &record); {
			case err != nil:
			case record.Msg == "this node does not lead any more" && record.Why != "it was handed over":
				return fmt.Sprintf("a node does not lead any more: %s", record.Why)
			case record.Msg == "no other member takes over":
				return fmt.Sprintf("leadership was not handed over: %s", record.Reason)
			}
		}
	}
	return ""
}

// An Attempt is a test that may fail without failing the test that it is part of. What it logs is logged
// in any case.
type Attempt struct {
	testing.TB

	mu       sync.Mutex
	failed   bool     // guarded by mu
	cleanups []func() // guarded by mu
}

// Run runs a function that may end with FailNow.
func (a *Attempt) Run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// Clean calls the functions that Cleanup was given, the last one first.
func (a *Attempt) Clean() {
	a.mu.Lock()
	all := a.cleanups
	a.cleanups = nil
	a.mu.Unlock()
	for _, f := range slices.Backward(all) {
		a.Run(f)
	}
}

func (a *Attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

func (a *Attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *Attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *Attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *Attempt) Error(args ...any) {
	a.Helper()
	a.Log(args...)
	a.Fail()
}

func (a *Attempt) Errorf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.Fail()
}

func (a *Attempt) Fatal(args ...any) {
	a.Helper()
	a.Log(args...)
	a.FailNow()
}

func (a *Attempt) Fatalf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.FailNow()
}
