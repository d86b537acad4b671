package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/options"
	"trellis/reactor"
)

func TestTheHeapIsLimitedWithTheMemoryForJobs(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	const others = heapOfServer + 400_000*heapOfConnection + 5000*heapOfTube
	for _, tt := range []struct {
		env       string
		max, want int64
	}{
		{"", 0, limit},
		{"", 1 << 30, 1<<30 + others},
		{"", math.MaxInt64, math.MaxInt64},
		{"1GiB", 1 << 30, limit},
	} {
		t.Setenv("GOMEMLIMIT", tt.env)
		debug.SetMemoryLimit(limit)
		limitHeap(&options.Options{MaxMemory: tt.max, MaxConnections: 400_000, MaxTubes: 5000})
		if got := debug.SetMemoryLimit(-1); got != tt.want {
			t.Errorf("GOMEMLIMIT %q, max-memory %d: %d, want %d", tt.env, tt.max, got, tt.want)
		}
	}
	// Without bounds it is what the process can have, or what the defaults allow.
	t.Setenv("GOMEMLIMIT", "")
	limitHeap(&options.Options{MaxMemory: 64 << 20})
	least := int64(64<<20 + heapOfServer + reactor.DefaultMaxConnections()*heapOfConnection + options.DefaultMaxTubes*heapOfTube)
	if got := debug.SetMemoryLimit(-1); got != least {
		t.Errorf("without bounds: %d, want %d", got, least)
	}
}

func TestConnectionsBeyondMaxConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-connections=2", "-lunix:"+filepath.Join(socketDir(t), "s"), "-l127.0.0.1")
	// Listeners are accepted on in no order among them: these two have their places
	// when they are served.
	first, second := s.dial(0), s.dial(1)
	for _, c := range []*client{first, second} {
		c.send("use x")
		c.want("USING x")
	}
	for range 3 {
		for i := range s.addrs {
			c := s.dial(i)
			c.want("OUT_OF_MEMORY")
			c.wantEOF()
		}
	}
	for _, c := range []*client{first, second} {
		c.send("use x")
		c.want("USING x")
	}
	s.waitText("a connection is refused")
}

func TestIdleClientsAreClosedAfterIdleTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "--idle-timeout=1")
	began := time.Now()
	s.dial(0).wantEOF()
	if d := time.Since(began); d < time.Second-100*time.Millisecond {
		t.Errorf("closed after %v", d)
	}
	s.dialInTime("reserve-with-timeout 2").want("TIMED_OUT")
	s.waitText("an idle connection is closed")
}

func TestAClientThatLeavesABodyIsClosedAfterBodyTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "--body-timeout=1")
	c, holder := s.dial(0), s.dial(0)
	holder.send("use x")
	holder.want("USING x")
	c.send("put 0 0 60 9", "x")
	c.wantEOF()
	holder.send("list-tube-used")
	holder.want("USING x")
}

func TestAReplyBeyondMaxOutputEndsItsConnection(t *testing.T) {
	t.Parallel()
	// More than the system's buffers take, or the reply would never be pending.
	const size = 32 << 20
	s := start(t, "-z", strconv.Itoa(size), "--max-output=1048576")
	other := s.dial(0)
	other.send(fmt.Sprintf("put 0 0 60 %d\r\n%s", size, strings.Repeat("x", size)))
	other.want("INSERTED 1")
	c := s.dial(0)
	c.send("peek 1")
	s.waitText("it is owed more replies than may be kept")
	other.send("use x")
	other.want("USING x")
}

func TestAFloodOfTubesStopsAtMaxTubes(t *testing.T) {
	t.Parallel()
	const limit = 1000
	s := start(t, "--max-tubes", strconv.Itoa(limit))
	var clients []*client
	made := 1 // default
	for i := range 4 {
		c := s.dial(0)
		clients = append(clients, c)
		for j := range 400 {
			c.send(fmt.Sprintf("watch flood-%d-%d", i, j))
		}
		for range 400 {
			switch line := c.line(); {
			case strings.HasPrefix(line, "WATCHING "):
				made++
			case line != "OUT_OF_MEMORY":
				t.Fatalf("got %q", line)
			}
		}
	}
	c := s.dial(0)
	if got := stats(c)["current-tubes"]; made != limit || got != strconv.Itoa(limit) {
		t.Errorf("%d tubes were made, there are %s", made, got)
	}
	c.send("use another", "use flood-0-0", "put 0 0 60 1", "x")
	c.want("OUT_OF_MEMORY", "USING flood-0-0", "INSERTED 1")
	_ = clients[1].conn.Close() // its tubes go
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.send("use another")
		if c.line() == "USING another" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no room although tubes have gone")
		}
	}
}

func TestAWatchListStopsAtMaxWatched(t *testing.T) {
	t.Parallel()
	c := start(t, "--max-watched=3").dial(0)
	c.send("watch a", "watch b", "watch c", "watch a", "ignore a", "watch c")
	c.want("WATCHING 2", "WATCHING 3", "OUT_OF_MEMORY", "WATCHING 3", "WATCHING 2", "WATCHING 3")
}

func TestTheBinlogsFilesAreTheServersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask 000 && exec "$0" "$@"`, binary, "-V", "--log-format=json", "-p0", "-l127.0.0.1", "-b", dir)
	c := ready(launchCommand(t, cmd), 1).dial(0)
	c.send("put 0 0 60 1", "x")
	c.want("INSERTED 1")
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
	s := start(t, "-VV", "-z100", "-b", t.TempDir(), "--max-connections=2")
	c := s.dial(0)
	c.send("use tube-"+secret, "put 0 0 60 7", secret, "reserve-with-timeout 0", secret,
		"put 0 0 60 1", secret, "put 0 0 60 1000", strings.Repeat(secret, 143)[:1000], "peek-ready")
	c.want("USING tube-"+secret, "INSERTED 1", "TIMED_OUT", "UNKNOWN_COMMAND", "EXPECTED_CRLF")
	_ = c.conn.(*net.TCPConn).SetLinger(0)
	_ = c.conn.Close()
	for range 3 {
		_, _ = fmt.Fprint(s.dial(0).conn, secret)
	}
	s.waitText("a connection is refused")
	s.signal(os.Interrupt)
	s.wait()
	if log := strings.Join(s.log(), "\n"); strings.Contains(log, secret) {
		t.Errorf("it logs what clients send:\n%s", log)
	}
	if bytes.Contains(s.stdout.Bytes(), []byte(secret)) {
		t.Error("it prints what clients send")
	}
}
