package compare

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trellis/bench/internal/faulty"
)

// fakeEnv makes this test program a server of package faulty. The first argument is its port. With "lossy" as the second
// it loses jobs, with "broken" it ends at once, and with "once" it ends at once when it is started for the second time on
// the directory that follows.
const fakeEnv = "TRELLIS_COMPARE_TEST_FAKE"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) != "" {
		serveFake(os.Args[1:])
		return
	}
	m.Run()
}

func serveFake(args []string) {
	if len(args) > 2 && args[1] == "once" && os.Mkdir(filepath.Join(args[2], "log"), 0o700) != nil {
		fmt.Fprintln(os.Stderr, "I do not know this log")
		os.Exit(1)
	}
	if len(args) > 1 && args[1] == "broken" {
		fmt.Fprintln(os.Stderr, "I do not know that option")
		os.Exit(5)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var faults faulty.Faults
	if len(args) > 1 && args[1] == "lossy" {
		faults.Lose = 50
	}
	faulty.Serve(l, faults)
}

// fakeCommand is a server of this program, for comparisons.
func fakeCommand(t *testing.T, name, args string) Server {
	t.Helper()
	t.Setenv(fakeEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: self + " {port} " + args}
}

// beanstalkd is the server that everybody has at hand. Without it, the test is skipped, or fails when
// TRELLIS_NEED_PEERS is 1.
func beanstalkd(t *testing.T, args string) Server {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is set, and beanstalkd is not installed: %v", err)
		}
		t.Skipf("beanstalkd is not installed: %v", err)
	}
	return Server{Name: "beanstalkd", Command: path + " -l {host} -p {port} " + args}
}

// patienceOfFaults is how long a load waits for what a faulty server does not send.
const patienceOfFaults = 2 * time.Second
