package worker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"trellis/cmd/internal/client"
	"trellis/reactor/tlstest"
)

// minderEnv makes this test program a minder.
const minderEnv = "TRELLIS_TEST_MINDER"

func TestMain(m *testing.M) {
	if os.Getenv(minderEnv) != "" {
		Mind(os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

func startMinder(t *testing.T) *Minder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), minderEnv+"=1")
	m, err := StartMinder(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil && !killed(err) {
			t.Error(err)
		}
	})
	return m
}

func stats(text string) (f client.Fields) {
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		f = append(f, client.Field{Key: key, Value: client.Value{Kind: client.Number, Text: value}})
	}
	return f
}

func TestAttemptsAreCountedSinceTheKicksThatGaveNewOnes(t *testing.T) {
	w := &worker{cfg: Config{Attempts: 3}}
	for text, want := range map[string]uint64{
		"":                            1,
		"releases=1":                  2,
		"releases=1 timeouts=1":       3,
		"releases=2 timeouts=1":       4,
		"releases=2 buries=1":         4, // buried, and reserved by its id
		"releases=2 buries=1 kicks=1": 1,
		"releases=3 buries=1 kicks=1": 2,
		"kicks=5":                     1, // kicked while it was delayed
	} {
		if got := w.attempt(&reservation{stats: stats(text)}); got != want {
			t.Errorf("%s: attempt %d, want %d", text, got, want)
		}
	}
}

func TestBackOffDoublesUpToItsMaximum(t *testing.T) {
	for _, tt := range []struct {
		first, most time.Duration
		attempts    uint64
		want        uint32
	}{
		{time.Second, 5 * time.Minute, 1, 1},
		{time.Second, 5 * time.Minute, 2, 2},
		{time.Second, 5 * time.Minute, 5, 16},
		{time.Second, 5 * time.Minute, 10, 300},
		{time.Second, 5 * time.Minute, 1 << 60, 300},
		{0, 5 * time.Minute, 1 << 60, 0},
		{500 * time.Millisecond, 5 * time.Minute, 1, 1},
		{500 * time.Millisecond, 5 * time.Minute, 3, 2},
		{1500 * time.Millisecond, 5 * time.Minute, 1, 2},
		{time.Hour, time.Minute, 1, 60},
		{time.Second, 1 << 62, 1 << 60, 4294967295},
	} {
		w := &worker{cfg: Config{Backoff: tt.first, MaxBackoff: tt.most}}
		if got := w.backoff(tt.attempts); got != tt.want {
			t.Errorf("%v: %d", tt, got)
		}
	}
}

func TestLinesGetTheirPrefixHoweverTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var mu sync.Mutex
		var out, want bytes.Buffer
		p := newPrefixer(&mu, &out, "7: ")
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "\n", "line\n", strings.Repeat("x", maxLine-1), strings.Repeat("x", maxLine) + "\n", "yz\n"})).Draw(t, "text"), "")
		for line := range strings.Lines(text) {
			for ; len(strings.TrimSuffix(line, "\n")) > maxLine; line = line[maxLine:] {
				want.WriteString("7: " + line[:maxLine] + "\n")
			}
			want.WriteString("7: " + strings.TrimSuffix(line, "\n") + "\n")
		}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if got, err := p.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		p.flush()
		if out.String() != want.String() {
			t.Fatalf("%q\nwant\n%q", out.String(), want.String())
		}
	})
}

func TestAMinderKnowsWhatRuns(t *testing.T) {
	got := running(strings.NewReader("12\n13\n-12\n1\n-1\n0\nnonsense\n15\n14\n-15\n15"))
	if fmt.Sprint(got) != "map[13:true 14:true 15:true]" {
		t.Error(got)
	}
}

// killed reports whether a process has ended by SIGKILL.
func killed(err error) bool {
	exit := (*exec.ExitError)(nil)
	return errors.As(err, &exit) && exit.String() == "signal: killed"
}

// lose ends the pipe, as the system does for a worker that is killed.
func (m *Minder) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pipe.Close()
}

func TestAWorkerEndsWithItsMinder(t *testing.T) {
	m := startMinder(t)
	_ = m.cmd.Process.Kill()
	ours, theirs := net.Pipe()
	go speak(theirs, answers("reserve-with-timeout", "TIMED_OUT\r\n"))
	_, err := Run(t.Context(), Config{
		Dial: func(context.Context) (net.Conn, error) { return ours, nil },
		Addr: "server", Tubes: []Tube{{Name: "t"}}, Jobs: 1, Argv: []string{"true"}, Timeout: time.Minute, Grace: time.Minute, Log: io.Discard, Minder: m,
	})
	if !errors.Is(err, errMinder) {
		t.Error(err)
	}
}

