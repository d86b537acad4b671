package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// activateEnv makes the test binary start the trellisd at this path in its own
// place, under its own process id, as systemd does: LISTEN_PID names that id.
const activateEnv = "TRELLIS_TEST_ACTIVATE"

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

// activated starts trellisd with sockets passed to it. The environment is given
// without LISTEN_PID=self if env has another.
func activated(t *testing.T, files []*os.File, env []string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), activateEnv+"="+binary, "LISTEN_PID=self")
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = files
	return launchCommand(t, cmd)
}

// passable opens a socket and returns its file, to be passed on.
func passable(t *testing.T, network, addr string) (*os.File, net.Addr) {
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

func TestAllInheritedSocketsAreServed(t *testing.T) {
	t.Parallel()
	tcp, tcpAddr := passable(t, "tcp", "127.0.0.1:0")
	unix, unixAddr := passable(t, "unix", filepath.Join(socketDir(t), "s"))
	p := activated(t, []*os.File{tcp, unix}, []string{"LISTEN_FDS=2"}, "-V", "--log-format=json")
	s := ready(p, 2)
	for i, want := range []net.Addr{tcpAddr, unixAddr} {
		if s.addrs[i].String() != want.String() {
			t.Errorf("socket %d is %s; want %s", i, s.addrs[i], want)
		}
		c := s.dial(i)
		c.send("use inherited")
		c.want("USING inherited")
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(unixAddr.String()); err != nil {
		t.Errorf("the file of an inherited socket was removed: %v", err)
	}
}

func TestOptionsThatInheritedSocketsReplaceAreReported(t *testing.T) {
	t.Parallel()
	tcp, _ := passable(t, "tcp", "127.0.0.1:0")
	p := activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1"},
		"-l", "192.0.2.1", "-lunix:/nosuch/x", "-p77", "-V", "--log-format=json")
	ready(p, 1)
	for _, option := range []string{"-l 192.0.2.1", "-l unix:/nosuch/x", "-p 77"} {
		p.waitText("inherited listen fd; ignoring option: " + option)
	}
}

func TestABadActivationEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	tcp, _ := passable(t, "tcp", "127.0.0.1:0")
	tests := []struct {
		env  string
		file *os.File
		want string
	}{
		{"LISTEN_FDS=0", tcp, "bad socket activation: LISTEN_FDS=0;"},
		{"LISTEN_FDS=x", tcp, "bad socket activation: LISTEN_FDS=x;"},
		{"LISTEN_FDS=-1", tcp, "bad socket activation: LISTEN_FDS=-1;"},
		{"LISTEN_FDS=1x", tcp, "bad socket activation: LISTEN_FDS=1x;"},
		{"LISTEN_FDS=1 LISTEN_PID=x", tcp, "bad socket activation: LISTEN_PID=x;"},
		{"LISTEN_FDS=1 LISTEN_PID=0", tcp, "bad socket activation: LISTEN_PID=0;"},
		{"LISTEN_FDS=1", openFile(t, os.DevNull), "inherited fd 3 is not a TCP or UNIX listening socket"},
		{"LISTEN_FDS=1", socketFile(t, syscall.SOCK_DGRAM), "inherited fd 3 is not a TCP or UNIX listening socket"},
		{"LISTEN_FDS=1", socketFile(t, syscall.SOCK_STREAM), "inherited fd 3 is not a TCP or UNIX listening socket"},
		{"LISTEN_FDS=2", tcp, "inherited fd 4 is not a TCP or UNIX listening socket"},
	}
	for _, tt := range tests {
		p := activated(t, []*os.File{tt.file}, strings.Fields(tt.env), "-p0")
		if code := p.wait(); code != exitListen {
			t.Errorf("%s: exit code %d", tt.env, code)
		}
		if log := p.log(); len(log) != 1 || !strings.Contains(log[0], tt.want) {
			t.Errorf("%s: got %q; want %q", tt.env, log, tt.want)
		}
	}
}

func TestActivationMeantForAnotherProcessIsIgnored(t *testing.T) {
	t.Parallel()
	tcp, addr := passable(t, "tcp", "127.0.0.1:0")
	p := activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1", "LISTEN_PID=1"},
		"-l127.0.0.1", "-p0", "-V", "--log-format=json")
	if s := ready(p, 1); s.addrs[0].String() == addr.String() {
		t.Errorf("serves the other process's socket %s", addr)
	}
}

// notifySocket opens what NOTIFY_SOCKET names.
func notifySocket(t *testing.T) (conn *net.UnixConn, path string) {
	t.Helper()
	path = filepath.Join(socketDir(t), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn, path
}

func TestSystemdIsToldOfReadinessAndOfStopping(t *testing.T) {
	t.Parallel()
	conn, path := notifySocket(t)
	cmd := exec.Command(binary, "-l127.0.0.1", "-p0")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	p := launchCommand(t, cmd)
	next := func() string {
		t.Helper()
		b := make([]byte, 100)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if got := next(); got != "READY=1" {
		t.Fatalf("got %q", got)
	}
	p.signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Fatalf("got %q", got)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// socketFile is a socket that does not listen.
func socketFile(t *testing.T, kind int) *os.File {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

// socketDir returns a directory whose path is short enough for a socket's.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
