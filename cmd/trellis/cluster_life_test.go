//go:build proof

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trellis/binlog/replica/wire/wiretest"
)

// startCluster starts nodes that found a cluster.
func startCluster(t *testing.T, args ...string) (nodes []*node) {
	t.Helper()
	var all []string
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, newNode(t, name))
		all = append(all, nodes[len(nodes)-1].String())
	}
	for _, n := range nodes {
		n.start(t, append(args, "--cluster", strings.Join(all, ","))...)
	}
	return nodes
}

func addrs(nodes ...*node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.addr)
	}
	return strings.Join(all, ",")
}

// transferTo makes a node the leader. On a machine that does much else another one may be elected meanwhile, and this one may then
// have jobs to load.
func transferTo(t *testing.T, n *node, at string) {
	t.Helper()
	for begun := time.Now(); ; {
		cluster(t, 0, "", "status", "--wait", n.name, at)
		out, errs, status := trellis(t, "cluster", "transfer", n.name, at)
		if status == 0 && out == n.String()+" leads\n" {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("%s does not lead: status %d\n%s%s", n, status, out, errs)
		}
	}
}

func TestMembersAreAddedAndRemovedAndTheLeaderToo(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	at := "--node=" + addrs(nodes...)
	s := statusOf(t, at)
	leader := s.Leader
	if len(s.Members) != 3 || leader == "" {
		t.Fatalf("%+v", s)
	}
	n4 := newNode(t, "n4")
	n4.start(t, "--cluster", n4.String()+","+nodes[0].String())
	cluster(t, 3, "no member can be reached", "add", "n5="+wiretest.ReservedAddr(t), "--node="+wiretest.ReservedAddr(t), "--timeout=100ms")
	cluster(t, 4, "belongs to no cluster yet", "status", "--node="+n4.addr)
	cluster(t, 4, "--cluster of n4 says", "add", n4.String(), at)
	cluster(t, 4, "the name n1 is taken", "add", "n1="+n4.addr, at)
	cluster(t, 4, "is taken", "add", "n5="+nodes[0].addr, at)
	cluster(t, 4, "there is no member n5", "remove", "n5", at)
	cluster(t, 4, "there is no member n5", "transfer", "n5", at)
	n4.stop()
	n4.start(t, "--cluster", strings.Join([]string{nodes[0].String(), nodes[1].String(), nodes[2].String()}, ","))
	cluster(t, 0, "the cluster has 4 members", "add", n4.String(), at)
	cluster(t, 4, "the name n4 is taken", "add", n4.String(), at)
	transferTo(t, n4, at)
	transferTo(t, n4, at)
	cluster(t, 0, "the cluster has 3 members", "remove", "n4", at) // it leads
	s = statusOf(t, at)
	if len(s.Members) != 3 || s.Leader == "" || s.Leader == "n4" {
		t.Errorf("%+v", s)
	}
}

func TestABackupACrashOfMostMembersAndARecovery(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	at := "--node=" + addrs(nodes...)
	id := statusOf(t, at).Cluster
	putJobs(t, at, 20)
	saved := settledJobs(t, at)
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup")
	cluster(t, 0, " records of ", "backup", backup, at)
	cluster(t, 4, "the directory is not empty", "backup", backup, at)
	wantTrellis(t, 0, "sound records, last id", "binlog", "verify", backup)

	putJobs(t, at, 5)
	all := settledJobs(t, at) // the member that is left has them too
	if saved < 20 || all < saved+5 {
		t.Errorf("%d jobs, then %d", saved, all)
	}
	nodes[1].stop()
	nodes[2].stop()
	cluster(t, 4, "1 of 3 members that vote answer", "backup", filepath.Join(dir, "none"), at)
	cluster(t, 0, "that is no majority", "status", at)
	for !strings.Contains(cluster(t, 0, "no majority", "status", at), "nobody leads") { // it takes a moment to notice
		time.Sleep(10 * time.Millisecond)
	}
	clusterGivesUp(t, "no member leads", "transfer", at)
	recovered := newNode(t, "r1")
	cluster(t, 4, "the directory is in use", "recover", "--from", nodes[0].dir, recovered.String(), filepath.Join(dir, "x"))
	nodes[0].stop()
	cluster(t, 3, "no member can be reached", "status", at)

	recovered.dir = filepath.Join(dir, "recovered")
	out := cluster(t, 0, "WARNING", "recover", "--from", nodes[0].dir, recovered.String(), recovered.dir)
	if !strings.Contains(out, id) {
		t.Errorf("the old cluster's id is not told: %s", out)
	}
	cluster(t, 4, "not the directory of a member", "recover", "--from", backup, recovered.String(), filepath.Join(dir, "y"))
	cluster(t, 4, "the directory is not empty", "recover", "--from", nodes[0].dir, recovered.String(), recovered.dir)
	cluster(t, 4, "belongs to a member", "init", "--from", nodes[0].dir, recovered.String(), filepath.Join(dir, "z"))
	cluster(t, 4, "there is no binlog", "init", "--from", t.TempDir(), recovered.String(), filepath.Join(dir, "z"))

	restored := newNode(t, "b1")
	restored.dir = filepath.Join(dir, "restored")
	cluster(t, 0, " records of ", "init", "--from", backup, restored.String(), restored.dir)
	for n, jobs := range map[*node]uint64{recovered: all, restored: saved} {
		n.start(t)
		s := statusOf(t, "--digest", "--node="+n.addr)
		if m := s.Members[0]; len(s.Members) != 1 || m.Jobs == nil || *m.Jobs != jobs || *s.Same != true {
			t.Errorf("%s: %+v, want %d jobs", n, s, jobs)
		}
		if c := s.Members[0].Clients; !strings.HasPrefix(reply(t, c, "put 0 0 60 1\r\nx\r\n"), "INSERTED 100000") {
			t.Error("ids are not skipped")
		}
	}
}

// reply is the first line that a server sends, "" if the connection ends before it.
func reply(t *testing.T, addr, command string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte(command)); err != nil {
		return ""
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q is not answered", command)
	}
	return string(b[:n])
}

// putJobs has n jobs acknowledged by whoever leads. A leader that is deposed meanwhile,
// as on a machine that does much else, may have done one more.
func putJobs(t *testing.T, at string, n int) {
	t.Helper()
	for n > 0 {
		for _, m := range statusOf(t, at).Members {
			for got := "x"; m.Clients != "" && n > 0 && got != ""; {
				if got = reply(t, m.Clients, "put 0 0 60 1\r\nx\r\n"); strings.HasPrefix(got, "INSERTED") {
					n--
				} else if got != "" {
					t.Fatal(got)
				}
			}
		}
	}
}

// settledJobs is how many jobs there are, when all members have the same.
func settledJobs(t *testing.T, at string) uint64 {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s := statusOf(t, at, "--digest")
		same := s.Same != nil && *s.Same
		for _, m := range s.Members {
			same = same && m.Jobs != nil
		}
		if same {
			return *s.Members[0].Jobs
		}
		if time.Now().After(end) {
			t.Fatalf("the members do not come to have the same jobs: %+v", s)
		}
	}
}
