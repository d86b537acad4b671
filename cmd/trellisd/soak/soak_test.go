//go:build proof

package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/load"
	"trellis/cmd/trellisd/internal/servertest"
)

// soakTime is the environment variable that says how long TestSoak goes on.
const soakTime = "SOAK"

// TestSoak lets everything loose on servers that are expected to live: all
// scenarios of the load generator, which keeps books of every job, and beside them
// clients that vanish, stall, stop in the middle of a command or close one side.
// Other servers are put under memory pressure and drained. Those of TestSoakOfKills are killed.
// At the end nothing may be left: no job, tube, connection, descriptor or goroutine,
// and no memory worth mentioning.
func TestSoak(t *testing.T) {
	d := 10 * time.Second
	if v := os.Getenv(soakTime); v != "" {
		var err error
		if d, err = time.ParseDuration(v); err != nil {
			t.Fatalf("%s: %v", soakTime, err)
		}
	}
	t.Parallel()
	for _, part := range []struct {
		name string
		run  func(t *testing.T, until time.Time)
	}{
		{"mixed", soakMixed},
		{"memory", soakMemory},
		{"drain", soakDrain},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, time.Now().Add(d)) // it may have had to wait for other tests
		})
	}
}

// soakMixed is one server for the whole time, under loads and abuse.
func soakMixed(t *testing.T, until time.Time) {
	certs := servertest.NewCertFiles(t)
	s, url := servertest.Monitored(t, append(certs.Flags(), "--max-connections=4000", "--pprof")...)
	// What a server has that has worked a little.
	warmUp(t, s)
	secure := s.DialTLS(1, certs.Client())
	secure.Send("quit")
	secure.WantEOF()
	running, fds, memory := goroutines(t, url), descriptors(t, s), resident(t, s.Cmd.Process.Pid)

	ctx, cancel := context.WithDeadline(t.Context(), until)
	defer cancel()
	var all sync.WaitGroup
	a := newAbuse(s, certs)
	for i := range 6 {
		all.Go(func() { a.run(ctx, i) })
	}
	loads := 0
	for ctx.Err() == nil {
		soakLoad(t, s, certs, loads)
		loads++
	}
	all.Wait()
	if err := a.failed.Load(); err != nil {
		t.Error(*err)
	}
	a.clear(t)

	c := s.Dial(0)
	_ = c.Conn.SetDeadline(time.Now().Add(10 * servertest.Patience))
	servertest.Await(t, "all clients are gone", func() bool { return servertest.Stats(c)["current-connections"] == "1" })
	got := servertest.Stats(c)
	for _, key := range []string{
		"current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried", "current-jobs-urgent",
		"current-waiting", "current-producers", "current-workers",
	} {
		if got[key] != "0" {
			t.Errorf("%s: %s", key, got[key])
		}
	}
	// No job is left, and only delete takes one away.
	count := func(key string) int { n, _ := strconv.Atoi(got[key]); return n }
	if jobs := count("total-jobs"); jobs == 0 || count("cmd-put") < jobs || count("cmd-delete") < jobs {
		t.Errorf("%d jobs were put with %s commands and deleted with %s", jobs, got["cmd-put"], got["cmd-delete"])
	}
	if got["current-tubes"] != "1" {
		t.Errorf("%s tubes are left: %s", got["current-tubes"], c.Data("list-tubes"))
	}
	servertest.Await(t, "descriptors are closed", func() bool { return descriptors(t, s) <= fds+2 })
	const most = 48 << 20
	rss := resident(t, s.Cmd.Process.Pid)
	if !servertest.RaceEnabled { // whose shadow memory is not given back
		servertest.Await(t, "the memory is given back", func() bool { rss = resident(t, s.Cmd.Process.Pid); return rss < memory+most })
	}
	t.Logf("%d loads, %d abusive clients, %s connections, %s jobs; memory %d MB, %d MB at first; descriptors %d, %d",
		loads, a.clients.Load(), got["total-connections"], got["total-jobs"], rss>>20, memory>>20, descriptors(t, s), fds)
	// Some are kept for a while after their work.
	servertest.Await(t, "goroutines end", func() bool { return goroutines(t, url) <= running+5 })
	if t.Failed() {
		_, stacks := servertest.Get(t, url+"/debug/pprof/goroutine?debug=1")
		t.Logf("%d goroutines at first, and now:\n%s", running, stacks)
	}
}

