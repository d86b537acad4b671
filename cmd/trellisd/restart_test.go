//go:build proof

package main

import (
	"slices"
	"strings"
	"testing"
)

// listOf is a --cluster that names nodes.
func listOf(nodes ...*townsman) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = n.name + "=" + n.door.addr()
	}
	return strings.Join(parts, ",")
}

// rejoin starts a member with a list, if there is one, until it is a member: as long as the others
// do not answer, it may know of no such list and end.
func (n *townsman) rejoin(list string) {
	n.town.t.Helper()
	var args []string
	if list != "" {
		args = []string{"--cluster=" + list}
	}
	n.town.eventually(n.name+" is a member again", func() bool {
		n.start(args...)
		return n.p.await("this node is a member") == nil
	})
}

// A member is started again with the list that has founded the cluster, as in a unit file that
// nobody has touched, or with the list of today, as in one that was put right.
func TestMembersStartAgainWithTheListOfTheFoundingAndOfToday(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3)
	w.startAll()
	founders, gone := w.nodes, w.nodes[2]
	added := w.grow()
	added.start("--cluster=" + listOf(w.nodes...))
	w.askLeader(`{"op":"add","node":"` + listOf(added) + `"}`)
	w.askLeader(`{"op":"remove","node":"` + gone.name + `"}`)
	gone.p.wait()
	gone.p = nil
	now := []*townsman{w.nodes[0], w.nodes[1], added}
	for _, list := range []string{listOf(founders...), listOf(now...), ""} {
		for _, n := range now {
			n.kill()
			n.rejoin(list)
		}
	}
	// All at once there is nobody to ask.
	for _, n := range now {
		n.kill()
	}
	for _, n := range now {
		n.start("--cluster=" + listOf(now...))
	}
	w.leader()

	// One that was away while another was added does not know the list of today, but the others do.
	away := now[slices.IndexFunc(now, func(n *townsman) bool { return n != w.leader() })]
	away.kill()
	last := w.grow()
	now = append(now, last)
	last.start("--cluster=" + listOf(now...))
	w.askLeader(`{"op":"add","node":"` + listOf(last) + `"}`)
	away.rejoin(listOf(now...))

	// A list that never was is refused.
	away.kill()
	away.start("--cluster=" + listOf(now[0], now[1], now[2], gone))
	if code := away.p.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if err := away.p.await("--cluster says"); err != nil {
		t.Error(err)
	}
	away.p = nil
}
