package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/binlog/replica/wire/wiretest"
)

// A node is a process of trellisd that is a member, or is to be one.
type node struct {
	name, addr, dir string
	stop            func()
}

func newNode(t *testing.T, name string) *node {
	return &node{name: name, addr: wiretest.ReservedAddr(t), dir: t.TempDir(), stop: func() {}}
}

func (n *node) String() string { return n.name + "=" + n.addr }

func (n *node) start(t *testing.T, args ...string) {
	t.Helper()
	path, err := server()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"-l127.0.0.1", "-p0", "-b", n.dir, "--node", n.String()}, args...)...)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", n, log.String())
		}
	})
	t.Cleanup(func() { n.stop() })
}

// statusOf is what the nodes say, in JSON.
func statusOf(t *testing.T, args ...string) (s clusterStatus) {
	t.Helper()
	for s.Leader == "" { // the one that was waited for may be deposed before it is asked
		if err := json.Unmarshal([]byte(cluster(t, 0, "", append([]string{"status", "--wait", "-o", "json"}, args...)...)), &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestMembersProveWhoTheyAreToTheTool(t *testing.T) {
	t.Parallel()
	ours, theirs := wiretest.NewAuthority(t, "ours"), wiretest.NewAuthority(t, "theirs")
	files := func(a *wiretest.Authority) []string {
		f := a.Issue(time.Now().Add(time.Hour), "127.0.0.1")
		return []string{"--cluster-cert=" + f.Cert, "--cluster-key=" + f.Key, "--cluster-ca=" + a.File}
	}
	right, wrong := files(ours), files(theirs)
	n := newNode(t, "n1")
	n.start(t, append(right[:3:3], "--cluster", n.String())...)
	at := "--node=" + n.addr
	if s := statusOf(t, append(right[:3:3], at)...); s.Leader != "n1" {
		t.Errorf("%+v", s)
	}
	cluster(t, 3, "certificate", append([]string{"status", at}, wrong...)...)
	cluster(t, 3, "no member can be reached", "status", at)
	cluster(t, 2, "belong together", "status", at, "--cluster-ca="+ours.File)
	cluster(t, 2, "no such file", "status", at, "--cluster-cert=/none", "--cluster-key=/none", "--cluster-ca=/none")
}
