package shard_test

import (
	"hash/maphash"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/shard"
)

// What tests of package shard use of package engine: see shard.Above.
func init() {
	shard.Above.New = newEngine
	shard.Above.NewGrant = func(name string, rights shard.Rights, tubes []string) *shard.Grant {
		return &shard.Grant{AboveGrant: grant{engine.NewGrant(name, engine.Rights(rights), tubes)}}
	}
	shard.Above.GrantOf = func(g any) *shard.Grant { return &shard.Grant{AboveGrant: grant{g.(*engine.Grant)}} }
	shard.Above.Absent = func(id uint64, g *shard.Grant, x shard.Interests, age clock.Time) (*shard.Detached, error) {
		d, err := engine.Absent(id, granted(g), engine.Interests(x), age)
		return detachedAs(d), err
	}
	shard.Above.Session = func(p unsafe.Pointer) *shard.Session { return sessionAt((*engine.Session)(p)) }
	shard.ErrConnections, shard.ErrNoHolds, shard.ErrNoNumbers = engine.ErrConnections, engine.ErrNoHolds, engine.ErrNoNumbers
	shard.ErrNumberGone, shard.ErrSessionID = engine.ErrNumberGone, engine.ErrSessionID
	shard.ErrSessionsLeft = engine.ErrSessionsLeft
}

// The constants of both packages are the same, or this cannot be compiled.
var _ = [...]struct{}{
	[1]struct{}{}[engine.Quit-engine.Outcome(shard.Quit)],
	[1]struct{}{}[engine.NotDone-engine.Answer(shard.NotDone)],
	[1]struct{}{}[engine.SameAnswer-engine.Answer(shard.SameAnswer)],
	[1]struct{}{}[engine.RightPut-engine.Rights(shard.RightPut)],
	[1]struct{}{}[engine.RightWork-engine.Rights(shard.RightWork)],
	[1]struct{}{}[engine.RightRead-engine.Rights(shard.RightRead)],
	[1]struct{}{}[engine.RightManage-engine.Rights(shard.RightManage)],
	[1]struct{}{}[engine.RightAdmin-engine.Rights(shard.RightAdmin)],
	[1]struct{}{}[engine.RightAll-engine.Rights(shard.RightAll)],
}

// newEngine makes an engine that places tubes as cfg says.
func newEngine(cfg shard.Config) shard.AboveEngine {
	c := engine.Config{
		MaxJobSize: cfg.MaxJobSize, Shards: cfg.Shards, Limits: cfg.Limits, Accounts: cfg.Accounts, Journal: cfg.Journal,
		Stock: cfg.Stock, SegmentSize: cfg.SegmentSize, Start: cfg.Start, Info: engine.Info(cfg.Info),
	}
	if cfg.Audit != nil {
		c.Audit = func(d engine.Deed) { cfg.Audit(deedAs(d)) }
	}
	*shard.Peek[maphash.Seed](&c, "seed") = cfg.Seed
	return aboveEngine{engine.New(c)}
}

func deedAs(d engine.Deed) shard.Deed {
	is := shard.Deed{Client: d.Client, Op: d.Op, Tube: d.Tube, To: d.To, ID: d.ID, Result: d.Result, Denied: d.Denied}
	var from *shard.Session
	if s := shard.Inside(&d, "from"); !s.IsNil() {
		from = sessionAt(s.Interface().(*engine.Session))
	}
	return is.Of(from, d.Peer())
}

type aboveEngine struct{ *engine.Engine }

func (e aboveEngine) Real() any { return e.Engine }

func (e aboveEngine) NewLoop(w shard.Waker) shard.AboveLoop {
	if c, ok := w.(shard.Carrier); ok {
		return &loop{e.Engine.NewLoop(carrier{w, c})}
	}
	return &loop{e.Engine.NewLoop(w)}
}

// carrier is a waker that carries sessions.
type carrier struct {
	shard.Waker
	of shard.Carrier
}

func (c carrier) PeerAddr(s *engine.Session) string            { return c.of.PeerAddr(sessionAt(s)) }
func (c carrier) Via(s *engine.Session) string                 { return c.of.Via(sessionAt(s)) }
func (c carrier) Disconnect(s *engine.Session, now clock.Time) { c.of.Disconnect(sessionAt(s), now) }

