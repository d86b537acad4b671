package shard

import (
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/script"
)

// simTarget plays scripts on the engine alone: connections are byte slices, and
// the clock moves only when a script waits.
type simTarget struct {
	loops  int
	setUp  func(*sim) // may be nil
	limits Limits
}

func (st simTarget) Start(clients []script.Client, options ...string) (script.Server, error) {
	values := map[string]uint64{"-z": 65535, "--max-keys": 0}
	journaled := false
	for i := 0; i+1 < len(options); i += 2 {
		name := options[i]
		if name == "-b" {
			journaled = true
			continue
		}
		if _, ok := values[name]; !ok {
			return nil, fmt.Errorf("no option %q", name)
		}
		var err error
		if values[name], err = strconv.ParseUint(options[i+1], 10, 32); err != nil {
			return nil, fmt.Errorf("option %s: %w", name, err)
		}
	}
	limits := st.limits
	limits.Keys = int(values["--max-keys"])
	s := newLimitedSim(uint32(values["-z"]), st.loops, limits)
	s.grant(clients)
	if journaled {
		s.engine.recordIn(newHoldingFile())
	}
	if st.setUp != nil {
		st.setUp(s)
	}
	return s, nil
}

// sim is an engine with loops and connections and a clock of its own, all on one
// goroutine.
type sim struct {
	engine *Engine
	now    clock.Time
	loops  []*simLoop
	conns  []*simConn // all that were ever opened
	grants map[string]*Grant
	deeds  []Deed // what Config.Audit was told of
	wait   int    // counts how often a client began to wait
	ended  func() // called by Stop; may be nil
	before func() // called before a client sends; may be nil

	restart func() // has another engine take over; nil if a file does

	cold *coldMode // nil if bodies stay in memory

	ids func(n int) uint64 // of the nth connection; nil for those that the engine gives
}

type simLoop struct {
	*Loop
	woken bool
	alarm clock.Time
}

func (l *simLoop) Wake()               { l.woken = true }
func (l *simLoop) Alarm(at clock.Time) { l.alarm = at }

// PeerAddr implements Carrier.
func (l *simLoop) PeerAddr(*Session) string { return "[::1]:12345" }

// Via implements Carrier.
func (l *simLoop) Via(s *Session) string { return connOf(s).via }

// Denied implements Carrier.
func (l *simLoop) Denied(s *Session, d *Deed) bool {
	if c := connOf(s); c.via != "" {
		c.denied = append(c.denied, *d)
		return true
	}
	return false
}

// TokenSent implements Carrier.
func (l *simLoop) TokenSent(*Session) {}

// Disconnect implements Carrier.
func (l *simLoop) Disconnect(s *Session, _ clock.Time) { connOf(s).end() }

// run is a round of the loop: it pulls all that waits for it.
func (l *simLoop) run(now clock.Time) {
	l.woken = false
	if l.alarm <= now {
		l.alarm = clock.MaxTime
	}
	l.Refill()
	for s := l.Next(now); s != nil; s = l.Next(now) {
		connOf(s).resume()
	}
}

// grant grants clients what scripts say of them.
func (s *sim) grant(clients []script.Client) {
	s.grants = make(map[string]*Grant)
	for _, c := range clients {
		var rights Rights
		for _, r := range c.Rights {
			rights |= map[string]Rights{
				"put": RightPut, "work": RightWork, "read": RightRead, "all": RightAll, "admin": RightAdmin,
			}[r]
			if r == "all" && slices.Contains(c.Tubes, "*") {
				rights |= RightAdmin
			}
		}
		s.grants[c.Name] = NewGrant(c.Name, rights, c.Tubes)
	}
}

// note is the engine's Config.Audit.
func (s *sim) note(d Deed) {
	for _, sh := range s.engine.shards {
		if !sh.mu.TryLock() {
			panic("a lock is held while " + d.Op.String() + " is told of")
		}
		sh.mu.Unlock()
	}
	s.deeds = append(s.deeds, d)
}

