//go:build linux && proof

package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A shell does what the documents say, block after block. What it starts is gone when the
// test ends.
type shell struct {
	t     testing.TB
	in    io.Writer
	lines chan string // of what it writes; closed at its end
	ports map[string]string
}

// Ports of the documents become free ones.
var portPattern = regexp.MustCompile(`\b11[34]\d\d\b`)

// atExit ends what the shell has started. If a command has failed, the members first tell how
// they are, and where their goroutines are.
const atExit = `trap '
	[ $? = 0 ] || {
		trellis cluster status >&2 || :
		for n in ${n1-} ${n2-} ${n3-} ${n4-}; do
			kill -QUIT $n && wait $n || :
		done
	}
	kill -9 ${n1-} ${n2-} ${n3-} ${n4-} 2>/dev/null || :
' EXIT`

func newShell(t testing.TB, r *servertest.Reader) *shell {
	t.Helper()
	cmd := exec.Command("sh", "-eu")
	cmd.Dir, cmd.Env = r.Dir, r.Command("").Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, in: in, lines: make(chan string, 1000), ports: map[string]string{}}
	go func() {
		defer close(s.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close() // the trap ends what was started, unless a command does not end
		hangs := time.AfterFunc(servertest.Patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer hangs.Stop()
		for range s.lines {
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, errs.String())
		}
	})
	fmt.Fprintln(in, atExit)
	return s
}

// do runs lines, and returns what they have written.
func (s *shell) do(lines ...string) string {
	s.t.Helper()
	for _, line := range lines {
		line = portPattern.ReplaceAllStringFunc(line, func(port string) string {
			if s.ports[port] == "" {
				s.ports[port] = servertest.PortOf(s.t, wiretest.ReservedAddr(s.t))
			}
			return s.ports[port]
		})
		if strings.HasPrefix(line, "trellis cluster status --wait") {
			line = "until " + line + "; do :; done" // a slow disk may take longer than the command waits
		}
		fmt.Fprintln(s.in, line)
	}
	fmt.Fprintln(s.in, "echo END OF LINES")
	var written strings.Builder
	timeout := time.After(3 * servertest.Patience)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("%s\nfailed; it wrote:\n%s", strings.Join(lines, "\n"), written.String())
			}
			if line == "END OF LINES" {
				return written.String()
			}
			fmt.Fprintln(&written, line)
		case <-timeout:
			s.t.Fatalf("%s\ntakes too long; it wrote:\n%s", strings.Join(lines, "\n"), written.String())
		}
	}
}

// until runs a line until it has written something.
func (s *shell) until(line, want string) {
	s.t.Helper()
	for end := time.Now().Add(clustertest.ElectionPatience); ; {
		got := s.do(line)
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: no %q in\n%s", line, want, got)
		}
	}
}

// dial connects to the member that serves, as client libraries with several addresses do.
func (s *shell) dial() *beanstalk.Conn {
	s.t.Helper()
	for end := time.Now().Add(clustertest.ElectionPatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, port := range []string{"11301", "11302", "11303", "11304"} {
			if c, err := beanstalk.Dial("tcp", "127.0.0.1:"+s.ports[port]); err == nil {
				return c
			}
		}
	}
	s.t.Fatal("nobody serves")
	return nil
}

// The commands give up when members do not answer for some seconds, as on a machine that stalls, and a
// leader may be replaced then: all of it is done anew.
func TestAClusterIsMadeKilledAndLookedAfterAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	for range 3 {
		a := &clustertest.Attempt{TB: t}
		a.Run(func() { followClusterGuide(a) })
		a.Clean()
		if !a.Failed() {
			return
		}
	}
	t.FailNow()
}

func followClusterGuide(t testing.TB) {
	t.Helper()
	s := newShell(t, servertest.NewReader(t))
	if out := s.do(servertest.DocumentLines(t, "cluster")...); !strings.Contains(out, " leads\n") || strings.Contains(out, "nobody") {
		t.Fatalf("%s", out)
	}
	var ids []uint64
	put := func() {
		c := s.dial()
		defer c.Close()
		for range 50 {
			id, err := c.Put([]byte("hello"), 0, 0, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	put()
	s.until("trellis cluster status", "n3    ")
	kill := servertest.DocumentLines(t, "cluster-kill")
	s.do(kill...)
	put()
	same := "all members that answer have the same jobs"
	s.until(kill[len(kill)-1], same)
	s.until("trellis cluster status | grep -c standby || :", "2")

	operate := s.do(servertest.DocumentLines(t, "cluster-operate")...)
	for _, want := range []string{
		"the cluster has 4 members", "n3 is no member any more; the cluster has 3 members", " records of ",
	} {
		if !strings.Contains(operate, want) {
			t.Errorf("no %q in\n%s", want, operate)
		}
	}
	s.do("wait $n3 || :") // it has ended by itself
	s.until("trellis cluster status --digest", same)
	c := s.dial()
	defer c.Close()
	for _, id := range ids {
		if body, err := c.Peek(id); err != nil || string(body) != "hello" {
			t.Errorf("job %d: %q, %v", id, body, err)
		}
	}
	// The backup is what documents and manual say that it is.
	b := servertest.Start(t, "-b", s.path("monday"))
	if got := b.Dial(0).Data("stats-tube default"); !strings.Contains(got, "current-jobs-ready: 100\n") {
		t.Errorf("%s", got)
	}
}

// path is that of a file in the shell's directory.
func (s *shell) path(name string) string { return strings.TrimSpace(s.do("pwd")) + "/" + name }
