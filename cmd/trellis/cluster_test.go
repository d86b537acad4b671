package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/internal/control"
)

// view is of a cluster of which one member does not answer and one only learns.
func view() *control.View {
	m := func(id member.ID, name string, match uint64, behind int64, voter bool) replica.MemberStatus {
		return replica.MemberStatus{
			Member: member.Member{ID: id, Name: name, Addr: fmt.Sprintf("10.0.0.%d:11390", id)}, Voter: voter, Match: match, Behind: behind,
		}
	}
	v := &control.View{
		Cluster: member.ClusterID{1: 2},
		Members: []replica.MemberStatus{m(1, "n1", 9140, 0, true), m(2, "n2", 9139, 76, true), m(3, "n3", 12, 5<<20, true), m(4, "learner", 9000, 20_000, false)},
	}
	status := func(id member.ID, applied uint64, digest uint64) *control.Status {
		s := &control.Status{Node: v.Members[id-1].Node(), Cluster: v.Cluster}
		s.Status = replica.Status{
			Self: id, Leader: 1, Term: 7, Commit: applied + 1, Applied: applied, Last: applied + 2, Members: v.Members,
			Stamp: 90e9, Snapshot: 9000, SnapshotBytes: 3 << 30, SnapshotStamp: 30e9, LogBytes: 1 << 20,
		}
		s.Digest = &replica.Digest{Jobs: 1234, Sum: digest}
		return s
	}
	leader, standby, learner := status(1, 9138, 0xabc), status(2, 9138, 0xabc), status(4, 9138, 0xabc)
	leader.Leads, leader.Serves, leader.Clients = true, true, "10.0.0.1:11300"
	learner.SnapshotStamp = 0
	v.Leader = leader
	for _, s := range []*control.Status{leader, standby, nil, learner} {
		v.Heard = append(v.Heard, control.Heard{Status: s})
	}
	v.Heard[2].Err = errors.New("dial tcp 10.0.0.3:11390: connect: connection refused")
	return v
}

func table(t *testing.T, v *control.View, digest bool) string {
	t.Helper()
	var b strings.Builder
	if err := newClusterStatus(v, digest).writeTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestStatusIsATable(t *testing.T) {
	tables := []string{table(t, view(), false), table(t, view(), true)}
	v := view()
	v.Heard[1].Status.Digest.Sum = 0xabd
	tables = append(tables, table(t, v, true))
	v.Heard[1].Status.Applied++
	tables = append(tables, table(t, v, true))
	v = view()
	v.Leader, v.Heard[0] = nil, control.Heard{Err: errors.New("it does not answer")}
	tables = append(tables, table(t, v, false))
	golden(t, "testdata/clusterstatus.txt", strings.Join(tables, "\n----\n"))
}

func TestStatusIsJSON(t *testing.T) {
	var b strings.Builder
	if err := newClusterStatus(view(), true).writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/clusterstatus.json", b.String())
}

// golden compares with a file, or writes that if UPDATE is set.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v, %s is not what is written now:\n%s", err, file, got)
	}
}

// serverDir is what TestMain removes.
var serverDir string

// server builds trellisd, once.
var server = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "trellis-test-")
	if err != nil {
		return "", err
	}
	serverDir = dir
	path := filepath.Join(dir, "trellisd")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../trellisd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building trellisd: %w\n%s", err, out)
	}
	return path, nil
})

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

// cluster runs `trellis cluster`, and makes sure of its exit status and of a part of what
// it writes: one line if it fails.
func cluster(t *testing.T, wantStatus int, want string, args ...string) string {
	t.Helper()
	out, errs, status := trellis(t, append([]string{"cluster"}, args...)...)
	if status != wantStatus || !strings.Contains(out+errs, want) || (errs != "") != (status != 0) || strings.Count(errs, "\n") > 1 {
		t.Errorf("trellis cluster %s: status %d, want %d and %q\n%s%s", strings.Join(args, " "), status, wantStatus, want, out, errs)
	}
	return out
}

