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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
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
	leader.Leads, leader.Serves, leader.Clients, leader.Connections = true, true, "10.0.0.1:11300", 12
	contact := 0.34
	standby.Clients, standby.Connections, standby.Contact, standby.Unready = "10.0.0.2:11300", 1, &contact, "attaching"
	learner.SnapshotStamp = 0
	learner.ToLoad = 57
	v.Leader = leader
	for _, s := range []*control.Status{leader, standby, nil, learner} {
		v.Answers = append(v.Answers, control.Answer{Status: s})
	}
	v.Answers[2].Err = errors.New("dial tcp 10.0.0.3:11390: connect: connection refused")
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
	v.Answers[1].Status.Digest.Sum = 0xabd
	tables = append(tables, table(t, v, true))
	v.Answers[1].Status.Digest.Sum, v.Answers[1].Status.Digest.Holds = 0xabc, 0xd
	tables = append(tables, table(t, v, true))
	v.Answers[1].Status.Applied++
	tables = append(tables, table(t, v, true))
	v = view()
	v.Answers[1].Status.Contradictions = 2
	v.Leader, v.Answers[0] = nil, control.Answer{Err: errors.New("it does not answer")}
	tables = append(tables, table(t, v, false))
	golden(t, "testdata/clusterstatus.txt", strings.Join(tables, "\n----\n"))
}

func TestNothingThatAMemberSaysReachesATerminalAsItCame(t *testing.T) {
	v := view()
	v.Members[1].Name, v.Members[2].Addr = hostileText+"\n", hostileText
	v.Answers[2].Err = errors.New(hostileText + "\n")
	v.Leader.Node.Name, v.Leader.Clients = hostileText, hostileText
	lines := strings.Count(table(t, view(), true), "\n")
	if text := table(t, v, true); !plain(text) || strings.Count(text, "\n") != lines {
		t.Errorf("%q", text)
	}
	var b strings.Builder
	if err := newClusterStatus(v, true).writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	if !plain(b.String()) || !json.Valid([]byte(b.String())) {
		t.Errorf("%q", b.String())
	}
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

// cluster runs `trellis cluster`, and makes sure of its exit status and of a part of what
// it writes: one line if it fails. Whom it does not reach it asks again: members have a second
// for the start of a connection, which is short on a machine that does much else.
func cluster(t *testing.T, wantStatus int, want string, args ...string) string {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		out, errs, status := trellis(t, append([]string{"cluster"}, args...)...)
		if status == wantStatus && strings.Contains(out+errs, want) && (errs != "") == (status != 0) && strings.Count(errs, "\n") <= 1 {
			return out
		}
		if status != exitUnreachable && !strings.Contains(out+errs, "not answer") || time.Since(begun) > patience {
			t.Errorf("trellis cluster %s: status %d, want %d and %q\n%s%s", strings.Join(args, " "), status, wantStatus, want, out, errs)
			return out
		}
	}
}

