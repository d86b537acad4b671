package reactor

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine/script"
)

// offRecord is what shows something that no other server knows: counters, pauses, the order of tubes,
// whose turn it is among fair ones, and what is ahead of a client.
var offRecord = regexp.MustCompile(`stats\r|stats-tube|stats-conn|list-connections|kick-connection|pause|list-tubes\r|fair:|weighted|drain|capabilities`)

// unkept are scripts that show what else only the server knows that did it.
var unkept = map[string]bool{
	// An id that a put took which made no job.
	"put/the id is taken when the line has come":                                true,
	"keys/a key is not free before the job's own seconds have passed":           true,
	"keys/a job that is moved to where a tombstone holds its key takes the key": true,
	"keys/a put that is not terminated takes no key":                            true,
	"key-inputs/130 P idp:k;P5 idp:k;P idp:k;P":                                 true,
	// Where a list went on of which the last job has gone.
	"extension-inputs/43 list-jobs default ready;delete 1;list-jobs default ready 9 1": true,
}

// rolesTarget is a script.Target whose servers change their roles before clients do something.
type rolesTarget struct {
	t      *testing.T
	loops  int
	change func(*rolesServer)
}

// rolesServer is a script.Server. Its clock stands still but in Wait.
type rolesServer struct {
	k      *cluster
	target *rolesTarget
	ts     *testServer // of the clients
	other  *testServer
	sent   uint64
}

func (x *rolesTarget) Start(clients []script.Client, options ...string) (script.Server, error) {
	if clients != nil || len(options) > 0 {
		return nil, errors.ErrUnsupported
	}
	k := newCluster(x.t)
	k.stopped, k.maxJobSize = true, 65535
	return &rolesServer{k: k, target: x, ts: k.server("unix", hooks{}, func(c *Config) { c.Loops = x.loops })}, nil
}

func (s *rolesServer) Open(string) (script.Conn, error) {
	nc, err := net.Dial(s.ts.addr.Network(), s.ts.addr.String())
	if err != nil {
		return nil, err
	}
	s.ts.dialed.Add(1)
	n := s.ts.dialed.Load()
	s.ts.until("the client is there", func() bool { return s.ts.sum().Opened == n })
	s.Settle()
	return &rolesConn{Conn: nc, server: s}, nil
}

func (s *rolesServer) Wait(d time.Duration) {
	s.Settle()
	s.k.ahead.Add(int64(d))
	s.Settle()
}

// Settle waits until all that was sent has come, and the loops have nothing to do.
func (s *rolesServer) Settle() {
	s.ts.until("all that was sent has come", func() bool {
		n := s.ts.sum()
		return n.BytesIn >= s.sent || n.Connections < int64(n.Opened) // what was sent to whoever has gone never comes
	})
	s.k.settle()
}

func (s *rolesServer) Drain(bool) error { return errors.ErrUnsupported }

func (s *rolesServer) Stop() { s.k.stop() }

// before is called before a client does something.
func (s *rolesServer) before() {
	s.Settle()
	s.k.ahead.Add(int64(time.Millisecond)) // who comes first comes first
	if s.discards() {
		return // a client that is in the middle of what is not kept does not go on
	}
	s.target.change(s)
	s.goneOn()
}

// discards reports whether a client is in the middle of a line, or a body, of which a part is not kept.
func (s *rolesServer) discards() bool {
	var found atomic.Bool
	s.ts.onLoops(func(l *loop) {
		for _, c := range l.conns {
			if _, kept := c.decoder.Held(); !kept {
				found.Store(true)
			}
		}
	})
	return found.Load()
}

// goneOn waits until all clients have gone on, and stand in queues where they did.
func (s *rolesServer) goneOn() {
	s.ts.until("all clients have gone on", func() bool {
		var behind atomic.Bool
		for _, ts := range s.k.servers {
			ts.onLoops(func(l *loop) {
				waits := !l.resumptions.Empty()
				for _, d := range l.replays {
					waits = waits || d.AwaitsEffects()
				}
				if g := l.gateway; g != nil && s.k.leader.Load() != ts {
					for c, f := range g.clients {
						waits = waits || c.phase == forwarded && (!f.IsServed() || g.Session(f, 0).Unanswered > 0)
					}
				}
				if waits {
					behind.Store(true)
				}
			})
		}
		return !behind.Load()
	})
	s.k.settle()
}

type rolesConn struct {
	net.Conn
	server *rolesServer
}

func (c *rolesConn) Send(p []byte) error {
	c.server.before()
	c.server.sent += uint64(len(p))
	_, err := c.Write(p)
	return err
}

func (c *rolesConn) Receive() ([]byte, error) { return c.receive(testTimeout, script.ErrSilence) }

func (c *rolesConn) Pending() ([]byte, error) {
	c.server.Settle()
	return c.receive(2*time.Millisecond, nil)
}

func (c *rolesConn) receive(within time.Duration, silence error) ([]byte, error) {
	b := make([]byte, 64<<10)
	_ = c.SetReadDeadline(time.Now().Add(within))
	n, err := c.Read(b)
	switch {
	case n > 0:
		return b[:n], nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, silence
	}
	return nil, cmp.Or(err, io.EOF)
}

func (c *rolesConn) HalfClose() error {
	c.server.before()
	return c.Conn.(*net.UnixConn).CloseWrite()
}

func (c *rolesConn) Close() error {
	c.server.before()
	return c.Conn.Close()
}

// playRoles plays one of so many scripts, or all of them in a proof, but for one with the race detector.
func playRoles(t *testing.T, every int, change func(*rolesServer)) {
	t.Helper()
	switch {
	case proof && raceEnabled:
		every = 15
	case proof:
		every = 1
	}
	unsupported := 0
	skipped := 0
	for i, c := range script.Corpus() {
		if unkept[c.Name] {
			skipped++
		}
		if i%every != 0 || !c.Applies("trellis") || offRecord.Match(c.Input()) || unkept[c.Name] {
			continue
		}
		target := &rolesTarget{t: t, loops: 1 + i%2, change: change}
		switch err := script.Play(c, target, "trellis"); {
		case errors.Is(err, errors.ErrUnsupported):
			unsupported++
		case err != nil:
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if skipped != len(unkept) {
		t.Errorf("there are %d of %d scripts that are left out", skipped, len(unkept))
	}
}

// Whatever clients do, their replies are the same if their server hands over and leads again before anybody
// sends something.
func TestScriptsOfAServerThatLeadsAgain(t *testing.T) {
	t.Parallel()
	changes := 0
	playRoles(t, 90, func(s *rolesServer) {
		changes++
		s.k.resign(s.ts)
		if changes%3 > 0 {
			s.ts.Forward(noLeader)
		}
		s.k.lead(s.ts)
	})
	if changes < 20 {
		t.Errorf("there were %d changes", changes)
	}
}

// Whatever clients do, their replies are the same if their server hands over to another one before anybody sends
// something, or the other one to it.
func TestScriptsOfServersThatHandOver(t *testing.T) {
	t.Parallel()
	changes := 0
	playRoles(t, 90, func(s *rolesServer) {
		changes++
		if s.other == nil {
			s.other = s.k.gateway("unix", hooks{}, func(c *Config) { c.Loops = s.target.loops })
		}
		if s.k.leader.Load() == s.ts {
			s.k.handOver(s.other)
		} else {
			s.k.handOver(s.ts)
		}
	})
	if changes < 20 {
		t.Errorf("there were %d changes", changes)
	}
}
