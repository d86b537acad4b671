package load

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// startBeanstalkd starts the server that everybody has at hand, and ends it with the test. Without it, the test is
// skipped, or fails when TRELLIS_NEED_PEERS is 1.
func startBeanstalkd(t *testing.T) bench.Address {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is set, and beanstalkd is not installed: %v", err)
		}
		t.Skipf("beanstalkd is not installed: %v", err)
	}
	// It wants to be told a port. Another program may take the port that was free: then it ends, and gets another one.
	for range 10 {
		if addr, ok := tryBeanstalkd(t, path); ok {
			return addr
		}
	}
	t.Fatal("beanstalkd does not start")
	return bench.Address{}
}

func tryBeanstalkd(t *testing.T, path string) (bench.Address, bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	addr, err := bench.ParseAddress("127.0.0.1:" + strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-l", "127.0.0.1", "-p", strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		stats, err := Stats(&addr, "")
		if err == nil && stats["pid"] == strconv.Itoa(cmd.Process.Pid) {
			return addr, true
		}
		select {
		case <-ended:
			return addr, false
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func TestEveryScenarioRunsCleanAgainstBeanstalkd(t *testing.T) {
	t.Parallel()
	addr := startBeanstalkd(t)
	for name, cfg := range scenarioCases(t, addr) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkClean(t, cfg)
		})
	}
}

func TestLocalServersAreMeasuredByTheKernel(t *testing.T) {
	addr := startBeanstalkd(t)
	cfg := quick(addr, "put")
	cfg.Count, cfg.Depth, cfg.Keep = 40000, 32, true
	run := mustRun(t, cfg).Runs[0]
	if run.ServerLocal != (host.Memory(os.Getpid()) > 0) {
		t.Errorf("server local: %v", run.ServerLocal)
	}
	if run.CPUPerCommand <= 0 || run.CPUPerCommand > 1e6 {
		t.Errorf("CPU time of %v ns a command", run.CPUPerCommand)
	}
	if run.ServerLocal && (run.BytesPerJob < 50 || run.BytesPerJob > 5000) {
		t.Errorf("%v bytes a job", run.BytesPerJob)
	}
}

func TestConnectionsAreWeighedWhileTheyAreOpen(t *testing.T) {
	addr := startBeanstalkd(t)
	for scenario, waiting := range map[string]int{"waiting": 0, "cycle": bench.MemoryConns} {
		cfg := quick(addr, scenario)
		cfg.Count, cfg.Waiting = 50, waiting
		if waiting == 0 {
			cfg.Conns = bench.MemoryConns
		}
		run := mustRun(t, cfg).Runs[0]
		if run.ServerLocal && (run.BytesPerConn == 0 || run.BytesPerConn > 1e5) {
			t.Errorf("%s: %v bytes a connection", scenario, run.BytesPerConn)
		}
	}
}