// warmUps is how many clients of warmUp put, reserve and delete a job. There is one
// more, which does nothing.
const warmUps = 20

func warmUp(t *testing.T, s *servertest.Server) {
	t.Helper()
	for range warmUps {
		c := s.Dial(0)
		c.Send("put 0 0 60 1", "x", "reserve")
		id := strings.TrimPrefix(c.Line(), "INSERTED ")
		c.Want("RESERVED "+id+" 1", "x")
		c.Send("delete "+id, "quit")
		c.Want("DELETED")
		c.WantEOF()
		_ = c.Conn.Close()
	}
	c := s.Dial(0)
	servertest.Await(t, "the first clients are gone", func() bool { return servertest.Stats(c)["current-connections"] == "1" })
	_ = c.Conn.Close()
}

// soakMix is the load of the scenario mix.
const soakMix = `
40 put pri=0-2000 delay=0-1
40 reserve
25 delete
 8 release pri=0-2000 delay=0-1
 5 bury
 5 touch
 2 kick bound=1-10
 1 peek-ready
 1 peek-delayed
 1 peek-buried
 1 stats-job
 1 stats-tube
 1 stats
 1 list-tubes
`

// soakOverTLS is every how many-th load and abusive client of soakMixed is over TLS.
const soakOverTLS = 3

// soakLoad runs the next of the load generator's scenarios for a moment.
func soakLoad(t *testing.T, s *servertest.Server, certs *servertest.CertFiles, n int) {
	t.Helper()
	scenario := load.Scenarios()[n%len(load.Scenarios())]
	cfg := bench.Config{
		Scenario: scenario.Name, Conns: []int{1, 7, 50, 300}[rand.IntN(4)], Depth: []int{1, 1, 8, 32}[rand.IntN(4)],
		Duration: 700 * time.Millisecond, Warmup: time.Millisecond,
		Seed: rand.Uint64(), ReplyTimeout: time.Minute,
	}
	cfg.Threads = min(cfg.Conns, 1+rand.IntN(3))
	var err error
	if scenario.Uses&load.Mix != 0 {
		if cfg.Mix, err = bench.ParseMix(strings.NewReader(soakMix)); err != nil {
			t.Fatal(err)
		}
	}
	if scenario.Uses&load.Timeout != 0 {
		cfg.Timeout = time.Second
	}
	if scenario.Uses&load.Depth == 0 {
		cfg.Depth = 1
	}
	switch cfg.Scenario {
	case "large":
		cfg.Conns = min(cfg.Conns, 50)
	case "put":
		cfg.Duration /= 4
	}
	if rand.IntN(soakOverTLS) == 0 {
		cfg.Addr, err = bench.ParseTLSAddress(s.Addrs[1].String(), certs.Client())
		cfg.Conns = min(cfg.Conns, 50) // a thread of the generator has one handshake under way at a time
	} else {
		cfg.Addr, err = bench.ParseAddress(s.Addrs[0].String())
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := load.Run(t.Context(), cfg)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatalf("scenario %s, %d connections, depth %d, %d threads, over TLS %v: %v", cfg.Scenario, cfg.Conns, cfg.Depth, cfg.Threads,
			cfg.Addr.TLS() != nil, err)
	}
}

// abuse is clients that behave badly. They use tubes of their own.
type abuse struct {
	s       *servertest.Server
	certs   *servertest.CertFiles
	big     string // a body
	clients atomic.Int64
	failed  atomic.Pointer[error]
}

