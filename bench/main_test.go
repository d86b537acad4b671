package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// fakeEnv makes this test program a fake server: its first argument is a port, "lossy" as the second makes it lose jobs,
// "broken" end at once, and "once" end at once when it is started a second time on the directory that follows.
const fakeEnv = "TRELLIS_BENCH_TEST_FAKE"

func TestMain(m *testing.M) {
	switch os.Getenv(fakeEnv) {
	case "":
	case "limit":
		tellLimit()
		return
	default:
		serveFake(os.Args[1:])
		return
	}
	// A worker that waits occupies one of Go's processors; the server in this process needs some, too.
	runtime.GOMAXPROCS(16)
	m.Run()
}

// tellLimit writes how many files a child of this program may have open.
func tellLimit() {
	err := raiseFileLimit(0)
	if err == nil {
		cmd := exec.Command("sh", "-c", "ulimit -Sn")
		cmd.Stdout = os.Stdout
		err = cmd.Run()
	}
	if err != nil {
		fmt.Println(err)
	}
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
	s := &fakeServer{jobs: make(map[uint64]*fakeJob)}
	if len(args) > 1 && args[1] == "lossy" {
		s.faults.lose = 50
	}
	s.wake = sync.NewCond(&s.mu)
	s.accept(l)
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
