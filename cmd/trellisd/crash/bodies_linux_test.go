//go:build proof

package crash

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// longBody is the body of the n-th job, which tells a wrong one from it wherever it is wrong.
func longBody(n int) []byte {
	b := make([]byte, 4000+n%9000)
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range b {
		if i%8 == 0 && i+8 <= len(b) {
			binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
		}
	}
	copy(b, fmt.Sprintf("%08d", n))
	return b
}

// backlog is many jobs with bodies that are known, put and taken by clients that a killed server may cut off.
type backlog struct {
	t *testing.T

	mu      sync.Mutex
	put     map[int]bool // acknowledged
	taken   map[int]bool // of which the delete was acknowledged
	deleted map[int]bool // of which the delete was sent at least
	strays  int          // jobs that a client has reserved, and had lost when it was done
}

func newBacklog(t *testing.T) *backlog {
	return &backlog{t: t, put: map[int]bool{}, taken: map[int]bool{}, deleted: map[int]bool{}}
}

// left is how many jobs were put and never taken.
func (b *backlog) left() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.put {
		if !b.deleted[i] {
			n++
		}
	}
	return n
}

// fill puts jobs from first on, up to before end, by one connection, until that ends. next is the first that was not
// sent.
func (b *backlog) fill(c *servertest.Client, first, end int) (next int) {
	const depth = 50
	for n := first; n < end; n += depth {
		c.Renew()
		w := bufio.NewWriter(c.Conn)
		for i := n; i < min(n+depth, end); i++ {
			body := longBody(i)
			fmt.Fprintf(w, "put 0 0 600 %d\r\n%s\r\n", len(body), body)
		}
		if w.Flush() != nil {
			return n + depth
		}
		for i := n; i < min(n+depth, end); i++ {
			line, err := c.In.ReadString('\n')
			if err != nil {
				return n + depth
			}
			if !strings.HasPrefix(line, "INSERTED") {
				b.t.Errorf("put %d: %q", i, line)
				return end
			}
			b.mu.Lock()
			b.put[i] = true
			b.mu.Unlock()
		}
	}
	return end
}

// drain takes jobs by one connection, until there are none, or so few that were put, or that ends.
func (b *backlog) drain(c *servertest.Client, left int) (empty bool) {
	for b.left() > left || left == 0 {
		c.Renew()
		if _, err := io.WriteString(c.Conn, strings.Repeat("reserve-with-timeout 0\r\n", 20)); err != nil {
			return false
		}
		var ids []string
		var ns []int
		for range 20 {
			line, err := c.In.ReadString('\n')
			if err != nil {
				return false
			}
			if empty = line == "TIMED_OUT\r\n"; empty {
				continue
			}
			var id string
			var size int
			if _, err := fmt.Sscanf(line, "RESERVED %s %d", &id, &size); err != nil {
				b.t.Errorf("reserve: %q", line)
				return true
			}
			body := make([]byte, size+2)
			if _, err := io.ReadFull(c.In, body); err != nil {
				return false
			}
			n := 0
			if _, err := fmt.Sscanf(string(body[:8]), "%d", &n); err != nil || string(body[:size]) != string(longBody(n)) {
				b.t.Errorf("job %s has a body that nobody has put, of %d bytes: %q", id, size, body[:8])
			}
			ids, ns = append(ids, id), append(ns, n)
		}
		b.mu.Lock()
		for _, n := range ns {
			if b.taken[n] {
				b.t.Errorf("job %d is back", n)
			}
			b.deleted[n] = true
		}
		b.mu.Unlock()
		if len(ids) > 0 {
			if _, err := io.WriteString(c.Conn, "delete "+strings.Join(ids, "\r\ndelete ")+"\r\n"); err != nil {
				return false
			}
		}
		for _, n := range ns {
			line, err := c.In.ReadString('\n')
			if err != nil {
				return false
			}
			if line != "DELETED\r\n" {
				b.t.Errorf("delete: %q", line)
			}
			b.mu.Lock()
			b.taken[n] = true
			b.mu.Unlock()
		}
		if empty {
			return true
		}
	}
	return false
}

// Ten times as much as may be in memory is put, by a server that is killed, and taken from others that are killed too:
// every body is the one that was put.
func TestABacklogBeyondMemoryOutlivesKilledServers(t *testing.T) {
	t.Parallel()
	const limit, jobs, clients = 64_000_000, 80_000, 8
	for _, interval := range []string{"-f1h", "-F"} {
		b := newBacklog(t)
		b.through(t.TempDir(), interval, limit, jobs, clients)
		if lost := b.left(); len(b.put) < jobs/2 || lost > 0 {
			t.Errorf("%s: of %d jobs that were put %d are lost", interval, len(b.put), lost)
		}
	}
}

func (b *backlog) through(dir, interval string, limit, jobs, clients int) {
	var s *servertest.Server
	var url string
	start := func() {
		s, url = servertest.Monitored(b.t, "-b", dir, interval, "--body-memory", fmt.Sprint(limit))
	}
	all := func(s *servertest.Server, do func(client int)) {
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() { do(i) })
		}
		running.Wait()
	}
	start()
	part := jobs / 2 / clients
	all(s, func(i int) { b.fill(s.Dial(0), i*part, (i+1)*part) })
	servertest.Await(b.t, "bodies to leave memory", func() bool {
		return servertest.GaugeOf(b.t, url, "beanstalkd_bodies_memory_bytes") <= float64(limit)
	})
	if n := servertest.GaugeOf(b.t, url, "process_resident_memory_bytes"); n > 1.25*float64(limit)+200e6 {
		b.t.Errorf("%s: the server takes %.0f MB", interval, n/1e6)
	}
	var killed sync.WaitGroup
	killed.Go(func() {
		servertest.Await(b.t, "half of the rest", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.put) > jobs*3/4
		})
		s.Kill()
	})
	all(s, func(i int) { b.fill(s.Dial(0), jobs/2+i*part, jobs/2+(i+1)*part) })
	killed.Wait()
	start()
	killed.Go(func() {
		servertest.Await(b.t, "a third", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.taken) > jobs/3
		})
		s.Kill()
	})
	all(s, func(int) { b.drain(s.Dial(0), 0) })
	killed.Wait()
	start()
	all(s, func(int) {
		if !b.drain(s.Dial(0), 0) {
			b.t.Error("the last server has ended")
		}
	})
	s.Kill()
}
