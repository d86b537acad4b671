//go:build proof

package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// suiteResult is what mocha's JSON reporter writes.
type suiteResult struct {
	Passes, Failures, Pending []suiteTest
}

type suiteTest struct{ FullTitle string }

func titles(tests []suiteTest) (all []string) {
	for _, t := range tests {
		all = append(all, t.FullTitle)
	}
	slices.Sort(all)
	return all
}

// runFivebeans runs the client's suite against a server on 127.0.0.1.
func runFivebeans(node, dir, port string) (*suiteResult, error) {
	preload, err := filepath.Abs("testdata/fivebeans/port.js")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(node, "--no-deprecation", "--require", preload, filepath.Join(dir, "node_modules/mocha/bin/_mocha"),
		"--timeout", "8000", "--reporter", "json", "test/")
	cmd.Dir = filepath.Join(dir, "node_modules/fivebeans")
	cmd.Env = append(os.Environ(), "TRELLIS_PORT="+port)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError // the number of failures
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	var result suiteResult
	return &result, json.Unmarshal(out, &result)
}

// beanstalkdPort starts a beanstalkd on a free port of 127.0.0.1.
func beanstalkdPort(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(path, "-l", "127.0.0.1", "-p", "0", "-V")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for in := bufio.NewScanner(stdout); in.Scan(); {
		// bind 3 127.0.0.1:40873
		if words := strings.Fields(in.Text()); len(words) == 3 && words[0] == "bind" {
			go io.Copy(io.Discard, stdout)
			return servertest.PortOf(t, words[2])
		}
	}
	t.Fatal("beanstalkd printed no port")
	return ""
}

// The suite of the Node client has 55 tests. One of them is switched off, and one
// fails whatever the server: it expects another type of error number than Node
// has.
func TestFivebeansPassesWhereItPassesWithBeanstalkd(t *testing.T) {
	if servertest.RaceEnabled {
		t.Skip("the suite has timing of its own, for which a server that is watched for races is too slow")
	}
	beanstalkd, err := exec.LookPath("beanstalkd")
	if err != nil {
		servertest.NeedPeer(t, "beanstalkd is not installed: %v", err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		servertest.NeedPeer(t, "Node is not installed: %v", err)
	}
	dir := os.Getenv("TRELLIS_FIVEBEANS")
	if dir == "" {
		servertest.NeedPeer(t, "the npm package fivebeans is not installed: TRELLIS_FIVEBEANS names no folder")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules/fivebeans")); err != nil {
		servertest.NeedPeer(t, "the npm package fivebeans is not installed: %v", err)
	}

	type outcome struct {
		result *suiteResult
		err    error
	}
	run := func(port string) chan outcome {
		ch := make(chan outcome, 1)
		go func() {
			result, err := runFivebeans(node, dir, port)
			ch <- outcome{result, err}
		}()
		return ch
	}
	// The suite expects what it waits for to happen in time, which on a loaded
	// machine it does not always, with either server.
	var differences []string
	for range servertest.Attempts {
		reference := run(beanstalkdPort(t, beanstalkd))
		ours := run(servertest.PortOf(t, servertest.Start(t).Addrs[0].String()))
		want, got := <-reference, <-ours
		if err := errors.Join(want.err, got.err); err != nil {
			t.Fatal(err)
		}
		if differences = compareSuites(want.result, got.result); differences == nil {
			return
		}
	}
	t.Error(strings.Join(differences, "\n"))
}

// compareSuites tells in what the suite went otherwise than it should with
// beanstalkd, or with ours otherwise than with that.
func compareSuites(want, got *suiteResult) (differences []string) {
	if len(want.Passes) != 53 || len(want.Failures) != 1 {
		differences = append(differences,
			fmt.Sprintf("with beanstalkd %d tests pass and fail: %q", len(want.Passes), titles(want.Failures)))
	}
	for _, list := range []struct {
		name      string
		got, want []suiteTest
	}{
		{"pass", got.Passes, want.Passes},
		{"fail", got.Failures, want.Failures},
		{"are pending", got.Pending, want.Pending},
	} {
		if got, want := titles(list.got), titles(list.want); !slices.Equal(got, want) {
			differences = append(differences, fmt.Sprintf("with trellisd these %s:\n%s\nwith beanstalkd these:\n%s",
				list.name, strings.Join(got, "\n"), strings.Join(want, "\n")))
		}
	}
	return differences
}
