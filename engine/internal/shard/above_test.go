package shard

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"iter"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/weights"
)

// What tests see of loops and sessions besides their methods: fields of package engine, by their names. Nothing else here
// knows how either is made.

// Constants of package engine, as its source says. The budget of a round stands here as well, for constants that are made
// of it.
const roundBudget = 4096

var (
	constants = constantsAbove()

	wakeCost, statsCost    = constantAbove("wakeCost"), constantAbove("statsCost")
	entryCost, callSlice   = constantAbove("entryCost"), constantAbove("callSlice")
	listPart, maxConnsText = constantAbove("listPart"), constantAbove("maxConnsText")
	rollPageLen            = constantAbove("rollPageLen")

	isOpen, isProducer, isWorker       = flagBit("isOpen"), flagBit("isProducer"), flagBit("isWorker")
	isWaiting, halfClosed, restricted  = flagBit("isWaiting"), flagBit("halfClosed"), flagBit("restricted")
	hasWeights, isWeighted, isInformed = flagBit("hasWeights"), flagBit("isWeighted"), flagBit("isInformed")
	isGhost, aborts                    = flagBit("isGhost"), flagBit("aborts")
)

func flagBit(name string) uint16 { return uint16(constantAbove(name)) }

func constantAbove(name string) int {
	n, ok := constants[name]
	if !ok {
		panic("package engine has no constant " + name)
	}
	return n
}

func constantsAbove() map[string]int {
	names, _ := filepath.Glob("../../*.go")
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, f)
		}
	}
	cfg := types.Config{Error: func(error) {}} // for it imports nothing, of which these constants need nothing
	pkg, _ := cfg.Check("trellis/engine", fset, files, nil)
	all := map[string]int{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			if n, exact := constant.Int64Val(constant.ToInt(c.Val())); exact {
				all[name] = int(n)
			}
		}
	}
	if n := all["roundBudget"]; n != roundBudget {
		panic(fmt.Sprintf("the budget of a round is %d, and here %d", n, roundBudget))
	}
	return all
}

// Inside is a field of what of points to, of a field of it, and so on.
func Inside(of any, names ...string) reflect.Value {
	v := reflect.ValueOf(of).Elem()
	for _, name := range names {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v = v.FieldByName(name); !v.IsValid() {
			panic(fmt.Sprintf("%T has no %v", of, names))
		}
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// Peek is where such a field is.
func Peek[T any](of any, names ...string) *T { return Inside(of, names...).Addr().Interface().(*T) }

// sessionIn is the one of which v points to the session, nil for nil. A session that nobody has opened has nothing but
// its client.
func sessionIn(v reflect.Value) *Session {
	if v.IsNil() {
		return nil
	}
	if c := Peek[Client](v.Interface(), "client"); c.Flags&isGhost != 0 {
		return &Session{client: c}
	}
	return Above.Session(v.UnsafePointer())
}

// by is how the loop works with shards.
func (l *Loop) by() *Tx { return Peek[Tx](l.Real(), "tx") }

// allow leaves the loop so many steps of its round.
func (l *Loop) allow(steps int) { l.Spend(l.Left() - steps) }

// meet makes the loop meet deadlines at that time, as if one had come.
func (l *Loop) meet(at clock.Time) { Peek[atomic.Int64](l.Real(), "alarm").Store(int64(at)) }

// wakesAt is when the loop's own wheel is to be advanced.
func (l *Loop) wakesAt() clock.Time { return *Peek[clock.Time](l.Real(), "due") }

// timers are those of sessions that wait.
func (l *Loop) timers() *queue.Wheel { return Peek[queue.Wheel](l.Real(), "wheel") }

// canGoOn are the sessions that Next returns, in their order, besides those in the mailbox.
func (l *Loop) canGoOn() []*Session {
	return sessionsIn(Inside(l.Real(), "turns").Addr().MethodByName("All").Call(nil)[0])
}

func sessionsIn(list reflect.Value) (all []*Session) {
	for i := range list.Len() {
		all = append(all, sessionIn(list.Index(i)))
	}
	return all
}

// mailbox are the claimed sessions in the loop's mailbox. Calls are there besides; hasMail is what the loop reads
// without a lock, and rung that somebody has asked it to look.
func (l *Loop) mailbox() (list []*Session, calls int, hasMail, rung bool) {
	return sessionsIn(Inside(l.Real(), "mail", "list")), Inside(l.Real(), "mail", "calls").Len(),
		Peek[atomic.Bool](l.Real(), "hasMail").Load(), *Peek[bool](l.Real(), "mail", "woken")
}

// weighted are the sessions that have weights.
func (l *Loop) weighted() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, s := range Inside(l.Real(), "weights").MapKeys() {
			if !yield(sessionIn(s)) {
				return
			}
		}
	}
}

// sessionCounts are counts of open sessions.
type sessionCounts struct{ sessions, producers, workers, waiting int64 }

// sessionCounts are those of the loop's.
func (l *Loop) sessionCounts() sessionCounts {
	n := func(of string) int64 { return Peek[atomic.Int64](l.Real(), "counts", of).Load() }
	return sessionCounts{n("sessions"), n("producers"), n("workers"), n("waiting")}
}

// countNoCommand says that a command that the session has executed is no new one.
func (l *Loop) countNoCommand(s *Session, op codec.Op) {
	*Peek[uint64](s.Real(), "commands")--
	Inside(l.Real(), "counts", "commands").Index(int(op)).Addr().Interface().(*atomic.Uint64).Add(^uint64(0))
}

// clientOf is the session in the sight of shards.
func clientOf(s *Session) *Client { return s.client }