func (c carrier) Denied(s *engine.Session, d *engine.Deed) bool {
	is := deedAs(*d)
	return c.of.Denied(sessionAt(s), &is)
}
func (c carrier) TokenSent(s *engine.Session) { c.of.TokenSent(sessionAt(s)) }

type loop struct{ *engine.Loop }

func (l *loop) Real() any { return l.Loop }

func (l *loop) NewSession(s *shard.Session) shard.AboveSession { return &session{test: s} }

func (l *loop) Open(s shard.AboveSession, now clock.Time) { l.Loop.Open(sessionOf(s), now) }

func (l *loop) OpenAs(s shard.AboveSession, id uint64, g *shard.Grant, now clock.Time) error {
	return l.Loop.OpenAs(sessionOf(s), id, granted(g), now)
}

func (l *loop) OpenGranted(s shard.AboveSession, g *shard.Grant, now clock.Time) bool {
	return l.Loop.OpenGranted(sessionOf(s), granted(g), now)
}

func (l *loop) GoOn(s shard.AboveSession, d *shard.Detached, by, now clock.Time) error {
	return l.Loop.GoOn(sessionOf(s), d.AboveDetached.(detached).Detached, by, now)
}

func (l *loop) Next(now clock.Time) *shard.Session {
	if s := l.Loop.Next(now); s != nil {
		return sessionAt(s)
	}
	return nil
}

// session is the session of one of a test.
type session struct {
	engine.Session // the first field: see sessionAt
	test           *shard.Session
}

func sessionAt(s *engine.Session) *shard.Session     { return (*session)(unsafe.Pointer(s)).test }
func sessionOf(s shard.AboveSession) *engine.Session { return &s.(*session).Session }

func (s *session) Real() any { return &s.Session }

func (s *session) Answer(
	now clock.Time, cmd *codec.Command, effects []journal.Effect, out *shard.Output,
) (shard.Answer, shard.Outcome) {
	a, o := s.Session.Answer(now, cmd, effects, out)
	return shard.Answer(a), shard.Outcome(o)
}

func (s *session) Execute(now clock.Time, cmd *codec.Command, out *shard.Output) shard.Outcome {
	return shard.Outcome(s.Session.Execute(now, cmd, out))
}

func (s *session) Resume(now clock.Time, out *shard.Output) shard.Outcome {
	return shard.Outcome(s.Session.Resume(now, out))
}

func (s *session) HalfClose(now clock.Time, out *shard.Output) shard.Outcome {
	return shard.Outcome(s.Session.HalfClose(now, out))
}

func (s *session) Interrupt(now clock.Time, out *shard.Output) shard.Outcome {
	return shard.Outcome(s.Session.Interrupt(now, out))
}

func (s *session) Interests() shard.Interests { return shard.Interests(s.Session.Interests()) }

func (s *session) Detach() (*shard.Detached, bool) {
	d, ok := s.Session.Detach()
	return detachedAs(d), ok
}

func (s *session) DetachRecorded() (*shard.Detached, bool) {
	d, ok := s.Session.DetachRecorded()
	return detachedAs(d), ok
}

type detached struct{ *engine.Detached }

// detachedAs is nil for nil.
func detachedAs(d *engine.Detached) *shard.Detached {
	if d == nil {
		return nil
	}
	return &shard.Detached{AboveDetached: detached{d}}
}

func (d detached) Interests() shard.Interests { return shard.Interests(d.Detached.Interests()) }

type grant struct{ *engine.Grant }

// granted is nil for nil, who may do everything.
func granted(g *shard.Grant) *engine.Grant {
	if g == nil {
		return nil
	}
	return g.Real().(*engine.Grant)
}

func (g grant) Real() any { return g.Grant }

func (g grant) In(account string) *shard.Grant {
	return &shard.Grant{AboveGrant: grant{g.Grant.In(account)}}
}

func (g grant) Terms() (name, account string, rights shard.Rights, tubes []string) {
	name, account, r, tubes := g.Grant.Terms()
	return name, account, shard.Rights(r), tubes
}
