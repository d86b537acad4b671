package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// needSignal skips the test where the signal is ignored by this process, and so by the servers
// that it starts, as under nohup or in the background of a script.
func needSignal(t *testing.T, sig os.Signal) {
	t.Helper()
	if signal.Ignored(sig) {
		t.Skip("ignored by this process, and so by the servers that it starts")
	}
}

func TestSignalsThatStopTheServer(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			needSignal(t, sig)
			s := start(t)
			idle, waiting := s.dial(0), s.dial(0)
			waiting.send("use x", "reserve")
			waiting.want("USING x")
			s.signal(sig)
			idle.wantEOF()
			waiting.wantEOF()
			if code := s.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// late tells whether the clients of a server that has ended had no time to read: a machine that
// stalls may hold them up for longer than the server waits.
func (s *server) late() bool {
	return slices.ContainsFunc(s.log(), func(l string) bool { return strings.Contains(l, "did not read their last replies in time") })
}

func TestWhatWasAskedBeforeTheStopIsAnswered(t *testing.T) {
	t.Parallel()
	for range attempts {
		s, answered := stopAndRead(t)
		if answered {
			return
		}
		if !s.late() {
			break
		}
	}
	t.Error("not all commands were answered")
}

// stopAndRead stops a server that owes replies to many commands, and tells whether all came.
func stopAndRead(t *testing.T) (*server, bool) {
	t.Helper()
	const jobs, size = 20, 1 << 20
	s := start(t, "-z", strconv.Itoa(size))
	c := s.dial(0)
	body := strings.Repeat("x", size)
	c.send("put 0 0 60 "+strconv.Itoa(size), body)
	c.want("INSERTED 1")

	// Far more than the sockets' buffers hold: most of it is still in the server
	// when the signal comes. The first bytes tell that the commands have arrived.
	c.send(strings.TrimSuffix(strings.Repeat("peek 1\r\n", jobs), "\r\n"))
	if _, err := c.in.Peek(1); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGTERM)
	s.waitText(`"stopping"`)

	want := []byte("FOUND 1 " + strconv.Itoa(size) + "\r\n" + body + "\r\n")
	got := make([]byte, len(want))
	answered := 0
	for ; answered < jobs; answered++ {
		if _, err := io.ReadFull(c.in, got); err != nil {
			break
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("reply %d is damaged", answered)
		}
	}
	t.Logf("%d of %d commands were answered", answered, jobs)
	c.wantEOF()
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return s, answered == jobs
}

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			needSignal(t, sig)
			for range attempts {
				s := start(t, "-z1048576")
				c := s.dial(0)
				// Replies that nobody reads keep the server from ending in order.
				c.send("put 0 0 60 1048576", strings.Repeat("x", 1<<20))
				c.want("INSERTED 1")
				c.send(strings.TrimSuffix(strings.Repeat("peek 1\r\n", 100), "\r\n"))
				if _, err := c.in.Peek(1); err != nil {
					t.Fatal(err)
				}
				s.signal(syscall.SIGTERM)
				s.waitText(`"stopping"`)
				s.signal(sig)
				code := s.wait()
				if s.late() {
					continue
				}
				if code != 128+int(sig) {
					t.Errorf("exit code %d", code)
				}
				s.waitText("stopping at once")
				return
			}
			t.Error("it does not end at once")
		})
	}
}

func TestASignalBeforeClientsAreServedEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	// The server waits for ever for somebody to write to what seems to be its log.
	dir, path := t.TempDir(), filepath.Join(socketDir(t), "s")
	if err := syscall.Mkfifo(filepath.Join(dir, "trellis.0000000001"), 0o600); err != nil {
		t.Skip("no pipe can be made here: ", err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			needSignal(t, sig)
			p := launch(t, "-V", "--log-format=json", "-lunix:"+path, "-b", dir)
			p.waitText(`"listening"`)
			p.signal(sig)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			p.waitText("stopping before clients are served")
			if _, err := os.Lstat(path); err == nil {
				t.Error("the socket's file is still there")
			}
		})
	}
}

func TestUSR1RefusesJobs(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.dial(0)
	c.send("put 0 0 60 1", "a")
	c.want("INSERTED 1")
	for range 2 { // a second signal changes nothing
		s.signal(syscall.SIGUSR1)
		s.waitText("drain mode")
		c.send("put 0 0 60 1", "b", "put 0 0 60 1", "abc")
		c.want("DRAINING", "EXPECTED_CRLF", "UNKNOWN_COMMAND")
		if got := stats(c)["draining"]; got != "true" {
			t.Errorf("draining: %s", got)
		}
	}
	c.send("reserve", "delete 1")
	c.want("RESERVED 1 1", "a", "DELETED")
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestNohupIsRespected(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" "$@"`, binary, "-l127.0.0.1", "-p0", "-V", "--log-format=json")
	s := ready(launchCommand(t, cmd), 1)
	s.signal(syscall.SIGHUP)
	s.waitText("loading files again") // which ends nothing, and so is not ignored
	s.signal(syscall.SIGINT)
	s.signal(syscall.SIGUSR1) // handled later than the other would have been
	s.waitText("drain mode")
	c := s.dial(0)
	c.send("use x")
	c.want("USING x")
}

func TestTheServerOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	path := filepath.Join(socketDir(t), "s")
	cmd := exec.Command(binary, "-VV", "-l", "unix:"+path)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for got := ""; !strings.Contains(got, "msg=ready"); {
		b := make([]byte, 1000)
		n, err := r.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got += string(b[:n])
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for range 3 { // each connection is logged
		c := dial(t, address{"unix", path})
		c.send("use x", "quit")
		c.want("USING x")
		c.wantEOF()
	}
}

// A balancer is to notice that a server or a member stops before it does.
func TestClientsAreServedForAWhileAfterTheSignal(t *testing.T) {
	t.Parallel()
	serves := func(t *testing.T, p *process, url string, put func()) {
		p.signal(syscall.SIGTERM)
		for status, body := 0, ""; status != http.StatusServiceUnavailable || body != "stopping\n"; {
			status, body = httpGet(t, url+"/readyz")
		}
		put()
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("exit code %d", code)
		}
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s, url := monitored(t, "--stop-delay=3600")
		serves(t, s.process, url, func() {
			c := s.dial(0)
			c.send("put 0 0 60 1", "x")
			c.want("INSERTED 1")
		})
	})
	t.Run("member", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, 1)
		n := w.nodes[0]
		n.args = []string{"--stop-delay=3600"}
		w.startAll()
		w.leader()
		serves(t, n.p, "http://"+n.http, func() {
			w.eventually("a client is served", func() bool {
				c, err := beanstalk.DialTimeout("tcp", n.clients(), patience)
				if err == nil {
					_, err = c.Put([]byte("x"), 0, 0, time.Minute)
					_ = c.Close()
				}
				return err == nil
			})
		})
	})
	t.Run("and no longer", func(t *testing.T) {
		t.Parallel()
		s := start(t, "--stop-delay=1")
		s.signal(syscall.SIGTERM)
		if code := s.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}