// long gives a command the time that it may need on a machine that does much else.
const long = "--timeout=2m"

// statusOf is what the nodes say, in JSON.
func statusOf(t *testing.T, args ...string) (s clusterStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(cluster(t, 0, "", append([]string{"status", "--wait", "-o", "json", long}, args...)...)), &s); err != nil {
		t.Fatal(err)
	}
	return s
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
	cluster(t, 4, "belongs to no cluster yet", "status", "--node="+n4.addr, long)
	cluster(t, 4, "--cluster of n4 says", "add", n4.String(), at, long)
	cluster(t, 4, "the name n1 is taken", "add", "n1="+n4.addr, at, long)
	cluster(t, 4, "is taken", "add", "n5="+nodes[0].addr, at, long)
	cluster(t, 4, "there is no member n5", "remove", "n5", at, long)
	cluster(t, 4, "there is no member n5", "transfer", "n5", at, long)
	n4.stop()
	n4.start(t, "--cluster", strings.Join([]string{nodes[0].String(), nodes[1].String(), nodes[2].String()}, ","))
	cluster(t, 0, "the cluster has 4 members", "add", n4.String(), at, long)
	cluster(t, 4, "the name n4 is taken", "add", n4.String(), at, long)
	cluster(t, 0, "n4="+n4.addr+" leads", "transfer", "n4", at, long)
	cluster(t, 0, "n4="+n4.addr+" leads", "transfer", "n4", at, long)
	cluster(t, 0, "the cluster has 3 members", "remove", "n4", at, long) // it leads
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
	cluster(t, 0, fmt.Sprintf("%d records of ", saved), "backup", backup, at, long)
	cluster(t, 4, "the directory is not empty", "backup", backup, at, long)
	wantTrellis(t, 0, "sound records, last id", "binlog", "verify", backup)

	putJobs(t, at, 5)
	all := settledJobs(t, at) // the member that is left has them too
	if saved < 20 || all < saved+5 {
		t.Errorf("%d jobs, then %d", saved, all)
	}
	nodes[1].stop()
	nodes[2].stop()
	cluster(t, 4, "1 of 3 members that vote answer", "backup", filepath.Join(dir, "none"), at)
	cluster(t, 0, "that is no majority", "status", at, long)
	for !strings.Contains(cluster(t, 0, "no majority", "status", at, long), "nobody leads") { // it takes a moment to notice
		time.Sleep(10 * time.Millisecond)
	}
	cluster(t, 4, "no member leads", "transfer", at, "--timeout=500ms")
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
	cluster(t, 0, fmt.Sprintf("%d records of ", saved), "init", "--from", backup, restored.String(), restored.dir)
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

// putJobs has n jobs acknowledged by whoever leads. A leader that loses its office meanwhile,
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

func TestMistakesOnTheClusterCommandLine(t *testing.T) {
	for want, args := range map[string]string{
		"accepts 1 arg":               "add",
		"is not name=host:port":       "add n1",
		"unknown command":             "ad",
		"unknown flag":                "status --fly",
		"table or json":               "status -o xml",
		"is not an address":           "status --node nowhere",
		"need TLS off loopback":       "status --node 192.0.2.1:1",
		"--from DIR is missing":       "recover n1=127.0.0.1:1 x",
		"accepts 2 arg":               "init --from x n1=127.0.0.1:1",
		"is not a node's name":        "init --from x -- -n1=127.0.0.1:1 x",
		"--timeout a time above zero": "status --timeout 0s",
	} {
		cluster(t, 2, want, strings.Fields(args)...)
	}
	if _, err := os.Stat("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a mistake made a directory")
	}
}

// A fakeMember answers requests as says.
type fakeMember struct {
	wire.Handler // nil: a node that only answers requests hears of nothing else
	says         func(context.Context, control.Request) (*control.Status, error)
}

