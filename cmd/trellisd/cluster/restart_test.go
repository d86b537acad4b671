//go:build proof

package cluster

import (
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// listOf is a --cluster that names nodes.
func listOf(nodes ...*clustertest.Member) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = n.Name + "=" + n.Door.Addr()
	}
	return strings.Join(parts, ",")
}

// rejoin starts a member with a list, if there is one, until it is a member: as long as the others
// do not answer, it may know of no such list and end.
func rejoin(n *clustertest.Member, list string) {
	n.Cluster.T.Helper()
	var args []string
	if list != "" {
		args = []string{"--cluster=" + list}
	}
	n.Cluster.Eventually(n.Name+" is a member again", func() bool {
		n.Start(args...)
		return n.Process.Await("this node is a member") == nil
	})
}

// A member is started again with the list that has founded the cluster, as in a unit file that
// nobody has touched, or with the list of today, as in one that was put right.
func TestMembersStartAgainWithTheListOfTheFoundingAndOfToday(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 3)
	w.StartAll()
	founders, gone := w.Nodes, w.Nodes[2]
	added := w.Grow()
	added.Start("--cluster=" + listOf(w.Nodes...))
	w.AskLeader(`{"op":"add","node":"` + listOf(added) + `"}`)
	w.AskLeader(`{"op":"remove","node":"` + gone.Name + `"}`)
	gone.Process.Wait()
	gone.Process = nil
	now := []*clustertest.Member{w.Nodes[0], w.Nodes[1], added}
	for _, list := range []string{listOf(founders...), listOf(now...), ""} {
		for _, n := range now {
			n.Kill()
			rejoin(n, list)
		}
	}
	// All at once there is nobody to ask.
	for _, n := range now {
		n.Kill()
	}
	for _, n := range now {
		n.Start("--cluster=" + listOf(now...))
	}
	w.Leader()

	// One that was away while another was added does not know the list of today, but the others do.
	away := now[slices.IndexFunc(now, func(n *clustertest.Member) bool { return n != w.Leader() })]
	away.Kill()
	last := w.Grow()
	now = append(now, last)
	last.Start("--cluster=" + listOf(now...))
	w.AskLeader(`{"op":"add","node":"` + listOf(last) + `"}`)
	rejoin(away, listOf(now...))

	// A list that never was is refused.
	away.Kill()
	away.Start("--cluster=" + listOf(now[0], now[1], now[2], gone))
	if code := away.Process.Wait(); code != servertest.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if err := away.Process.Await("--cluster says"); err != nil {
		t.Error(err)
	}
	away.Process = nil
}
