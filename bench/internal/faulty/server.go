package faulty

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/bench"
)

// A Server speaks as much of the protocol as the scenarios use.
type Server struct {
	// Addr is where it listens.
	Addr bench.Address

	mu     sync.Mutex
	wake   *sync.Cond // something became ready, or a time has come
	jobs   map[uint64]*job
	nextID uint64
	closed bool
	count  int // of the commands that faults count
	most   int // tubes that a connection has watched at once

	faults Faults
}

// Faults are what a Server does wrong. A number n makes every n-th command go wrong.
type Faults struct {
	Lose      int  // put: acknowledged and forgotten
	Copy      int  // put: the job is there twice, under two ids
	HandTwice int  // reserve: the job stays ready
	Undelete  int  // delete: acknowledged, the job is ready again
	Corrupt   int  // reserve: one byte of the body is wrong
	Truncate  int  // reserve: the body lacks its last byte
	Swap      int  // reserve: the body is another job's
	SameID    int  // put: the id of the job before
	Refuse    int  // delete: NOT_FOUND
	Garbage   int  // put: a line that is not of the protocol
	Extra     int  // delete: a second reply
	Drop      int  // put: the connection is closed
	Mute      int  // put: no reply
	Early     bool // delays and timeouts end at once
	AnyOrder  bool // priorities are ignored
	Reject    int  // put: OUT_OF_MEMORY
	Forgetful bool // reserve: after TIMED_OUT, what the client had sent behind it is lost
}

type job struct {
	id    uint64
	tube  string
	body  string
	pri   uint64
	state string // ready, reserved, delayed, buried
	owner *conn
	due   time.Time
}

type conn struct {
	s       *Server
	in      *bufio.Reader
	out     *bufio.Writer
	use     string
	watched []string
}

// Start serves until the test ends. network is "tcp", "tcp6" or "unix".
func Start(t testing.TB, network string, faults Faults) *Server {
	t.Helper()
	where := "127.0.0.1:0"
	switch network {
	case "tcp6":
		where = "[::1]:0"
	case "unix":
		where = t.TempDir() + "/s"
	}
	l, err := net.Listen(network, where)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(faults)
	name := l.Addr().String()
	if network == "unix" {
		name = "unix:" + name
	}
	if s.Addr, err = bench.ParseAddress(name); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.accept(l)
		close(ended)
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return s
}

// Serve serves on a listener until it is closed.
func Serve(l net.Listener, faults Faults) { newServer(faults).accept(l) }

func newServer(faults Faults) *Server {
	s := &Server{jobs: make(map[uint64]*job), faults: faults}
	s.wake = sync.NewCond(&s.mu)
	return s
}

// Jobs returns the bodies of the jobs in the server, by their ids.
func (s *Server) Jobs() map[uint64]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[uint64]string)
	for id, j := range s.jobs {
		all[id] = j.body
	}
	return all
}

// MostWatched returns how many tubes a connection has watched at once.
func (s *Server) MostWatched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// accept serves connections until the listener is closed, and then ends them.
func (s *Server) accept(l net.Listener) {
	var wg sync.WaitGroup
	var open []net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		open = append(open, c)
		wg.Go(func() { s.serve(c) })
	}
	s.mu.Lock()
	s.closed = true
	s.wake.Broadcast()
	s.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	wg.Wait()
}

func (s *Server) serve(nc net.Conn) {
	c := &conn{s: s, in: bufio.NewReader(nc), out: bufio.NewWriter(nc), use: "default", watched: []string{"default"}}
	defer func() {
		nc.Close()
		s.mu.Lock()
		for _, j := range s.jobs {
			if j.owner == c {
				j.state, j.owner = "ready", nil
			}
		}
		s.wake.Broadcast()
		s.mu.Unlock()
	}()
	for {
		if c.in.Buffered() == 0 && c.out.Flush() != nil {
			return
		}
		line, err := c.in.ReadString('\n')
		if err != nil || !c.command(strings.Fields(line)) {
			return
		}
	}
}

// nth reports whether a fault that strikes every n-th time does so now. The lock is held.
func (s *Server) nth(n int) bool {
	if n == 0 {
		return false
	}
	s.count++
	return s.count%n == 0
}

func (c *conn) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\r\n", args...) }

