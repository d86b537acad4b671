package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mainEnv makes this test program the command.
const mainEnv = "TRELLIS_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" || len(os.Args) == 2 && os.Args[1] == minderName {
		os.Exit(runUntilSignalled(patientCommand()))
	}
	m.Run()
	_ = os.RemoveAll(serverDir)
}

// patientCommand is the command with longer time limits, where a test gives none: a machine that does much else may stop a
// process for seconds.
func patientCommand() *cobra.Command {
	root := newCommand()
	eachCommand(root, func(c *cobra.Command) {
		limit := "timeout"
		if c.HasParent() && c.Parent().Name() == "bench" { // whose --timeout is a scenario's
			limit = "patience"
		}
		for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			if f := flags.Lookup(limit); f != nil {
				if err := f.Value.Set(patience.String()); err != nil {
					panic(err)
				}
			}
		}
	})
	return root
}

// trellis runs the command in this process, and returns what it says and its exit status. Its standard input is empty.
func trellis(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := patientCommand()
	cmd.SetArgs(args)
	cmd.SetIn(new(bytes.Reader))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	status = run(t.Context(), cmd)
	return out.String(), errs.String(), status
}

// trellisIn runs the command as a process, with more in its environment.
func trellisIn(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(append(os.Environ(), mainEnv+"=1"), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// fullServer answers every put with OUT_OF_MEMORY. It returns its address.
func fullServer(t *testing.T) string {
	t.Helper()
	return serveEach(t, listen(t), func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			answer := "WATCHING 1"
			switch f := strings.Fields(line); f[0] {
			case "put":
				size := 0
				fmt.Sscan(f[4], &size)
				io.CopyN(io.Discard, in, int64(size)+2)
				answer = "OUT_OF_MEMORY"
			case "use":
				answer = "USING " + f[1]
			case "stats":
				answer = "OK 4\r\n---\n"
			case "reserve-with-timeout":
				answer = "TIMED_OUT"
			}
			fmt.Fprintf(c, "%s\r\n", answer)
		}
	})
}

func TestAServerThatFailsMakesTheExitStatusOne(t *testing.T) {
	out, errs, status := trellisIn(t, nil, "bench", "run", "-a", fullServer(t), "-n", "20", "-c", "2", "cycle")
	if status != 1 || !strings.Contains(out, "VIOLATION") || !strings.Contains(errs, "OUT_OF_MEMORY") {
		t.Errorf("status %d\n%s\n%s", status, out, errs)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for want, args := range map[string]string{
		"not known":                  "bench run fly",
		"accepts 1 arg":              "bench run",
		"unknown flag":               "bench run --fly cycle",
		"body size":                  "bench run --size x cycle",
		"no such file":               "bench run --mix /nonexistent mix",
		"want either":                "bench compare",
		"recovery needs":             "bench compare recovery",
		"matrix \"x\"":               "bench compare --matrix x",
		"no measurement of":          "bench compare --matrix cluster --rows fly",
		"of a --matrix":              "bench compare --rows fly cycle",
		"where {port}":               "bench compare --server beanstalkd cycle",
		"connection refus":           "bench run -a 127.0.0.1:1 cycle",
		"of the others can be":       "bench run -n 5 -t 1s cycle",
		"no use for producers":       "bench run --producers 3 cycle",
		"no use for a timeout":       "bench run --timeout 2s cycle",
		"no use for a backlog":       "bench run --backlog 5 -n 10 put",
		"--conns has no effect":      "bench compare --matrix standard -c 3",
		"0 rounds":                   "bench compare --rounds 0 --server=x{port} cycle",
		"processor 0 cannot be both": "bench compare --server-cpus 0 --load-cpus 0 --server=x{port} cycle",
	} {
		if out, errs, status := trellisIn(t, nil, strings.Fields(args)...); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("trellis %s: status %d, want %q\n%s%s", args, status, want, out, errs)
		}
	}
}

func TestHelpNamesEveryScenario(t *testing.T) {
	out, _, status := trellisIn(t, nil, "bench", "run", "--help")
	for _, name := range []string{
		"put", "cycle", "produce-consume", "fan-in", "many-tubes", "watch-many", "delayed", "priorities",
		"waiting", "bury-kick", "reserve-timeout", "churn", "connect", "idle", "large", "mix",
	} {
		if !strings.Contains(out, "\n  "+name+" ") || status != 0 {
			t.Errorf("%s is missing, status %d", name, status)
		}
	}
}

// peer is the command of beanstalkd. Without it, the test is skipped, or fails when TRELLIS_NEED_PEERS is 1.
func peer(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is set, and beanstalkd is not installed: %v", err)
		}
		t.Skipf("beanstalkd is not installed: %v", err)
	}
	return path + " -l {host} -p {port}"
}

func TestCompareWritesItsTable(t *testing.T) {
	server := peer(t)
	md := filepath.Join(t.TempDir(), "README.md")
	out, errs, status := trellisIn(t, nil, "bench", "compare", "--server", "a="+server, "--server", "b="+server, "--rounds", "1",
		"--markdown", md, "-n", "300", "-c", "3", "cycle")
	text, err := os.ReadFile(md)
	if status != 0 || err != nil || !strings.Contains(string(text), "| cycle | commands |") || !strings.Contains(out, "ratio") {
		t.Errorf("status %d, %v\n%s%s\n%s", status, err, out, errs, text)
	}
}

func TestAnUnfinishedComparisonLeavesTheTableOfTheLastOne(t *testing.T) {
	md := filepath.Join(t.TempDir(), "README.md")
	_, errs, status := trellisIn(t, nil, "bench", "compare", "--server", "a="+peer(t), "--rounds", "1", "--markdown", md, "-n", "10", "recovery")
	if status != 1 || !strings.Contains(errs, "{dir}") {
		t.Errorf("status %d\n%s", status, errs)
	}
	if text, err := os.ReadFile(md); err == nil {
		t.Errorf("written: %s", text)
	}
}

func TestRunWritesEveryFormat(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket") // nobody else can take it, as another program could a port
	words := strings.Fields(strings.NewReplacer("{host}", "unix:"+socket, "{port}", "0").Replace(peer(t)))
	server := exec.Command(words[0], words[1:]...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	waitFor(t, socket)
	file := func(name string) string { return filepath.Join(dir, name) }
	out, errs, status := trellisIn(t, nil, "bench", "run", "-a", socket, "-n", "500", "-c", "5", "--runs", "2",
		"--json", file("j"), "--csv", file("c"), "--hdr-log", file("h"), "produce-consume")
	if status != 0 || !strings.Contains(out, "put to reserved") {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	for name, want := range map[string]string{"j": `"commands_per_second"`, "c": "scenario,run,metric", "h": "[Histogram log format version"} {
		if text, err := os.ReadFile(file(name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %q", name, err, text)
		}
	}
	if out, _, status = trellisIn(t, nil, "bench", "run", "-a", socket, "-n", "10", "--json", "-", "put"); status != 0 || out[0] != '{' {
		t.Errorf("status %d\n%s", status, out)
	}
}

// waitFor waits until a server listens on a unix socket.
func waitFor(t *testing.T, socket string) {
	t.Helper()
	for t.Context().Err() == nil {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return
		}
		time.Sleep(time.Millisecond)
	}
}