func newAbuse(s *servertest.Server, certs *servertest.CertFiles) *abuse {
	return &abuse{s: s, certs: certs, big: strings.Repeat("b", 60_000)}
}

const abuseTubes = 4

func (a *abuse) run(ctx context.Context, worker int) {
	r := rand.New(rand.NewPCG(uint64(worker), 1))
	for ctx.Err() == nil {
		a.clients.Add(1)
		if err := a.once(r); err != nil {
			err = fmt.Errorf("abusive client %d: %w", a.clients.Load(), err)
			a.failed.Store(&err)
			return
		}
	}
}

// abuser is the connection of an abusive client, over TLS or not.
type abuser struct {
	net.Conn
	tcp *net.TCPConn // under it
}

// CloseWrite tells the server that no more comes.
func (c abuser) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// dial connects to one of the server's listeners.
func (a *abuse) dial(r *rand.Rand) (abuser, error) {
	overTLS := r.IntN(soakOverTLS) == 0
	addr := a.s.Addrs[0]
	if overTLS {
		addr = a.s.Addrs[1]
	}
	nc, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return abuser{}, err
	}
	c := abuser{Conn: nc, tcp: nc.(*net.TCPConn)}
	if overTLS {
		c.Conn = tls.Client(nc, a.certs.Client())
	}
	return c, c.SetDeadline(time.Now().Add(servertest.Patience))
}

// once is the life of a client.
func (a *abuse) once(r *rand.Rand) error {
	conn, err := a.dial(r)
	if err != nil {
		return err
	}
	defer conn.tcp.Close()
	tube := fmt.Sprint("abuse-", r.IntN(abuseTubes))
	put := fmt.Sprintf("put %d %d 1 %d\r\n%s\r\n", r.IntN(3), r.IntN(2), len(a.big), a.big)
	small := "put 0 0 1 5\r\nsmall\r\n"
	own := fmt.Sprintf("use %s\r\nwatch %s\r\nignore default\r\n", tube, tube)
	send := func(s string) { _, _ = io.WriteString(conn, s) }
	switch r.IntN(9) {
	case 0: // stops in the middle of a body, and vanishes
		send(own + put[:r.IntN(len(put))])
		a.vanish(conn, r)
	case 1: // takes nothing of what it asks for
		send(own + put + strings.Repeat("peek-ready\r\nstats\r\n", 300))
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		a.vanish(conn, r)
	case 2: // asks for much, says that it is done, and takes it slowly
		send(own + put + strings.Repeat("stats\r\n", 200))
		_ = conn.CloseWrite()
		if got := readSlowly(conn); strings.Count(got, "OK ") != 200 || !strings.HasSuffix(got, "\r\n") {
			return fmt.Errorf("got %d of 200 replies: %.100q", strings.Count(got, "OK "), got)
		}
	case 3: // waits, and vanishes
		send(own + "reserve\r\n")
		time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		a.vanish(conn, r)
	case 4: // waits, and says that it is done: it is answered
		send(own + "reserve-with-timeout 100\r\n")
		_ = conn.CloseWrite()
		got := readSlowly(conn)
		if !strings.Contains(got, "TIMED_OUT\r\n") && !strings.Contains(got, "RESERVED ") {
			return fmt.Errorf("a half-closed client that waits got %.200q", got)
		}
	case 5: // keeps jobs until their time is over
		send(own + strings.Repeat(small, 20) + strings.Repeat("reserve-with-timeout 0\r\n", 20))
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		a.vanish(conn, r)
	case 6: // sends nonsense byte by byte
		for _, b := range []byte("xx\x00\r\nput -1\r\nuse \xff\r\nreserve-with-timeout\r\n") {
			send(string(b))
		}
		_ = conn.CloseWrite()
		if got := readSlowly(conn); strings.Count(got, "\r\n") != 4 {
			return fmt.Errorf("four wrong commands were answered %q", got)
		}
	case 7: // many tubes
		var b strings.Builder
		for range 150 {
			fmt.Fprintf(&b, "watch abuse-more-%d\r\n", r.IntN(100_000))
		}
		send(b.String() + "list-tubes\r\nquit\r\n")
		if got := readSlowly(conn); !strings.Contains(got, "OK ") {
			return fmt.Errorf("list-tubes was answered %.100q", got)
		}
	case 8: // burying, kicking, pausing
		send(own + strings.Repeat(small, 50))
		for range 50 {
			send("reserve-with-timeout 0\r\n")
		}
		send("kick 1000\r\npause-tube " + tube + " 0\r\nquit\r\n")
		if got := readSlowly(conn); !strings.Contains(got, "PAUSED\r\n") {
			return fmt.Errorf("got %.100q at the end", got[max(0, len(got)-100):])
		}
	}
	return nil
}