func (c *conn) command(f []string) bool {
	if len(f) == 0 {
		c.say("BAD_FORMAT")
		return true
	}
	arg := func(i int) uint64 {
		if i >= len(f) {
			return 0
		}
		n, _ := strconv.ParseUint(f[i], 10, 64)
		return n
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := &s.faults
	switch f[0] {
	case "put":
		return c.put(arg(1), arg(2), int(arg(4)))
	case "reserve":
		c.reserve(time.Now().Add(time.Hour))
	case "reserve-with-timeout":
		c.reserve(time.Now().Add(time.Duration(arg(1)) * time.Second))
	case "delete":
		j := s.jobs[arg(1)]
		switch {
		case j == nil || j.state == "reserved" && j.owner != c || s.nth(faults.Refuse):
			c.say("NOT_FOUND")
			return true
		case s.nth(faults.Undelete):
			j.state, j.owner = "ready", nil
			s.wake.Broadcast()
		default:
			delete(s.jobs, j.id)
		}
		c.say("DELETED")
		if s.nth(faults.Extra) {
			c.say("DELETED")
		}
	case "release", "bury", "touch":
		j := s.jobs[arg(1)]
		if j == nil || j.owner != c {
			c.say("NOT_FOUND")
			return true
		}
		switch f[0] {
		case "touch":
			c.say("TOUCHED")
		case "bury":
			j.state, j.owner = "buried", nil
			c.say("BURIED")
		default:
			j.state, j.owner, j.pri = "ready", nil, arg(2)
			if d := arg(3); d > 0 {
				j.state, j.due = "delayed", time.Now().Add(time.Duration(d)*time.Second)
				time.AfterFunc(time.Until(j.due), s.wakeAll)
			}
			s.wake.Broadcast()
			c.say("RELEASED")
		}
	case "kick":
		n := 0
		for _, j := range s.jobs {
			if j.tube == c.use && j.state == "buried" && n < int(arg(1)) {
				j.state = "ready"
				n++
			}
		}
		s.wake.Broadcast()
		c.say("KICKED %d", n)
	case "use":
		c.use = f[1]
		c.say("USING %s", c.use)
	case "list-tube-used":
		c.say("USING %s", c.use)
	case "watch":
		if !slices.Contains(c.watched, f[1]) {
			c.watched = append(c.watched, f[1])
			s.most = max(s.most, len(c.watched))
		}
		c.say("WATCHING %d", len(c.watched))
	case "ignore":
		if len(c.watched) == 1 {
			c.say("NOT_IGNORED")
			return true
		}
		c.watched = slices.DeleteFunc(c.watched, func(t string) bool { return t == f[1] })
		c.say("WATCHING %d", len(c.watched))
	case "list-tubes":
		tubes := map[string]bool{}
		for _, j := range s.jobs {
			tubes[j.tube] = true
		}
		text := "---\n- " + strings.Join(slices.Sorted(maps.Keys(tubes)), "\n- ") + "\n"
		c.say("OK %d\r\n%s", len(text), text)
	case "stats", "stats-tube", "stats-job":
		if f[0] == "stats-job" && s.jobs[arg(1)] == nil {
			c.say("NOT_FOUND")
			return true
		}
		ready := 0
		for _, j := range s.jobs {
			if j.state == "ready" && (f[0] != "stats-tube" || j.tube == f[1]) {
				ready++
			}
		}
		text := fmt.Sprintf("---\npid: %d\nversion: \"fake\"\n"+
			"rusage-utime: 0.000000\nrusage-stime: 0.000000\ncurrent-jobs-ready: %d\n", os.Getpid(), ready)
		c.say("OK %d\r\n%s", len(text), text)
	case "peek-ready", "peek-buried", "peek-delayed":
		c.say("NOT_FOUND")
	case "quit":
		return false
	default:
		c.say("UNKNOWN_COMMAND")
	}
	return true
}

func (c *conn) put(pri, delay uint64, size int) bool {
	s, faults := c.s, &c.s.faults
	s.mu.Unlock()
	body := make([]byte, size+2)
	_, err := io.ReadFull(c.in, body)
	s.mu.Lock()
	if err != nil {
		return false
	}
	switch {
	case s.nth(faults.Reject):
		c.say("OUT_OF_MEMORY")
		return true
	case s.nth(faults.Drop):
		return false
	case s.nth(faults.Garbage):
		c.say("HELLO %d", s.nextID)
		return true
	}
	s.nextID++
	j := &job{id: s.nextID, tube: c.use, body: string(body[:size]), pri: pri, state: "ready"}
	if delay > 0 && !faults.Early {
		j.state, j.due = "delayed", time.Now().Add(time.Duration(delay)*time.Second)
		time.AfterFunc(time.Until(j.due), s.wakeAll)
	}
	id := j.id
	if s.nth(faults.SameID) {
		id--
	}
	if !s.nth(faults.Lose) {
		s.jobs[j.id] = j
		if s.nth(faults.Copy) {
			s.nextID++
			twin := *j
			twin.id = s.nextID
			s.jobs[twin.id] = &twin
		}
	}
	s.wake.Broadcast()
	if !s.nth(faults.Mute) {
		c.say("INSERTED %d", id)
	}
	return true
}

func (s *Server) wakeAll() {
	s.mu.Lock()
	s.wake.Broadcast()
	s.mu.Unlock()
}

// ready returns the job that a connection is to get, nil when there is none.
func (s *Server) ready(c *conn) *job {
	var best *job
	for _, j := range s.jobs {
		if j.state == "delayed" && !time.Now().Before(j.due) {
			j.state = "ready"
		}
		if j.state != "ready" || !slices.Contains(c.watched, j.tube) {
			continue
		}
		less := func(a, b *job) bool { return a.pri < b.pri || a.pri == b.pri && a.id < b.id }
		if s.faults.AnyOrder {
			less = func(a, b *job) bool { return a.id > b.id }
		}
		if best == nil || less(j, best) {
			best = j
		}
	}
	return best
}

func (c *conn) reserve(until time.Time) {
	s, faults := c.s, &c.s.faults
	if faults.Early {
		until = time.Now()
	}
	if time.Now().Before(until) {
		timer := time.AfterFunc(time.Until(until), s.wakeAll)
		defer timer.Stop()
	}
	for {
		if j := s.ready(c); j != nil {
			body := j.body
			switch {
			case s.nth(faults.Corrupt):
				b := []byte(body)
				b[len(b)/2] ^= 1
				body = string(b)
			case s.nth(faults.Truncate):
				body = body[:len(body)-1]
			case s.nth(faults.Swap):
				for _, other := range s.jobs {
					if other != j && len(other.body) == len(body) {
						body = other.body
						break
					}
				}
			}
			if !s.nth(faults.HandTwice) {
				j.state, j.owner = "reserved", c
			}
			c.say("RESERVED %d %d\r\n%s", j.id, len(body), body)
			return
		}
		if s.closed || !time.Now().Before(until) {
			c.say("TIMED_OUT")
			if faults.Forgetful {
				_, _ = c.in.Discard(c.in.Buffered())
			}
			return
		}
		c.out.Flush()
		s.wake.Wait()
	}
}