func newSim(maxJob uint32, loops int) *sim { return newLimitedSim(maxJob, loops, Limits{}) }

func newLimitedSim(maxJob uint32, loops int, limits Limits) *sim {
	return newConfiguredSim(Config{MaxJobSize: maxJob, Limits: limits}, loops)
}

func newConfiguredSim(cfg Config, loops int) *sim {
	cfg.Info = Info{
		PID: 1, Version: "1.13+trellis.test", ID: "0123456789abcdef",
		Hostname: "host", OS: "#1 os", Platform: "x86_64",
		Usage: func() (u, s time.Duration) { return 1234567 * time.Microsecond, 7 * time.Microsecond },
	}
	s := new(sim)
	cfg.Audit = s.note
	s.make(cfg, loops)
	return s
}

// placement has a tube in the same shard of all engines, for what is due at the same time in several shards comes in
// their order.
var placement = maphash.MakeSeed()

// make makes the engine and its loops.
func (s *sim) make(cfg Config, loops int) {
	s.engine, s.loops = newEngine(cfg, placement), nil
	for range loops {
		l := &simLoop{alarm: clock.MaxTime}
		l.Loop = s.engine.NewLoop(l)
		s.loops = append(s.loops, l)
	}
}

// Restart implements script.Restarter.
func (s *sim) Restart() error {
	if s.restart != nil {
		s.restart()
		return nil
	}
	f, next := s.engine.log.Journal.(*holdingFile), s.engine.ids.Last.Load()+1
	cfg := s.engine.config
	cfg.Journal = f
	s.make(cfg, len(s.loops))
	follower := s.engine.Follow(s.now)
	if err := f.tell(follower); err != nil {
		return err
	}
	follower.Serve(next, s.now)
	return nil
}

func (s *sim) Settle() {
	for again := true; again; {
		again = s.cold.settle(s.engine)
		for _, l := range s.loops {
			if l.woken {
				again = true
				l.run(s.now)
			}
		}
	}
}

// alarm is the time for which the loops have asked.
func (s *sim) alarm() clock.Time {
	at := clock.MaxTime
	for _, l := range s.loops {
		at = min(at, l.alarm)
	}
	return at
}

func (s *sim) Wait(d time.Duration) {
	to := s.now + clock.Time(d)
	if m := s.cold; m != nil && m.warms {
		s.cold = nil
		defer func() { s.cold = m; s.Settle() }()
		m.committed = m.pos
		m.warm(s.engine)
	}
	for {
		at := s.alarm()
		if at > to {
			break
		}
		s.now = max(s.now, at)
		for _, l := range s.loops {
			if l.alarm <= s.now {
				l.run(s.now)
			}
		}
		s.Settle()
	}
	s.now = to
}

func (s *sim) Drain(on bool) error { s.engine.Drain(on); return nil }

func (s *sim) Stop() {
	if s.ended != nil {
		s.ended()
	}
}

// Open opens a connection, of a client that may do what its grant says if it has a name.
func (s *sim) Open(client string) (script.Conn, error) {
	if client != "" && s.grants[client] == nil {
		return nil, fmt.Errorf("no client %q", client)
	}
	return s.openAs(s.grants[client]), nil
}

func (s *sim) open() *simConn { return s.openAs(nil) }

func (s *sim) openAs(g *Grant) *simConn {
	c := &simConn{sim: s, loop: s.loops[len(s.conns)%len(s.loops)]}
	s.conns = append(s.conns, c)
	c.decoder.MaxJobSize = s.engine.config.MaxJobSize
	c.decoder.Extensions = true
	switch {
	case s.ids != nil:
		if err := c.loop.OpenAs(&c.session, s.ids(len(s.conns)), g, s.now); err != nil {
			panic(err)
		}
	case g == nil:
		c.loop.Open(&c.session, s.now)
	default:
		c.loop.OpenGranted(&c.session, g, s.now)
	}
	return c
}