// clusterGivesUp runs `trellis cluster` with a short --timeout, until it refuses because what it waits for does not come. With
// too little time for its questions, it could not know.
func clusterGivesUp(t *testing.T, want string, args ...string) {
	t.Helper()
	for begun, timeout := time.Now(), 500*time.Millisecond; ; timeout = min(2*timeout, patience/8) {
		_, errs, status := trellis(t, append([]string{"cluster", "--timeout", timeout.String()}, args...)...)
		if status == exitRefused && strings.Contains(errs, want) {
			return
		}
		if time.Since(begun) > patience {
			t.Errorf("trellis cluster %s: status %d, want %q\n%s", strings.Join(args, " "), status, want, errs)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
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
func (f fakeMember) Control(ctx context.Context, _ wire.Caller, req []byte, _ io.Writer) ([]byte, error) {
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
		out, errs, status, asked := "", "", 0, false
		for begun := time.Now(); !asked && time.Since(begun) < patience; { // as in cluster
			out, errs, status, asked = interruptedAt(t, program, tt.of, tt.op, tt.args)
		}
		if status != exitInterrupted || out != "" || errs != "trellis: interrupted\n" {
			t.Errorf("%s, while member %d is asked for its %s: status %d\n%s%s", tt.args, tt.of, tt.op, status, out, errs)
		}
	}
}

// interruptedAt runs `trellis cluster`, interrupts it when it asks a member for something, and returns what it says. It may
// have ended without asking.
func interruptedAt(t *testing.T, program string, of member.ID, op, line string) (stdout, stderr string, status int, asks bool) {
	t.Helper()
	asked := make(chan struct{}, 1)
	hangs := func(ctx context.Context, self member.ID, r control.Request, _ *control.Status) error {
		if self != of || r.Op != op {
			return nil
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	args := append([]string{"cluster", startMembers(t, hangs, hangs)}, strings.Fields(strings.ReplaceAll(line, "DIR", filepath.Join(t.TempDir(), "backup")))...)
	cmd := exec.CommandContext(t.Context(), program, args...)
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
		asks = true
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	case <-ended:
	}
	<-ended
	return out.String(), errs.String(), cmd.ProcessState.ExitCode(), asks
}

// TestAHandOverWhoseReplyIsLostIsNotAskedForAgain has a leader that hands over and fails then.
func TestAHandOverWhoseReplyIsLostIsNotAskedForAgain(t *testing.T) {
	for _, args := range []string{"transfer", "transfer n2"} {
		var asked atomic.Int32
		out, errs, status := "", "", exitUnreachable
		for begun := time.Now(); status == exitUnreachable && time.Since(begun) < patience; { // as in cluster
			asked.Store(0)
			at := startMembers(t, func(_ context.Context, self member.ID, _ control.Request, s *control.Status) error {
				if asked.Load() > 0 {
					s.Leader, s.Term, s.Leads, s.Serves = 2, 8, self == 2, self == 2
				}
				return nil
			}, func(context.Context, member.ID, control.Request, *control.Status) error {
				asked.Add(1)
				return errors.New("the reply is lost")
			})
			out, errs, status = trellis(t, append([]string{"cluster", at}, strings.Fields(args)...)...)
		}
		if n := asked.Load(); status != 0 || !strings.HasSuffix(out, " leads\n") || n != 1 {
			t.Errorf("%s: status %d, %d hand-overs were asked for\n%s%s", args, status, n, out, errs)
		}
	}
}

// A member may have all of the log and load its jobs for long, and it cannot lead before.
func TestStatusWaitsForMembersThatLoad(t *testing.T) {
	t.Parallel()
	type state struct{ toLoad, match uint64 } // of n2
	for _, tt := range []struct {
		args   string
		states []state // look by look; the last one stays
		looks  int     // the command takes at least that many
		status int
		want   string
	}{
		{"status", []state{{60, 100}}, 1, 0, "standby, loading 40 %"},
		{"status --wait", []state{{60, 100}, {30, 100}, {0, 20}}, 3, 0, "standby "},
		{"status --wait n2", []state{{60, 20}, {0, 20}, {0, 99}}, 3, 0, "standby "},
		{"status --wait n1", []state{{0, 20}}, 1, 0, "standby "},
		{"status --wait", []state{{60, 100}}, 1, 4, "n2 has 60 % of its jobs to load"},
		{"status --wait n2", []state{{0, 20}}, 1, 4, "n2 lacks 80 entries"},
		{"status --wait n3", []state{{0, 100}}, 1, 4, "there is no member n3"},
		{"status n2", nil, 0, 2, "names of members are for --wait"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int32
			at := startMembers(t, func(_ context.Context, self member.ID, _ control.Request, s *control.Status) error {
				now := tt.states[min(int(looks.Load()), len(tt.states)-1)]
				s.Last, s.Members = 100, slices.Clone(s.Members)
				s.Members[1].Match, s.Members[1].Alive = now.match, true
				if self == 2 { // it is asked last
					s.ToLoad = now.toLoad
					looks.Add(1)
				}
				return nil
			}, nil)
			args := append(strings.Fields(tt.args), at)
			if tt.status == exitRefused {
				clusterGivesUp(t, tt.want, args...)
			} else {
				cluster(t, tt.status, tt.want, args...)
			}
			if n := int(looks.Load()); n < tt.looks {
				t.Errorf("%s: %d looks", tt.args, n)
			}
		})
	}
}

func TestRecoverSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, lost := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	cluster(t, 0, "2 records", "init", "--from", writeLog(t, 2, "x"), "n1=127.0.0.1:1", old)
	segment := filepath.Join(old, "entries", "entries.0000000001")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[50] ^= 1 // in the header
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster(t, 4, "add --skip-damaged", "recover", "--from", old, "n1=127.0.0.1:1", lost)
	cluster(t, 0, "LOST: the entries from 2 on: "+segment, "recover", "--skip-damaged", "--from", old, "n1=127.0.0.1:1", lost)
}