// sessionOf is the session of one that stands in queues.
func sessionOf(w waiter) *Session { return Above.Session(reflect.ValueOf(w).UnsafePointer()) }

func (s *Session) number() uint64         { return *Peek[uint64](s.Real(), "id") }
func (s *Session) incomingPut() *Incoming { return *Peek[*Incoming](s.Real(), "incoming") }
func (s *Session) loop() any              { return Inside(s.Real(), "loop").Interface() }
func (s *Session) by() *Tx                { return Peek[Tx](s.loop(), "tx") }
func (s *Session) isIn(l *Loop) bool      { return s.loop() == l.Real() }

func (s *Session) weights() *weights.Weights {
	if w := Inside(s.loop(), "weights").MapIndex(reflect.ValueOf(s.Real())); w.IsValid() {
		return w.Interface().(*weights.Weights)
	}
	return nil
}

func (s *Session) hasWaited() bool { return !Inside(s.Real(), "wait").IsNil() }

// isBusy reports whether the session waits in a command that is not a wait for a job.
func (s *Session) isBusy() bool { return s.hasWaited() && !Inside(s.Real(), "wait", "task").IsNil() }

// handedJob is the job that ended the session's last wait, 0 if none did.
func (s *Session) handedJob() uint64 {
	if !s.hasWaited() {
		return 0
	}
	return *Peek[uint64](s.Real(), "wait", "id")
}

// timer is that of the session's wait for a job, and when it is needed; nil if it has not waited.
func (s *Session) timer() (t *queue.Timer, at clock.Time) {
	if !s.hasWaited() {
		return nil, clock.MaxTime
	}
	at = min(*Peek[clock.Time](s.Real(), "wait", "until"), *Peek[clock.Time](s.Real(), "wait", "soon"))
	return Peek[queue.Timer](s.Real(), "wait", "timer"), at
}

// waitLine is the command that the session on record waits in, as another server is told of it.
func (s *Session) waitLine() []byte {
	is := reflect.ValueOf(s.Real()).Elem()
	same := reflect.New(is.Type())
	same.Elem().Set(is)
	d := same.MethodByName("DetachRecorded").Call(nil)
	if !d[1].Bool() {
		return nil
	}
	return d[0].MethodByName("Wait").Call(nil)[0].Bytes()
}

// closingTask is what a closed session has still to give back.
func (s *Session) closingTask() *closing { return s.by().closings[s.client] }

// A history is what a session's loop knows of it besides what other servers are told.
type history struct {
	since, opened     clock.Time
	commands          uint64
	bytesIn, bytesOut uint64
	chosen            uint64 // how it has chosen by its weights
	flags             uint16
	grant             *Grant
	listed            listEnd
}

// figures are where the session has those of its history.
func (s *Session) figures() (opened *clock.Time, commands, bytesIn, bytesOut *uint64) {
	n := func(of string) *uint64 { return Peek[uint64](s.Real(), of) }
	return Peek[clock.Time](s.Real(), "opened"), n("commands"), n("bytesIn"), n("bytesOut")
}

func (s *Session) history() *history {
	opened, commands, bytesIn, bytesOut := s.figures()
	h := &history{opened: *opened, commands: *commands, bytesIn: *bytesIn, bytesOut: *bytesOut, flags: s.client.Flags, listed: s.by().listEnds[s.client]}
	if s.hasWaited() {
		h.since = *Peek[clock.Time](s.Real(), "wait", "since")
	}
	if s.client.Flags&restricted != 0 {
		h.grant = Above.GrantOf(Inside(s.Real(), "wait", "grant", "Grant").Interface())
	}
	if w := s.weights(); w != nil {
		h.chosen = *Peek[uint64](w, "at")
	}
	return h
}

// remember gives a session that goes on its history, by whose times its engine's are later.
func (s *Session) remember(h *history, by clock.Time) {
	opened, commands, bytesIn, bytesOut := s.figures()
	*opened, *commands, *bytesIn, *bytesOut = h.opened+by, h.commands, h.bytesIn, h.bytesOut
	count := func(of string, n int64) { Peek[atomic.Int64](s.loop(), "counts", of).Add(n) }
	for flag, of := range map[uint16]string{isProducer: "producers", isWorker: "workers"} {
		if h.flags&flag&^s.client.Flags != 0 {
			count(of, 1)
		}
	}
	s.client.Flags |= h.flags & (isProducer | isWorker)
	if w := s.weights(); w != nil {
		*Peek[uint64](w, "at") = h.chosen
	}
	count("opened", -1) // it is no new one
	if by := s.by(); h.listed != (listEnd{}) {
		if by.listEnds == nil {
			by.listEnds = make(map[*Client]listEnd)
		}
		by.listEnds[s.client] = h.listed
	}
}

// A pageOfRoll is a page of the engine's roll: n sessions, and room for others.
type pageOfRoll struct {
	n        int
	sessions []*Session
}

// rollPages are the pages of the roll, and the last id that it has given.
func (e *Engine) rollPages() (list []pageOfRoll, lastID uint64) {
	pages := Inside(e.Real(), "roll", "pages")
	for i := range pages.Len() {
		p := pages.Index(i).Interface()
		list = append(list, pageOfRoll{*Peek[int](p, "n"), sessionsIn(Inside(p, "sessions"))})
	}
	return list, *Peek[uint64](e.Real(), "roll", "lastID")
}

// onRoll are the sessions on the roll.
func (e *Engine) onRoll() (list []*Session) {
	pages, _ := e.rollPages()
	for _, p := range pages {
		list = append(list, p.sessions[:p.n]...)
	}
	return list
}