// simConn does to a session what the reactor does.
type simConn struct {
	session Session // the first field: see connOf
	sim     *sim
	loop    *simLoop
	decoder codec.Decoder
	cmd     codec.Command
	in      []byte       // not yet executed
	offset  uint64       // what was, in bytes
	out     reply.Output // not yet received
	via     string       // a member
	denied  []Deed       // what that has been told of
	waiting bool
	wait    int  // when that began
	held    bool // it does not resume
	eof     bool // the client will send no more
	ended   bool
	woken   int

	effects []journal.Effect // what commands that it sends again have done
	answers []Answer         // that these got
	unknown bool             // it has ended because nobody knows what it would have been told
	replied func()           // called when a command is finished; may be nil
}

// connOf is the connection of a session.
func connOf(s *Session) *simConn { return (*simConn)(unsafe.Pointer(s)) }

func (c *simConn) resume() {
	if c.held || c.ended {
		return
	}
	c.woken++
	outcome := c.session.Resume(c.sim.now, &c.out)
	flatten(&c.out)
	if outcome == Wait && !c.interrupt() {
		c.waits()
		return
	}
	c.waiting = false
	c.finished(outcome)
	c.work()
}

// interrupt ends a wait behind which the client has sent more. It reports false if it waits on.
func (c *simConn) interrupt() bool {
	return len(c.in) > 0 && c.session.Interrupt(c.sim.now, &c.out) == Done
}

// flatten copies large bodies to where they belong, and releases them.
func flatten(o *reply.Output) {
	for i := len(o.Bodies) - 1; i >= 0; i-- {
		b := &o.Bodies[i]
		o.Buf = slices.Insert(o.Buf, b.At, b.Bytes...)
		b.Release()
	}
	o.Bodies = nil
}

// waits notes that the client waits, behind all who do.
func (c *simConn) waits() {
	c.sim.wait++
	c.wait = c.sim.wait
}

func (c *simConn) work() {
	var cmd codec.Command
	for !c.waiting && !c.ended {
		n, ok := c.decoder.Next(c.in, &cmd)
		c.offset += uint64(n)
		if !ok {
			c.in = c.in[:0]
			break
		}
		c.in = c.in[n:]
		c.session.CommandEnds(c.offset)
		outcome := c.execute(&cmd)
		flatten(&c.out)
		if outcome == Wait && !c.interrupt() {
			c.waiting = true
			c.waits()
		} else {
			c.finished(outcome)
		}
	}
	if c.eof && !c.waiting && !c.ended {
		c.end()
	}
	c.loop.Wake()
	c.sim.Settle()
}

// finished follows on a command that is.
func (c *simConn) finished(outcome Outcome) {
	if c.replied != nil {
		c.replied()
	}
	if outcome == Quit {
		c.end()
	}
}

// execute executes a command, or answers it if it was done before.
func (c *simConn) execute(cmd *codec.Command) Outcome {
	if len(c.effects) == 0 {
		return c.session.Execute(c.sim.now, cmd, &c.out)
	}
	n := slices.IndexFunc(c.effects, func(e journal.Effect) bool { return e.Offset > c.offset })
	if n < 0 {
		n = len(c.effects)
	}
	of := c.effects[:n]
	c.effects = c.effects[n:]
	if n == 0 {
		if c.session.Harmless(cmd) {
			return c.session.Execute(c.sim.now, cmd, &c.out)
		}
	} else if of[0].Offset == c.offset {
		a, outcome := c.session.Answer(c.sim.now, cmd, of, &c.out)
		switch c.answers = append(c.answers, a); {
		case a == NotDone && len(c.effects) == 0:
			return c.session.Execute(c.sim.now, cmd, &c.out)
		case a == SameAnswer || a == OtherAnswer:
			return outcome
		}
	}
	c.unknown = true
	return Quit
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
	if c.sim.before != nil {
		c.sim.before()
	}
	c.in = append(c.in, p...)
	c.session.Received(len(p))
	if c.waiting && c.interrupt() {
		c.waiting = false
		c.finished(Done)
	}
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
	c.session.Replied(len(b), new(reply.Output))
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
		c.loop.Wake()
		c.sim.Settle()
	}
	return nil
}