// vanish closes a connection in one of the ways that programs and machines do.
func (a *abuse) vanish(conn abuser, r *rand.Rand) {
	if r.IntN(2) == 0 {
		_ = conn.tcp.SetLinger(0)
	}
	_ = conn.tcp.Close() // without a close_notify
}

func readSlowly(conn net.Conn) string {
	var got []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return string(got)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// clear takes out what the clients have left.
func (a *abuse) clear(t *testing.T) {
	t.Helper()
	c := a.s.Dial(0)
	_ = c.Conn.SetDeadline(time.Now().Add(10 * time.Minute))
	for i := range abuseTubes {
		tube := fmt.Sprint("abuse-", i)
		c.Send("watch "+tube, "use "+tube)
		c.Want(fmt.Sprint("WATCHING ", i+2), "USING "+tube)
		c.Send("kick 4000000")
		if line := c.Line(); !strings.HasPrefix(line, "KICKED ") {
			t.Fatalf("got %q", line)
		}
	}
	// Delays and times to run are of one second.
	for {
		c.Send("reserve-with-timeout 3")
		switch line := c.Line(); {
		case strings.HasPrefix(line, "RESERVED "):
			c.Line()
			c.Send("delete " + strings.Fields(line)[1])
			c.Want("DELETED")
		case line == "TIMED_OUT":
			_ = c.Conn.Close()
			return
		default:
			t.Fatalf("got %q", line)
		}
	}
}

// soakMemory puts as fast as it can into a server that has little memory.
func soakMemory(t *testing.T, until time.Time) {
	const limit = 32 << 20
	s := servertest.Start(t, "-z200000", "--max-memory", strconv.Itoa(limit))
	warmUp(t, s)
	memory := resident(t, s.Cmd.Process.Pid)
	body := strings.Repeat("m", 200_000)
	var put, refused, deleted, inVain atomic.Int64
	var putters, workers sync.WaitGroup
	// The workers begin when the memory has been full.
	full, done := make(chan struct{}), make(chan struct{})
	filled := sync.OnceFunc(func() { close(full) })
	for i := range 4 {
		c := s.Dial(0)
		_ = c.Conn.SetDeadline(until.Add(10 * servertest.Patience))
		putters.Go(func() {
			defer filled()
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for time.Now().Before(until) || refused.Load() == 0 {
				n := r.IntN(len(body))
				if _, err := fmt.Fprintf(c.Conn, "put 0 0 60 %d\r\n%s\r\n", n, body[:n]); err != nil {
					t.Error(err)
					return
				}
				switch line, err := c.In.ReadString('\n'); {
				case strings.HasPrefix(line, "INSERTED "):
					put.Add(1)
				case line == "OUT_OF_MEMORY\r\n":
					refused.Add(1)
					filled()
				default:
					t.Errorf("put: got %q, %v", line, err)
					return
				}
			}
		})
	}
	for i := range 2 {
		c := s.Dial(0)
		workers.Go(func() {
			<-full
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for {
				c.Send("reserve-with-timeout 0")
				line := c.Line()
				if line == "TIMED_OUT" {
					inVain.Add(1)
					select {
					case <-done:
						return
					default:
						time.Sleep(time.Millisecond)
						continue
					}
				}
				var id, size int
				if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); err != nil {
					t.Errorf("reserve: got %q", line)
					return
				}
				if got := c.Line(); got != body[:size] {
					t.Errorf("job %d has a body of %d bytes, want %d", id, len(got), size)
				}
				c.Send(fmt.Sprint("delete ", id))
				c.Want("DELETED")
				deleted.Add(1)
				if r.IntN(50) == 0 { // so that the memory fills up
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	putters.Wait()
	close(done)
	workers.Wait()
	if put.Load() != deleted.Load() || refused.Load() == 0 {
		t.Errorf("%d put, %d deleted, %d refused", put.Load(), deleted.Load(), refused.Load())
	}
	wantCounts(s.Dial(0), map[string]int{
		"total-jobs": warmUps + int(put.Load()), "cmd-put": warmUps + int(put.Load()+refused.Load()),
		"cmd-reserve": warmUps, "cmd-reserve-with-timeout": int(deleted.Load() + inVain.Load()), "job-timeouts": 0,
		"cmd-delete": warmUps + int(deleted.Load()), "current-jobs-ready": 0, "total-connections": warmUps + 8,
	})
	rss := resident(t, s.Cmd.Process.Pid)
	if !servertest.RaceEnabled {
		servertest.Await(t, "the memory is given back", func() bool { rss = resident(t, s.Cmd.Process.Pid); return rss < memory+25<<20 })
	}
	t.Logf("%d put and deleted, %d refused; memory %d MB, %d MB at first", put.Load(), refused.Load(), rss>>20, memory>>20)
}

// soakDrain drains servers under load, one after the other: drain mode is for good.
func soakDrain(t *testing.T, until time.Time) {
	const putters = 3
	rounds, jobs := 0, int64(0)
	for ; rounds == 0 || time.Now().Before(until); rounds++ {
		s := servertest.Start(t)
		var put, deleted atomic.Int64
		var all sync.WaitGroup
		for range putters {
			c := s.Dial(0)
			all.Go(func() {
				for {
					c.Send("put 0 0 60 5", "drain")
					switch line := c.Line(); {
					case strings.HasPrefix(line, "INSERTED "):
						put.Add(1)
					case line == "DRAINING":
						return
					default:
						t.Errorf("put: got %q", line)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		s.Signal(syscall.SIGUSR1)
		all.Wait()
		c := s.Dial(0)
		for line := ""; line != "TIMED_OUT"; {
			c.Send("reserve-with-timeout 0")
			if line = c.Line(); strings.HasPrefix(line, "RESERVED ") {
				c.Want("drain")
				c.Send("delete " + strings.Fields(line)[1])
				c.Want("DELETED")
				deleted.Add(1)
			}
		}
		if got := servertest.Stats(c)["draining"]; got != "true" || put.Load() != deleted.Load() {
			t.Errorf("draining %s, %d put, %d deleted", got, put.Load(), deleted.Load())
		}
		wantCounts(c, map[string]int{
			"total-jobs": int(put.Load()), "cmd-put": int(put.Load()) + putters, "cmd-delete": int(deleted.Load()),
			"cmd-reserve-with-timeout": int(deleted.Load()) + 1, "current-jobs-ready": 0, "total-connections": putters + 1,
		})
		s.Signal(syscall.SIGTERM)
		if code := s.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		jobs += put.Load()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d servers drained, %d jobs", rounds, jobs)
}

// descriptors is how many files and sockets a server has open, 0 where that cannot
// be found out.
func descriptors(t *testing.T, s *servertest.Server) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	all, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.Cmd.Process.Pid), "fd"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(all)
}

// goroutines is how many a server has, which serves its metrics at url.
func goroutines(t *testing.T, url string) (n int) {
	t.Helper()
	body := servertest.Scrape(t, url)
	_, rest, _ := strings.Cut(body, "\ngo_goroutines ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("go_goroutines: %v", err)
	}
	return n
}
