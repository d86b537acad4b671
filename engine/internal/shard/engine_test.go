package shard

import (
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/account"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/record"
	"trellis/engine/internal/reply"
	"trellis/engine/stats"
)

// Tests of this package drive sessions, and package engine, whose these are, imports this one. So they name what they use
// of that package here, and package shard_test, which may import both, says what it is: see driver_test.go. Who tests
// sees an Engine, a Loop or a Session as the users of package engine do, and shards as this package does.

// Above is package engine.
var Above struct {
	New      func(Config) AboveEngine
	NewGrant func(name string, rights Rights, tubes []string) *Grant
	Absent   func(id uint64, g *Grant, x Interests, age clock.Time) (*Detached, error)
	GrantOf  func(any) *Grant // the one of package engine
	// Session is the one for which the engine has a session at that address.
	Session func(unsafe.Pointer) *Session
}

// Errors of package engine.
var ErrConnections, ErrNoHolds, ErrNoNumbers, ErrNumberGone, ErrSessionID, ErrSessionsLeft error

type (
	Output  = reply.Output
	Outcome uint8
	Rights  uint8
	Answer  uint8
)

const (
	Done Outcome = iota
	Wait
	Quit
)

const (
	RightPut Rights = 1 << iota
	RightWork
	RightRead
	RightManage
	RightAdmin
	RightAll = RightPut | RightWork | RightRead | RightManage
)

const (
	NoAnswer Answer = iota
	SameAnswer
	OtherAnswer
	NotDone
)

// Config is what an engine needs to know and to reach.
type Config struct {
	MaxJobSize  uint32
	Shards      int
	Limits      Limits
	Accounts    *account.Accounts
	Journal     record.Journal
	Stock       bool
	SegmentSize int64
	Start       time.Time
	Info        Info
	Audit       func(Deed)

	Seed maphash.Seed // by which tubes are placed; any if it is zero
}

// Info describes the server's process and its machine.
type Info struct {
	PID      int
	Version  string
	ID       string
	Hostname string
	OS       string
	Platform string
	Usage    func() (user, system time.Duration)
	Uptime   func() time.Duration
}

// A Deed is what Config.Audit is told of.
type Deed struct {
	Client   string
	Op       codec.Op
	Tube, To string
	ID       uint64
	Result   string
	Denied   bool

	from *Session
	peer string
}

// Of returns the deed of a session, or of none, at an address.
func (d Deed) Of(s *Session, peer string) Deed {
	d.from, d.peer = s, peer
	return d
}

func (d Deed) At(peer string) Deed { return d.Of(d.from, peer) }
func (d *Deed) Peer() string       { return d.peer }

// doer is the session of which a deed tells.
func doer(d Deed) *Session { return d.from }

// Interests are what a client has asked for in its session, besides jobs.
type Interests struct {
	Used    string
	Watched []string
	Weights []uint16
	Mode    codec.Mode
	Info    bool
	Abort   bool
}

// AboveEngine is an engine of package engine, AboveLoop one of its loops, and AboveSession a session. Real is the engine,
// loop or session itself.
type (
	AboveEngine interface {
		Real() any
		CloseAbsent(number uint32)
		Discard()
		Drain(on bool)
		Draining() bool
		EndNumber(number uint32) (journal.Pos, error)
		GiveNumbers(member, nonce uint64, n int) ([]uint32, journal.Pos, error)
		NewLoop(Waker) AboveLoop
		NumberOf(number uint32) (member, nonce uint64)
		NumberPresent(number uint32) bool
		Room()
		Snapshot(now clock.Time) *stats.Server
	}
	AboveLoop interface {
		Real() any
		Busy() bool
		GoOn(s AboveSession, d *Detached, by, now clock.Time) error
		Left() int
		MeetDeadlines(now clock.Time)
		NewSession(*Session) AboveSession
		Next(now clock.Time) *Session
		Number(number uint32, sessions uint64)
		Open(s AboveSession, now clock.Time)
		OpenAs(s AboveSession, id uint64, g *Grant, now clock.Time) error
		OpenGranted(s AboveSession, g *Grant, now clock.Time) bool
		Refill()
		Sessions() uint64
		Spend(cost int) bool
		Stop()
	}
	AboveSession interface {
		Real() any
		Answer(now clock.Time, cmd *codec.Command, effects []journal.Effect, out *Output) (Answer, Outcome)
		Close(now clock.Time) (done bool)
		CommandEnds(offset uint64)
		Detach() (*Detached, bool)
		DetachRecorded() (*Detached, bool)
		Execute(now clock.Time, cmd *codec.Command, out *Output) Outcome
		HalfClose(now clock.Time, out *Output) Outcome
		Harmless(*codec.Command) bool
		Interests() Interests
		Interrupt(now clock.Time, out *Output) Outcome
		Part(now clock.Time) (done bool)
		Received(n int)
		Record(room *atomic.Int64, now clock.Time) bool
		Replied(n int, out *Output)
		Reserves(now clock.Time) bool
		Resume(now clock.Time, out *Output) Outcome
		WaitingSince() clock.Time
	}
)