// Control implements wire.Handler.
func (f fakeMember) Control(ctx context.Context, req []byte, _ io.Writer) ([]byte, error) {
	r, err := control.Parse(req)
	if err != nil {
		return nil, err
	}
	s, err := f.says(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// startMembers starts two members, of which says tells what they answer to requests for anything but their status. That
// is changed by looks, if it is not nil, or is that the first one leads.
func startMembers(t *testing.T, looks, says func(ctx context.Context, self member.ID, r control.Request, s *control.Status) error) (at string) {
	t.Helper()
	listeners := []net.Listener{listen(t), listen(t)}
	for i, l := range listeners {
		s := control.Status{Cluster: member.ClusterID{1}}
		s.Self, s.Leader, s.Term, s.Leads, s.Serves = member.ID(i+1), 1, 7, i == 0, i == 0
		for k, l := range listeners {
			m := member.Member{ID: member.ID(k + 1), Name: fmt.Sprint("n", k+1), Addr: l.Addr().String()}
			s.Members = append(s.Members, replica.MemberStatus{Member: m, Voter: true})
		}
		s.Node = s.Members[i].Node()
		node, err := wire.New(wire.Config{Listener: l, Log: slog.New(slog.DiscardHandler), Handler: fakeMember{
			says: func(ctx context.Context, r control.Request) (*control.Status, error) {
				answer, ask := s, says
				if r.Op == control.OpStatus {
					ask = looks
				}
				if ask == nil {
					return &answer, nil
				}
				err := ask(ctx, answer.Self, r, &answer)
				return &answer, err
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
	}
	return "--node=" + listeners[0].Addr().String()
}

func TestAnInterruptedClusterCommandSaysSo(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		of   member.ID // asking this one takes until the command gives up
		op   string
	}{
		{"status", 1, control.OpStatus}, // nobody else is known
		{"status", 2, control.OpStatus},
		{"status --wait", 2, control.OpStatus},
		{"transfer n2", 1, control.OpStatus},
		{"transfer n2", 1, control.OpTransfer},
		{"backup DIR", 2, control.OpStatus},
		{"backup DIR", 2, control.OpBackup},
	} {
		asked := make(chan struct{}, 1)
		hangs := func(ctx context.Context, self member.ID, r control.Request, _ *control.Status) error {
			if self != tt.of || r.Op != tt.op {
				return nil
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		}
		at := startMembers(t, hangs, hangs)
		args := strings.Fields(strings.ReplaceAll(tt.args, "DIR", filepath.Join(t.TempDir(), "backup")))
		cmd := exec.CommandContext(t.Context(), program, append([]string{"cluster", at, "--timeout=1m"}, args...)...)
		cmd.Env = append(os.Environ(), mainEnv+"=1")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
		}()
		select {
		case <-asked:
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		case <-ended: // too soon
		}
		<-ended
		if status := cmd.ProcessState.ExitCode(); status != exitInterrupted || out.String() != "" || errs.String() != "trellis: interrupted\n" {
			t.Errorf("%s, while member %d is asked for its %s: status %d\n%s%s", tt.args, tt.of, tt.op, status, &out, &errs)
		}
	}
}

// TestAHandOverWhoseReplyIsLostIsNotAskedForAgain has a leader that hands over and fails then.
func TestAHandOverWhoseReplyIsLostIsNotAskedForAgain(t *testing.T) {
	for _, args := range []string{"transfer", "transfer n2"} {
		var asked atomic.Int32
		at := startMembers(t, func(_ context.Context, self member.ID, _ control.Request, s *control.Status) error {
			if asked.Load() > 0 {
				s.Leader, s.Term, s.Leads, s.Serves = 2, 8, self == 2, self == 2
			}
			return nil
		}, func(context.Context, member.ID, control.Request, *control.Status) error {
			asked.Add(1)
			return errors.New("the reply is lost")
		})
		cluster(t, 0, " leads\n", append([]string{at, "--timeout=1m"}, strings.Fields(args)...)...)
		if n := asked.Load(); n != 1 {
			t.Errorf("%s: %d hand-overs were asked for", args, n)
		}
	}
}