func TestAWorkerKeepsAJobUntilItsCommandHasBeenStopped(t *testing.T) {
	defer func(d time.Duration) { killAfter = d }(killAfter)
	killAfter = time.Minute // the test kills the command before, when it has seen enough
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := filepath.Join(t.TempDir(), "begun")
	a := answers("stats-job", fmt.Sprintf("OK %d\r\n%s\r\n", len(statsJob)-1, strings.Replace(statsJob, "60", "1", 1)))
	touches := 0
	served := make(chan struct{})
	ours, theirs := net.Pipe()
	go func() {
		defer close(served)
		defer theirs.Close()
		for in := bufio.NewScanner(theirs); in.Scan(); {
			word, _, _ := strings.Cut(in.Text(), " ")
			if word == "touch" {
				pid := 0
				if text, err := os.ReadFile(begun); err == nil {
					fmt.Sscan(string(text), &pid)
				}
				if ctx.Err() != nil {
					touches++
				} else if pid != 0 {
					cancel()
				}
				// One touch comes as soon as the command is stopped, and others at each half of the second.
				if touches == 2 && pid > 0 {
					_ = syscall.Kill(-pid, syscall.SIGKILL)
				}
			}
			if _, err := io.WriteString(theirs, a[word]); err != nil {
				return
			}
		}
	}()
	_, err := Run(ctx, Config{
		Dial: func(context.Context) (net.Conn, error) { return ours, nil },
		Addr: "server", Tubes: []Tube{{Name: "t"}}, Jobs: 1, Argv: []string{"sh", "-c", "trap '' TERM; echo $$ >" + begun + "; while :; do sleep 0.1; done"},
		Timeout: time.Minute, Log: io.Discard, Minder: startMinder(t),
	})
	<-served
	if err != nil || touches < 2 {
		t.Errorf("%v, %d touches after the end of the grace", err, touches)
	}
}

// To end the connection may count as an attempt, and to move a job does not.
func TestAStoppedWorkerMovesItsJobToItsOwnTube(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const capabilities = "---\nversion: \"1\"\nextensions:\n- capabilities\n- move-job\n"
	a := answers("capabilities", fmt.Sprintf("OK %d\r\n%s\r\n", len(capabilities), capabilities), "move-job", "MOVED\r\n")
	var last string
	served := make(chan struct{})
	ours, theirs := net.Pipe()
	go func() {
		defer close(served)
		defer theirs.Close()
		for in := bufio.NewScanner(theirs); in.Scan(); {
			last = in.Text()
			word, _, _ := strings.Cut(last, " ")
			if _, err := io.WriteString(theirs, a[word]); err != nil {
				return
			}
		}
	}()
	_, err := Run(ctx, Config{
		Dial: func(context.Context) (net.Conn, error) { return ours, nil },
		Addr: "server", Tubes: []Tube{{Name: "t"}}, Jobs: 1, Argv: []string{"sh", "-c", "echo begun; exec sleep 1000"},
		Stdout: &logged{text: "begun", end: cancel}, Timeout: time.Minute, Log: io.Discard, Minder: startMinder(t),
	})
	<-served
	if err != nil || last != "move-job 5 t" {
		t.Errorf("%v, %q was sent last", err, last)
	}
}

func TestAMinderKillsWhatRunsAtItsWorkersEnd(t *testing.T) {
	m := startMinder(t)
	c, err := start([]string{"sh", "-c", "sleep 1000 & wait"}, nil, nil, nil, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	m.lose()
	<-c.done
	if !killed(c.err) {
		t.Error(c.err)
	}
}

// speak answers the lines of a connection by their first words, "" with the connection's end.
func speak(nc net.Conn, answers map[string]string) {
	defer nc.Close()
	for in := bufio.NewScanner(nc); in.Scan(); {
		word, _, _ := strings.Cut(in.Text(), " ")
		answer := answers[word]
		if answer == "" {
			return
		}
		if _, err := io.WriteString(nc, answer); err != nil {
			return
		}
	}
}

// servers dials servers that give these answers, the last one again and again.
func servers(all ...map[string]string) func(context.Context) (net.Conn, error) {
	var mu sync.Mutex
	n := 0
	return func(context.Context) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		ours, theirs := net.Pipe()
		go speak(theirs, all[min(n, len(all)-1)])
		n++
		return ours, nil
	}
}

const statsJob = "---\nid: 5\ntube: t\npri: 9\nttr: 60\nreleases: 0\n"

