package servertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// activateEnv makes the test binary start the trellisd at this path in its own
// place, under its own process id, as systemd does: LISTEN_PID names that id.
const activateEnv = "TRELLIS_TEST_ACTIVATE"

// activateAndExec becomes that trellisd.
func activateAndExec() {
	path := os.Getenv(activateEnv)
	os.Unsetenv(activateEnv)
	if os.Getenv("LISTEN_PID") == "self" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "exec:", err)
	os.Exit(99)
}

// Activated starts trellisd with inherited sockets. LISTEN_PID is its process id unless env has another.
func Activated(t *testing.T, files []*os.File, env []string, args ...string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), activateEnv+"="+Binary, "LISTEN_PID=self")
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = files
	return LaunchCommand(t, cmd)
}

// Passable opens a socket and returns its file, to be passed on.
func Passable(t *testing.T, network, addr string) (*os.File, net.Addr) {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	if ul, ok := l.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr()
}

// SocketDir returns a directory whose path is short enough for a socket's.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
