package engine

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"trellis/codec"
	"trellis/engine/script"
)

// simTarget plays scripts on the engine alone: connections are byte slices, and
// the clock moves only when a script waits.
type simTarget struct{ loops int }

func (st simTarget) Start(options ...string) (script.Server, error) {
	maxJob := uint64(65535)
	for i := 0; i+1 < len(options); i += 2 {
		if options[i] != "-z" {
			return nil, fmt.Errorf("no option %q", options[i])
		}
		var err error
		if maxJob, err = strconv.ParseUint(options[i+1], 10, 32); err != nil {
			return nil, fmt.Errorf("option -z: %w", err)
		}
	}
	return newSim(uint32(maxJob), st.loops), nil
}

// sim is an engine with loops and connections and a clock of its own, all on one
// goroutine.
type sim struct {
	engine *Engine
	now    Time
	loops  []*simLoop
	opened int
}

type simLoop struct {
	*Loop
	rung  bool
	alarm Time
}

func (l *simLoop) Ring()         { l.rung = true }
func (l *simLoop) Alarm(at Time) { l.alarm = at }

func newSim(maxJob uint32, loops int) *sim { return newLimitedSim(maxJob, loops, Limits{}) }

func newLimitedSim(maxJob uint32, loops int, limits Limits) *sim {
	s := &sim{}
	s.engine = New(Config{
		MaxJobSize: maxJob,
		Limits:     limits,
		Alarm:      func(int, Time) {},
		Info: Info{
			PID: 1, Version: "1.13+trellis.test", ID: "0123456789abcdef",
			Hostname: "host", OS: "#1 os", Platform: "x86_64",
			Usage: func() (u, s time.Duration) { return 1234567 * time.Microsecond, 7 * time.Microsecond },
		},
	})
	for range loops {
		l := &simLoop{alarm: MaxTime}
		l.Loop = s.engine.NewLoop(l)
		s.loops = append(s.loops, l)
	}
	return s
}

func (s *sim) Settle() {
	for again := true; again; {
		again = false
		for _, l := range s.loops {
			if l.rung {
				l.rung, again = false, true
				l.Deliver(s.now)
			}
		}
	}
}

func (s *sim) nextDeadline() Time {
	at := MaxTime
	for i := range s.engine.NumShards() {
		at = min(at, s.engine.shards[i].due)
	}
	for _, l := range s.loops {
		at = min(at, l.due)
	}
	return at
}

func (s *sim) Wait(d time.Duration) {
	to := s.now + Time(d)
	for {
		at := s.nextDeadline()
		if at > to {
			break
		}
		s.now = max(s.now, at)
		for i := range s.engine.NumShards() {
			if s.engine.shards[i].due <= s.now {
				s.engine.Advance(i, s.now)
			}
		}
		s.Settle()
		for _, l := range s.loops {
			if l.due <= s.now {
				l.Expire(s.now)
				l.Deliver(s.now)
			}
		}
		s.Settle()
	}
	s.now = to
}

func (s *sim) Drain(on bool) error { s.engine.Drain(on); return nil }
func (s *sim) Stop()               {}

func (s *sim) Open() (script.Conn, error) { return s.open(), nil }

func (s *sim) open() *simConn {
	c := &simConn{sim: s, loop: s.loops[s.opened%len(s.loops)]}
	s.opened++
	c.decoder.MaxJobSize = s.engine.cfg.MaxJobSize
	c.loop.Open(&c.session, c, s.now)
	return c
}

// simConn does to a session what the reactor does.
type simConn struct {
	sim     *sim
	loop    *simLoop
	session Session
	decoder codec.Decoder
	in      []byte // not yet executed
	out     Output // not yet received
	waiting bool
	eof     bool // the client will send no more
	ended   bool
	woken   int
}

func (c *simConn) Wake(now Time) {
	c.woken++
	if c.session.Resume(now, &c.out) == Wait {
		return
	}
	c.waiting = false
	c.work()
}

func (c *simConn) work() {
	var cmd codec.Command
	for !c.waiting && !c.ended {
		n, ok := c.decoder.Next(c.in, &cmd)
		if !ok {
			c.in = c.in[:0]
			break
		}
		in := c.in
		c.in = c.in[n:]
		outcome := c.session.Execute(c.sim.now, &cmd, &c.out)
		for outcome == Yield {
			outcome = c.session.Resume(c.sim.now, &c.out)
		}
		switch outcome {
		case Wait:
			c.waiting = true
		case Quit:
			c.end()
		}
		_ = in
	}
	if c.eof && !c.waiting && !c.ended {
		c.end()
	}
	c.loop.Deliver(c.sim.now)
	c.sim.Settle()
}

func (c *simConn) end() {
	c.ended = true
	c.session.Close(c.sim.now)
	c.decoder.Release()
}

func (c *simConn) Send(p []byte) error {
	if c.ended {
		return io.ErrClosedPipe
	}
	c.in = append(c.in, p...)
	c.work()
	return nil
}

func (c *simConn) Receive() ([]byte, error) {
	if len(c.out.Buf) == 0 {
		if c.ended {
			return nil, io.EOF
		}
		return nil, script.ErrSilence
	}
	b := c.out.Buf
	c.out.Buf = nil
	return b, nil
}

func (c *simConn) Pending() ([]byte, error) {
	b, err := c.Receive()
	if err == script.ErrSilence {
		err = nil
	}
	return b, err
}

func (c *simConn) HalfClose() error {
	c.eof = true
	if c.ended {
		return nil
	}
	if c.session.HalfClose(c.sim.now, &c.out) == Done {
		c.waiting = false
		c.work()
	}
	return nil
}

func (c *simConn) Close() error {
	if !c.ended {
		c.end()
		c.loop.Deliver(c.sim.now)
		c.sim.Settle()
	}
	return nil
}
