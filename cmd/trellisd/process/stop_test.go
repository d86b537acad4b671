package process

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

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
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
			s := servertest.Start(t)
			idle, waiting := s.Dial(0), s.Dial(0)
			waiting.Send("use x", "reserve")
			waiting.Want("USING x")
			s.Signal(sig)
			idle.WantEOF()
			waiting.WantEOF()
			if code := s.Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// late reports whether the clients of a server that has ended had no time to read: a machine that
// stalls may hold them up for longer than the server waits.
func late(s *servertest.Server) bool {
	return slices.ContainsFunc(s.Log(), func(l string) bool { return strings.Contains(l, "did not read their last replies in time") })
}

func TestWhatWasAskedBeforeTheStopIsAnswered(t *testing.T) {
	t.Parallel()
	for range servertest.Attempts {
		s, answered := stopAndRead(t)
		if answered {
			return
		}
		if !late(s) {
			break
		}
	}
	t.Error("not all commands were answered")
}

// stopAndRead stops a server that owes replies to many commands, and reports whether all came.
func stopAndRead(t *testing.T) (*servertest.Server, bool) {
	t.Helper()
	const jobs, size = 20, 1 << 20
	s := servertest.Start(t, "-z", strconv.Itoa(size))
	c := s.Dial(0)
	body := strings.Repeat("x", size)
	c.Send("put 0 0 60 "+strconv.Itoa(size), body)
	c.Want("INSERTED 1")

	// Far more than the sockets' buffers hold: most of it is still in the server
	// when the signal comes. The first bytes tell that the commands have arrived.
	c.Send(strings.TrimSuffix(strings.Repeat("peek 1\r\n", jobs), "\r\n"))
	if _, err := c.In.Peek(1); err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGTERM)
	s.WaitText(`"stopping"`)

	want := []byte("FOUND 1 " + strconv.Itoa(size) + "\r\n" + body + "\r\n")
	got := make([]byte, len(want))
	answered := 0
	for ; answered < jobs; answered++ {
		if _, err := io.ReadFull(c.In, got); err != nil {
			break
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("reply %d is damaged", answered)
		}
	}
	t.Logf("%d of %d commands were answered", answered, jobs)
	c.WantEOF()
	if code := s.Wait(); code != 0 {
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
			for range servertest.Attempts {
				s := servertest.Start(t, "-z1048576")
				c := s.Dial(0)
				// Replies that nobody reads keep the server from ending in order.
				c.Send("put 0 0 60 1048576", strings.Repeat("x", 1<<20))
				c.Want("INSERTED 1")
				c.Send(strings.TrimSuffix(strings.Repeat("peek 1\r\n", 100), "\r\n"))
				if _, err := c.In.Peek(1); err != nil {
					t.Fatal(err)
				}
				s.Signal(syscall.SIGTERM)
				s.WaitText(`"stopping"`)
				s.Signal(sig)
				code := s.Wait()
				if late(s) {
					continue
				}
				if code != 128+int(sig) {
					t.Errorf("exit code %d", code)
				}
				s.WaitText("stopping at once")
				return
			}
			t.Error("it does not end at once")
		})
	}
}

func TestASignalBeforeClientsAreServedEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	// The server waits for ever for somebody to write to what seems to be its log.
	dir, path := t.TempDir(), filepath.Join(servertest.SocketDir(t), "s")
	if err := syscall.Mkfifo(filepath.Join(dir, "trellis.0000000001"), 0o600); err != nil {
		t.Skip("no pipe can be made here: ", err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			needSignal(t, sig)
			p := servertest.Launch(t, "-V", "--log-format=json", "-lunix:"+path, "-b", dir)
			p.WaitText(`"listening"`)
			p.Signal(sig)
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			p.WaitText("stopping before clients are served")
			if _, err := os.Lstat(path); err == nil {
				t.Error("the socket's file is still there")
			}
		})
	}
}

func TestUSR1RefusesJobs(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	c := s.Dial(0)
	c.Send("put 0 0 60 1", "a")
	c.Want("INSERTED 1")
	for range 2 { // a second signal changes nothing
		s.Signal(syscall.SIGUSR1)
		s.WaitText("drain mode")
		c.Send("put 0 0 60 1", "b", "put 0 0 60 1", "abc")
		c.Want("DRAINING", "EXPECTED_CRLF", "UNKNOWN_COMMAND")
		if got := servertest.Stats(c)["draining"]; got != "true" {
			t.Errorf("draining: %s", got)
		}
	}
	c.Send("reserve", "delete 1")
	c.Want("RESERVED 1 1", "a", "DELETED")
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestNohupIsRespected(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" "$@"`, servertest.Binary, "-l127.0.0.1", "-p0", "-V", "--log-format=json")
	s := servertest.Ready(servertest.LaunchCommand(t, cmd), 1)
	s.Signal(syscall.SIGHUP)
	s.WaitText("loading files again") // which ends nothing, and so is not ignored
	s.Signal(syscall.SIGINT)
	s.Signal(syscall.SIGUSR1) // handled later than the other would have been
	s.WaitText("drain mode")
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestTheServerOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	path := filepath.Join(servertest.SocketDir(t), "s")
	cmd := exec.Command(servertest.Binary, "-VV", "-l", "unix:"+path)
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
		c := servertest.Dial(t, servertest.AddrOn("unix", path))
		c.Send("use x", "quit")
		c.Want("USING x")
		c.WantEOF()
	}
}

// A balancer is to notice that a server or a member stops before it does.
func TestClientsAreServedForAWhileAfterTheSignal(t *testing.T) {
	t.Parallel()
	serves := func(t *testing.T, p *servertest.Process, url string, put func()) {
		p.Signal(syscall.SIGTERM)
		for status, body := 0, ""; status != http.StatusServiceUnavailable || body != "stopping\n"; {
			status, body = servertest.Get(t, url+"/readyz")
		}
		put()
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("exit code %d", code)
		}
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s, url := servertest.Monitored(t, "--stop-delay=3600")
		serves(t, s.Process, url, func() {
			c := s.Dial(0)
			c.Send("put 0 0 60 1", "x")
			c.Want("INSERTED 1")
		})
	})
	t.Run("member", func(t *testing.T) {
		t.Parallel()
		w := clustertest.NewCluster(t, 1)
		n := w.Nodes[0]
		n.Args = []string{"--stop-delay=3600"}
		w.StartAll()
		w.Leader()
		serves(t, n.Process, "http://"+n.HTTP, func() {
			w.Eventually("a client is served", func() bool {
				c, err := beanstalk.DialTimeout("tcp", n.Clients(), servertest.Patience)
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
		s := servertest.Start(t, "--stop-delay=1")
		s.Signal(syscall.SIGTERM)
		if code := s.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}
