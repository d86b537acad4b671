package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestAllInheritedSocketsAreServed(t *testing.T) {
	t.Parallel()
	tcp, tcpAddr := servertest.Passable(t, "tcp", "127.0.0.1:0")
	unix, unixAddr := servertest.Passable(t, "unix", filepath.Join(servertest.SocketDir(t), "s"))
	p := servertest.Activated(t, []*os.File{tcp, unix}, []string{"LISTEN_FDS=2"}, "-V", "--log-format=json")
	s := servertest.Ready(p, 2)
	for i, want := range []net.Addr{tcpAddr, unixAddr} {
		if s.Addrs[i].String() != want.String() {
			t.Errorf("socket %d is %s; want %s", i, s.Addrs[i], want)
		}
		c := s.Dial(i)
		c.Send("use inherited")
		c.Want("USING inherited")
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(unixAddr.String()); err != nil {
		t.Errorf("the file of an inherited socket was removed: %v", err)
	}
}

func TestOptionsThatInheritedSocketsReplaceAreReported(t *testing.T) {
	t.Parallel()
	tcp, _ := servertest.Passable(t, "tcp", "127.0.0.1:0")
	p := servertest.Activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1"},
		"-l", "192.0.2.1", "-lunix:/nosuch/x", "-p77", "-V", "--log-format=json")
	servertest.Ready(p, 1)
	for _, option := range []string{"-l 192.0.2.1", "-l unix:/nosuch/x", "-p 77"} {
		p.WaitText("inherited listen fd; ignoring option: " + option)
	}
}

func TestABadActivationEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	tcp, _ := servertest.Passable(t, "tcp", "127.0.0.1:0")
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
		p := servertest.Activated(t, []*os.File{tt.file}, strings.Fields(tt.env), "-p0")
		if code := p.Wait(); code != servertest.ExitListen {
			t.Errorf("%s: exit code %d", tt.env, code)
		}
		if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], tt.want) {
			t.Errorf("%s: got %q; want %q", tt.env, log, tt.want)
		}
	}
}

func TestActivationMeantForAnotherProcessIsIgnored(t *testing.T) {
	t.Parallel()
	tcp, addr := servertest.Passable(t, "tcp", "127.0.0.1:0")
	p := servertest.Activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1", "LISTEN_PID=1"},
		"-l127.0.0.1", "-p0", "-V", "--log-format=json")
	if s := servertest.Ready(p, 1); s.Addrs[0].String() == addr.String() {
		t.Errorf("serves the other process's socket %s", addr)
	}
}

// notifySocket opens what NOTIFY_SOCKET names.
func notifySocket(t *testing.T) (conn *net.UnixConn, path string) {
	t.Helper()
	path = filepath.Join(servertest.SocketDir(t), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn, path
}

func TestSystemdIsToldOfReadinessAndOfStopping(t *testing.T) {
	t.Parallel()
	conn, path := notifySocket(t)
	cmd := exec.Command(servertest.Binary, "-l127.0.0.1", "-p0")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	p := servertest.LaunchCommand(t, cmd)
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
	p.Signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Fatalf("got %q", got)
	}
	if code := p.Wait(); code != 0 {
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
