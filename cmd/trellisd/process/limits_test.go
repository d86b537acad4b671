package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestConnectionsBeyondMaxConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--max-connections=2", "-lunix:"+filepath.Join(servertest.SocketDir(t), "s"), "-l127.0.0.1")
	// Listeners are accepted on in no order among them: these two have their places
	// when they are served.
	first, second := s.Dial(0), s.Dial(1)
	for _, c := range []*servertest.Client{first, second} {
		c.Send("use x")
		c.Want("USING x")
	}
	for range 3 {
		for i := range s.Addrs {
			c := s.Dial(i)
			c.Want("OUT_OF_MEMORY")
			c.WantEOF()
		}
	}
	for _, c := range []*servertest.Client{first, second} {
		c.Send("use x")
		c.Want("USING x")
	}
	s.WaitText("a connection is refused")
}

func TestIdleClientsAreClosedAfterIdleTimeout(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--idle-timeout=1")
	began := time.Now()
	s.Dial(0).WantEOF()
	if d := time.Since(began); d < time.Second-100*time.Millisecond {
		t.Errorf("closed after %v", d)
	}
	s.DialInTime("reserve-with-timeout 2").Want("TIMED_OUT")
	s.WaitText("an idle connection is closed")
}

func TestAClientThatLeavesABodyIsClosedAfterBodyTimeout(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--body-timeout=1")
	c, holder := s.Dial(0), s.Dial(0)
	holder.Send("use x")
	holder.Want("USING x")
	c.Send("put 0 0 60 9", "x")
	c.WantEOF()
	holder.Send("list-tube-used")
	holder.Want("USING x")
}

func TestAReplyBeyondMaxOutputEndsItsConnection(t *testing.T) {
	t.Parallel()
	// More than the system's buffers take, or the reply would never be pending.
	const size = 32 << 20
	s := servertest.Start(t, "-z", strconv.Itoa(size), "--max-output=1048576")
	other := s.Dial(0)
	other.Send(fmt.Sprintf("put 0 0 60 %d\r\n%s", size, strings.Repeat("x", size)))
	other.Want("INSERTED 1")
	c := s.Dial(0)
	c.Send("peek 1")
	s.WaitText("it is owed more replies than may be kept")
	other.Send("use x")
	other.Want("USING x")
}

func TestAFloodOfTubesStopsAtMaxTubes(t *testing.T) {
	t.Parallel()
	const limit = 1000
	s := servertest.Start(t, "--max-tubes", strconv.Itoa(limit))
	var clients []*servertest.Client
	made := 1 // default
	for i := range 4 {
		c := s.Dial(0)
		clients = append(clients, c)
		for j := range 400 {
			c.Send(fmt.Sprintf("watch flood-%d-%d", i, j))
		}
		for range 400 {
			switch line := c.Line(); {
			case strings.HasPrefix(line, "WATCHING "):
				made++
			case line != "OUT_OF_MEMORY":
				t.Fatalf("got %q", line)
			}
		}
	}
	c := s.Dial(0)
	if got := servertest.Stats(c)["current-tubes"]; made != limit || got != strconv.Itoa(limit) {
		t.Errorf("%d tubes were made, there are %s", made, got)
	}
	c.Send("use another", "use flood-0-0", "put 0 0 60 1", "x")
	c.Want("OUT_OF_MEMORY", "USING flood-0-0", "INSERTED 1")
	_ = clients[1].Conn.Close() // its tubes go
	for deadline := time.Now().Add(servertest.Patience); ; time.Sleep(time.Millisecond) {
		c.Send("use another")
		if c.Line() == "USING another" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no room although tubes have gone")
		}
	}
}

func TestAWatchListStopsAtMaxWatched(t *testing.T) {
	t.Parallel()
	c := servertest.Start(t, "--max-watched=3").Dial(0)
	c.Send("watch a", "watch b", "watch c", "watch a", "ignore a", "watch c")
	c.Want("WATCHING 2", "WATCHING 3", "OUT_OF_MEMORY", "WATCHING 3", "WATCHING 2", "WATCHING 3")
}

func TestTheBinlogsFilesAreTheServersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask 000 && exec "$0" "$@"`, servertest.Binary, "-V", "--log-format=json", "-p0", "-l127.0.0.1", "-b", dir)
	c := servertest.Ready(servertest.LaunchCommand(t, cmd), 1).Dial(0)
	c.Send("put 0 0 60 1", "x")
	c.Want("INSERTED 1")
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestNoBodyAndNoTubeNameIsLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	s := servertest.Start(t, "-VV", "-z100", "-b", t.TempDir(), "--max-connections=2")
	c := s.Dial(0)
	c.Send("use tube-"+secret, "put 0 0 60 7", secret, "reserve-with-timeout 0", secret,
		"put 0 0 60 1", secret, "put 0 0 60 1000", strings.Repeat(secret, 143)[:1000], "peek-ready")
	c.Want("USING tube-"+secret, "INSERTED 1", "TIMED_OUT", "UNKNOWN_COMMAND", "EXPECTED_CRLF")
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Conn.Close()
	for range 3 {
		_, _ = fmt.Fprint(s.Dial(0).Conn, secret)
	}
	s.WaitText("a connection is refused")
	s.Signal(syscall.SIGTERM)
	s.Wait()
	if log := strings.Join(s.Log(), "\n"); strings.Contains(log, secret) {
		t.Errorf("it logs what clients send:\n%s", log)
	}
	if bytes.Contains(s.Stdout.Bytes(), []byte(secret)) {
		t.Error("it prints what clients send")
	}
}
