package process

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestAUnixPathOnWhichAServerAnswersIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(servertest.SocketDir(t), "s")
	s := servertest.Start(t, "-lunix:"+path)
	second := servertest.Launch(t, "-lunix:"+path)
	if code := second.Wait(); code != servertest.ExitListen {
		t.Errorf("exit code %d", code)
	}
	want := "trellisd: cannot listen on unix:" + path + ": another server is listening there; stop it or choose another path"
	if got := strings.Join(second.Log(), "\n"); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestAStaleUnixSocketIsReplacedWithAMessage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(servertest.SocketDir(t), "s")
	first := servertest.Start(t, "-lunix:"+path)
	first.Signal(syscall.SIGKILL)
	first.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, "-lunix:"+path)
	s.WaitText("removing existing local socket to replace it")
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestOtherFilesAtAUnixPathAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := servertest.SocketDir(t)
	file, dangling, datagram := filepath.Join(dir, "f"), filepath.Join(dir, "l"), filepath.Join(dir, "d")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nosuch", dangling); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagram, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, path := range []string{file, dangling, datagram, dir} {
		p := servertest.Launch(t, "-lunix:"+path)
		if code := p.Wait(); code != servertest.ExitListen {
			t.Errorf("%s: exit code %d", path, code)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file has changed: %q, %v", b, err)
	}
}

func TestTheModeOfAUnixSocketFollowsTheUmask(t *testing.T) {
	t.Parallel()
	for umask, want := range map[string]fs.FileMode{"000": 0o777, "022": 0o755, "077": 0o700} {
		path := filepath.Join(servertest.SocketDir(t), "s")
		cmd := exec.Command("sh", "-c", "umask "+umask+` && exec "$0" "$@"`, servertest.Binary, "-V", "--log-format=json", "-lunix:"+path)
		servertest.Ready(servertest.LaunchCommand(t, cmd), 1)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != fs.ModeSocket|want {
			t.Errorf("umask %s: mode %v; want %v", umask, got, want)
		}
	}
}

func TestAUnixSocketIsRemovedAtTheEndUnlessItIsAnothers(t *testing.T) {
	t.Parallel()
	dir := servertest.SocketDir(t)
	own, replaced := filepath.Join(dir, "own"), filepath.Join(dir, "replaced")
	s := servertest.Start(t, "-lunix:"+own, "-lunix:"+replaced)
	if err := os.Remove(replaced); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", replaced)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(own); err == nil {
		t.Error("its own file is still there")
	}
	if _, err := os.Lstat(replaced); err != nil {
		t.Errorf("the other server's file is gone: %v", err)
	}
}

func TestAUnixSocketIsRemovedWhenTheStartFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(servertest.SocketDir(t), "s")
	for _, fail := range []string{"-unosuchuser", "-l192.0.2.1"} {
		p := servertest.Launch(t, "-lunix:"+path, fail)
		if p.Wait() == 0 {
			t.Errorf("%s: started", fail)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s: the file is still there", fail)
		}
	}
}

func TestAUnixPathIsTakenLiterally(t *testing.T) {
	t.Parallel()
	dir := servertest.SocketDir(t)
	cmd := exec.Command(servertest.Binary, "-V", "--log-format=json", "-lunix:@s")
	cmd.Dir = dir
	servertest.Ready(servertest.LaunchCommand(t, cmd), 1)
	if _, err := os.Lstat(filepath.Join(dir, "@s")); err != nil {
		t.Error(err)
	}
}

func TestAUnixSocketBelongsToTheUserThatTheServerBecomes(t *testing.T) {
	t.Parallel()
	uid, gid := lookupNobody(t)
	path := filepath.Join(servertest.SocketDir(t), "s")
	s := servertest.Start(t, "-u", "nobody", "-lunix:"+path)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != uid || stat.Gid != gid {
		t.Errorf("it belongs to user %d and group %d, want %d and %d", stat.Uid, stat.Gid, uid, gid)
	}
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestTheModeOfAUnixSocketIsWhatSocketModeSays(t *testing.T) {
	t.Parallel()
	for umask, mode := range map[string]fs.FileMode{"000": 0o660, "077": 0o666} {
		path := filepath.Join(servertest.SocketDir(t), "s")
		cmd := exec.Command("sh", "-c", "umask "+umask+` && exec "$0" "$@"`, servertest.Binary, "-V", "--log-format=json", "-lunix:"+path, fmt.Sprintf("--socket-mode=%#o", mode))
		c := servertest.Ready(servertest.LaunchCommand(t, cmd), 1).Dial(0)
		info, err := os.Lstat(path)
		servertest.NoError(t, err)
		if got := info.Mode(); got != fs.ModeSocket|mode {
			t.Errorf("umask %s: mode %v; want %v", umask, got, mode)
		}
		c.Send("use x")
		c.Want("USING x")
	}
}
