//go:build proof

package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestATestIsRunAgainOnlyInPlaceOfOneThatWasDisturbed(t *testing.T) {
	t.Parallel()
	runs, outer := 0, &attempt{TB: t}
	outer.run(func() {
		undisturbed(outer, 1, func(t testing.TB, w *town) {
			runs++
			t.Fatal("as it should")
		})
	})
	if !outer.Failed() || runs != 1 {
		t.Errorf("a test that fails was run %d times, failed: %t", runs, outer.Failed())
	}
	runs, outer = 0, &attempt{TB: t}
	outer.run(func() {
		undisturbed(outer, 3, func(t testing.TB, w *town) {
			if runs++; runs > 1 {
				return
			}
			w.startAll()
			l := w.leader()
			l.p.signal(syscall.SIGSTOP)
			w.eventually("another member leads", func() bool {
				for _, n := range w.nodes {
					if n != l && slices.ContainsFunc(n.p.log(), func(s string) bool { return strings.Contains(s, `"this node leads"`) }) {
						return true
					}
				}
				return false
			})
			l.p.signal(syscall.SIGCONT)
			l.p.waitText("does not lead any more")
			t.Fatal("as it may")
		})
	})
	if outer.Failed() || runs != 2 {
		t.Errorf("a test that was disturbed was run %d times, failed: %t", runs, outer.Failed())
	}
}