// answers are those of a server that always has job 5.
func answers(change ...string) map[string]string {
	a := map[string]string{
		"watch": "WATCHING 2\r\n", "ignore": "WATCHING 1\r\n", "reserve-with-timeout": "RESERVED 5 1\r\na\r\n",
		"stats-job": fmt.Sprintf("OK %d\r\n%s\r\n", len(statsJob), statsJob), "touch": "TOUCHED\r\n",
		"delete": "DELETED\r\n", "release": "RELEASED\r\n", "bury": "BURIED\r\n", "capabilities": "UNKNOWN_COMMAND\r\n",
		"list-tube-used": "USING default\r\n",
	}
	for i := 0; i < len(change); i += 2 {
		a[change[i]] = change[i+1]
	}
	return a
}

// logged ends a worker when it has written a text to its log.
type logged struct {
	text string
	end  context.CancelFunc

	all bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.all.Write(b)
	if strings.Contains(l.all.String(), l.text) {
		l.end()
	}
	return len(b), nil
}

func TestAWorkerMakesTheBestOfWhatItsServerSays(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []map[string]string
		command string
		log     string // ends the worker
		err     string
	}{
		{"no right to the tube", []map[string]string{answers("watch", "UNKNOWN_COMMAND\r\n")}, "exit 0", "", "UNKNOWN_COMMAND"},
		{"the first connection fails", []map[string]string{answers("watch", "")}, "exit 0", "", "server: "},
		{"a later one fails", []map[string]string{answers("delete", ""), answers("watch", ""), answers("delete", "NOT_FOUND\r\n")}, "exit 0", "before its command ended", ""},
		{"a hostile one", []map[string]string{answers("reserve-with-timeout", "HELLO\r\n"), answers("stats-job", "OK 99999999999\r\n"), answers("release", "OUT_OF_MEMORY\r\n")}, "exit 1", "OUT_OF_MEMORY", ""},
		{"no memory for a delay", []map[string]string{answers("release", "BURIED\r\n")}, "exit 1", "job 5: buried, since the server had no memory", ""},
		{"a job that has gone before it began", []map[string]string{answers("stats-job", "NOT_FOUND\r\n", "reserve-with-timeout", "TIMED_OUT\r\n", "ignore", "NOT_IGNORED\r\n")}, "exit 0", "", "NOT_IGNORED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			log := &logged{text: tt.log, end: cancel}
			if tt.log == "" {
				log.text = "no line has this"
			}
			_, err := Run(ctx, Config{
				Dial: servers(tt.servers...), Addr: "server", Tubes: []Tube{{Name: "t"}}, Jobs: 1, Argv: []string{"sh", "-c", tt.command},
				Grace: time.Minute, Timeout: time.Minute, Log: log, Minder: startMinder(t),
			})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v\n%s", err, log.all.String())
			}
			if tt.log != "" && !strings.Contains(log.all.String(), tt.log) {
				t.Errorf("not said in time: %s", log.all.String())
			}
		})
	}
}

// The connection is read from between touches, in the meantime with a deadline, which TLS must survive.
func TestAJobIsTouchedOverTLS(t *testing.T) {
	authority := tlstest.NewAuthority("authority")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{authority.Issue(tlstest.Name, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := filepath.Join(t.TempDir(), "end")
	a := answers("stats-job", fmt.Sprintf("OK %d\r\n%s\r\n", len(statsJob)-1, strings.Replace(statsJob, "60", "1", 1)))
	served := make(chan struct{})
	go func() {
		defer close(served)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		touches := 0
		for in := bufio.NewScanner(nc); in.Scan(); {
			word, _, _ := strings.Cut(in.Text(), " ")
			switch word {
			case "touch":
				if touches++; touches == 3 {
					if err := os.WriteFile(end, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			case "delete":
				cancel()
			}
			if _, err := io.WriteString(nc, a[word]); err != nil {
				return
			}
		}
	}()
	sum, err := Run(ctx, Config{
		Dial: func(context.Context) (net.Conn, error) {
			return tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: authority.Pool, ServerName: tlstest.Name})
		},
		Addr: "server", Tubes: []Tube{{Name: "t"}}, Jobs: 1, Argv: []string{"sh", "-c", "until [ -e " + end + " ]; do sleep 0.05; done"},
		Grace: time.Minute, Timeout: time.Minute, Log: io.Discard, Minder: startMinder(t),
	})
	<-served
	if err != nil || sum.Deleted != 1 || sum.GivenUp != 0 {
		t.Errorf("%v, %+v", err, sum)
	}
}
