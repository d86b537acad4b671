package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// undisturbed runs a test of a new town whose leader is to stay the leader until the test
// ends a leadership. On a machine that does much else a leader may not hear from the others
// for a second and lose leadership to one of them: a test that has failed in such a town
// is run again in another one.
func undisturbed(t testing.TB, nodes int, test func(t testing.TB, w *town)) {
	t.Helper()
	for range attempts {
		a := &attempt{TB: t}
		w := newTown(a, nodes)
		a.run(func() { test(a, w) })
		why := w.disturbed()
		a.clean()
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

// disturbed tells which leadership has ended without the test's doing, "" if there was none.
// Nothing excuses a data race.
func (w *town) disturbed() (why string) {
	for _, p := range w.launched {
		for _, l := range p.log() {
			if strings.Contains(l, "DATA RACE") {
				return ""
			}
		}
	}
	for _, p := range w.launched {
		for _, l := range p.log() {
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

// attempt is a test that may fail without the one that it is part of. What it says is said
// in any case.
type attempt struct {
	testing.TB

	mu       sync.Mutex
	failed   bool     // guarded by mu
	cleanups []func() // guarded by mu
}

// run runs a function that may end with FailNow.
func (a *attempt) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// clean calls what was given to Cleanup, the last one first.
func (a *attempt) clean() {
	a.mu.Lock()
	all := a.cleanups
	a.cleanups = nil
	a.mu.Unlock()
	for _, f := range slices.Backward(all) {
		a.run(f)
	}
}

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) Error(args ...any) {
	a.Helper()
	a.Log(args...)
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.Helper()
	a.Log(args...)
	a.FailNow()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.FailNow()
}
