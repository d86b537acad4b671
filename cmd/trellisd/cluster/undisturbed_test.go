//go:build proof

package cluster

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/clustertest"
)

func TestATestIsRunAgainOnlyInPlaceOfOneThatWasDisturbed(t *testing.T) {
	t.Parallel()
	runs, outer := 0, &clustertest.Attempt{TB: t}
	outer.Run(func() {
		clustertest.Undisturbed(outer, 1, func(t testing.TB, w *clustertest.Cluster) {
			runs++
			t.Fatal("as it should")
		})
	})
	if !outer.Failed() || runs != 1 {
		t.Errorf("a test that fails was run %d times, failed: %t", runs, outer.Failed())
	}
	runs, outer = 0, &clustertest.Attempt{TB: t}
	outer.Run(func() {
		clustertest.Undisturbed(outer, 3, func(t testing.TB, w *clustertest.Cluster) {
			if runs++; runs > 1 {
				return
			}
			w.StartAll()
			l := w.Leader()
			l.Process.Signal(syscall.SIGSTOP)
			w.Eventually("another member leads", func() bool {
				for _, n := range w.Nodes {
					if n != l && slices.ContainsFunc(n.Process.Log(), func(s string) bool { return strings.Contains(s, `"this node leads"`) }) {
						return true
					}
				}
				return false
			})
			l.Process.Signal(syscall.SIGCONT)
			t.Fatal("as it may, though nobody has read yet that it does not lead any more")
		})
	})
	if outer.Failed() || runs != 2 {
		t.Errorf("a test that was disturbed was run %d times, failed: %t", runs, outer.Failed())
	}
}