// Waker and Carrier are those of package engine.
type Waker interface {
	Wake()
	Alarm(at clock.Time)
}

type Carrier interface {
	PeerAddr(s *Session) string
	Via(s *Session) string
	Disconnect(s *Session, now clock.Time)
	Denied(s *Session, d *Deed) bool
	TokenSent(s *Session)
}

// Engine is an engine and its shards.
type Engine struct {
	*Shards
	AboveEngine
	config Config
	loops  []*Loop
}

// New makes an engine.
func New(cfg Config) *Engine {
	e := &Engine{AboveEngine: Above.New(cfg), config: cfg}
	e.Shards = Peek[Shards](e.Real(), "Shards")
	return e
}

// newEngine makes an engine that places tubes by seed.
func newEngine(cfg Config, seed maphash.Seed) *Engine {
	cfg.Seed = seed
	return New(cfg)
}

// Discard is the engine's, of which that of its shards is a part.
func (e *Engine) Discard() { e.AboveEngine.Discard() }

func (e *Engine) NewLoop(w Waker) *Loop {
	l := &Loop{e.AboveEngine.NewLoop(w)}
	e.loops = append(e.loops, l)
	return l
}

// Loop is a loop of the engine.
type Loop struct{ AboveLoop }

// open makes s the session of the loop that open opens, or none if it reports an error.
func (l *Loop) open(s *Session, open func(AboveSession) error) error {
	s.AboveSession = l.NewSession(s)
	s.client = Peek[Client](s.Real(), "client")
	err := open(s.AboveSession)
	if err != nil {
		*s = Session{}
	}
	return err
}

var errNotOpened = errors.New("the session is not opened")

func (l *Loop) Open(s *Session, now clock.Time) {
	_ = l.open(s, func(a AboveSession) error { l.AboveLoop.Open(a, now); return nil })
}

func (l *Loop) OpenGranted(s *Session, g *Grant, now clock.Time) bool {
	return l.open(s, func(a AboveSession) error {
		if !l.AboveLoop.OpenGranted(a, g, now) {
			return errNotOpened
		}
		return nil
	}) == nil
}

func (l *Loop) OpenAs(s *Session, id uint64, g *Grant, now clock.Time) error {
	return l.open(s, func(a AboveSession) error { return l.AboveLoop.OpenAs(a, id, g, now) })
}

func (l *Loop) GoOn(s *Session, d *Detached, by, now clock.Time) error {
	return l.open(s, func(a AboveSession) error { return l.AboveLoop.GoOn(a, d, by, now) })
}

func (l *Loop) Attach(s *Session, d *Detached, by, now clock.Time) bool {
	return l.GoOn(s, d, by, now) == nil
}

// Session is a session, and its client. It is zero while it is not open.
type Session struct {
	AboveSession
	client *Client
}

func (s *Session) Detach() (*Detached, bool) { return s.detach(s.AboveSession.Detach()) }
func (s *Session) DetachRecorded() (*Detached, bool) {
	return s.detach(s.AboveSession.DetachRecorded())
}

func (s *Session) detach(d *Detached, ok bool) (*Detached, bool) {
	if ok {
		*s = Session{}
	}
	return d, ok
}

// Detached is a session without an engine.
type Detached struct{ AboveDetached }

// AboveDetached is the one of package engine.
type AboveDetached interface {
	EndsAt(offset uint64)
	Handed() uint64
	ID() uint64
	Interests() Interests
	Offset() uint64
	Put() ([]byte, bool)
	Wait() []byte
	WaitsSince() clock.Time
}

func Absent(id uint64, g *Grant, x Interests, age clock.Time) (*Detached, error) {
	return Above.Absent(id, g, x, age)
}

// Grant is what a client may do.
type Grant struct{ AboveGrant }

// AboveGrant is the one of package engine.
type AboveGrant interface {
	Real() any
	In(account string) *Grant
	Terms() (name, account string, rights Rights, tubes []string)
}

func NewGrant(name string, rights Rights, tubes []string) *Grant {
	return Above.NewGrant(name, rights, tubes)
}
