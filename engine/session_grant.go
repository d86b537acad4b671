package engine

import (
	"slices"
	"strings"

	"trellis/codec"
)

// Rights are what a client may do with the jobs of its tubes.
type Rights uint8

// The rights. A client with any of them may use its tubes, ask which ones it uses and
// watches, and quit.
const (
	// RightPut is for put.
	RightPut Rights = 1 << iota
	// RightWork is for watch, ignore, all kinds of reserve, and delete, release, bury
	// and touch of jobs that the client has reserved.
	RightWork
	// RightRead is for stats, lists of tubes, jobs, connections and settings of dead letters,
	// and all kinds of peek.
	RightRead
	// RightManage is for what is done to jobs whoever has reserved them, and to tubes:
	// delete, kick, move, flush, pause-tube, set-dlq; and for drain.
	RightManage
	// RightAll is all of them.
	RightAll = RightPut | RightWork | RightRead | RightManage
)

// TokenTube is how a name begins that a client uses in order to authenticate, with a token
// behind it. No grant gives a client a tube of such a name: a token that is sent once too
// often must not become a name that others see.
const TokenTube = "auth/"

// Grant is what a client may do. It does not change, and many sessions may share it.
// Make one with [NewGrant].
type Grant struct {
	name     string
	rights   Rights
	names    []string // of tubes, sorted
	prefixes []string // of names of tubes
	denied   func(codec.Op)
}

// NewGrant gives the client of that name rights to tubes: names, and beginnings of names
// with a * behind them. denied, if it is not nil, is told of each command that is denied,
// and of each that does not find a job because its tube is not the client's. Several loops
// may call it at a time, with no lock of the engine held, and it must not block.
func NewGrant(name string, rights Rights, tubes []string, denied func(codec.Op)) *Grant {
	g := &Grant{name: name, rights: rights, denied: denied}
	for _, t := range tubes {
		if prefix, ok := strings.CutSuffix(t, "*"); ok {
			g.prefixes = append(g.prefixes, prefix)
		} else {
			g.names = append(g.names, t)
		}
	}
	slices.Sort(g.names)
	return g
}

// tell tells that a command was denied.
func (g *Grant) tell(op codec.Op) {
	if g.denied != nil {
		g.denied(op)
	}
}

// permits tells whether a tube is the client's.
func (g *Grant) permits(tube string) bool {
	if strings.HasPrefix(tube, TokenTube) {
		return false
	}
	for _, p := range g.prefixes {
		if strings.HasPrefix(tube, p) {
			return true
		}
	}
	_, found := slices.BinarySearch(g.names, tube)
	return found
}

// permitsAll tells whether all tubes that a session uses and watches are the client's. To
// that client the session's connection is shown.
func (g *Grant) permitsAll(s *Session) bool {
	empty := s.loop.engine.emptyTube
	permits := func(t *tube) bool { return t == empty || g.permits(t.name) }
	if !permits(s.used) {
		return false
	}
	for i := range s.watched {
		if !permits(s.watched[i].tube) {
			return false
		}
	}
	return true
}

// OpenGranted starts a session as [Loop.Open] does, which may do what g says. If the
// default tube is not the client's, the session begins with one of that name that is
// always empty, and that nobody puts into. So clients that ignore default, or count what
// they watch, need not know.
func (l *Loop) OpenGranted(s *Session, g *Grant, now Time) {
	t := l.engine.defaultTube
	if !g.permits(defaultTube) {
		t = l.engine.emptyTube
	}
	l.open(s, t, now)
	s.waiter().grant = g
	s.flags |= restricted
}

// restrict looks at a command of a restricted session before it is executed. If it is not
// to be, it answers it.
func (s *Session) restrict(now Time, cmd *codec.Command, out *Output) (outcome Outcome, denied bool) {
	switch {
	case !s.mayExecute(cmd):
		return s.deny(cmd, out), true
	case s.hides(now, cmd):
		s.wait.grant.tell(cmd.Op)
		s.notFound(nil, out, codec.ReplyNotFound)
		return Done, true
	}
	return Done, false
}

// mayExecute tells whether the client has a right to a command. It does not look at the job
// that a command names.
func (s *Session) mayExecute(cmd *codec.Command) bool {
	g := s.wait.grant
	has := func(r Rights) bool { return g.rights&r != 0 }
	usesOwn := s.used != s.loop.engine.emptyTube
	switch cmd.Op {
	case codec.OpPut, codec.OpPutBegin, codec.OpPutChunk, codec.OpPutEnd, codec.OpPutTooBig, codec.OpPutTooBigEnd:
		return has(RightPut) && usesOwn
	case codec.OpReserve, codec.OpReserveWithTimeout, codec.OpReserveJob,
		codec.OpRelease, codec.OpBury, codec.OpTouch, codec.OpIgnore,
		codec.OpReserveBatch, codec.OpTouchAll:
		return has(RightWork)
	case codec.OpDelete:
		return has(RightWork | RightManage)
	case codec.OpKick:
		return has(RightManage) && usesOwn
	case codec.OpKickJob:
		return has(RightManage)
	case codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		return has(RightRead) && usesOwn
	case codec.OpPeek, codec.OpStats, codec.OpStatsJob, codec.OpListTubes, codec.OpListDLQ, codec.OpStatsConn, codec.OpListConns:
		return has(RightRead)
	case codec.OpStatsTube, codec.OpListJobs, codec.OpPeekTube:
		return has(RightRead) && g.permits(string(cmd.Tube))
	case codec.OpPauseTube, codec.OpFlushTube, codec.OpDeleteTubeJobs, codec.OpKickTube, codec.OpMoveJob:
		return has(RightManage) && g.permits(string(cmd.Tube))
	case codec.OpMoveTube, codec.OpSetDLQ:
		return has(RightManage) && g.permits(string(cmd.Tube)) && g.permits(string(cmd.To))
	case codec.OpDrain, codec.OpUndrain, codec.OpDrainStatus:
		return has(RightManage)
	case codec.OpWatch:
		return has(RightWork) && g.permits(string(cmd.Tube))
	case codec.OpUse:
		return g.permits(string(cmd.Tube))
	case codec.OpListTubeUsed, codec.OpListTubesWatched, codec.OpQuit, codec.OpCapabilities, codec.OpStatsOwnConn:
		return true
	case codec.OpUnknown, codec.OpAuth, codec.OpHTTP, codec.OpBadFormat:
		return true // nothing is done
	}
	return false
}

// deny answers a command that is not executed. After a denied use or watch the client is
// not to be served on: it may have sent commands behind that which were meant for another
// tube than it uses or watches.
func (s *Session) deny(cmd *codec.Command, out *Output) Outcome {
	switch cmd.Op {
	case codec.OpPutBegin, codec.OpPutChunk, codec.OpPutTooBig:
		return Done // answered when all of the body was discarded
	}
	s.wait.grant.tell(commandOf(cmd.Op))
	out.reply(codec.ReplyUnknownCommand)
	if cmd.Op == codec.OpUse || cmd.Op == codec.OpWatch {
		return Quit
	}
	return Done
}

// commandOf is the command of which an event of the decoder is a part.
func commandOf(op codec.Op) codec.Op {
	switch op {
	case codec.OpPutEnd, codec.OpPutTooBigEnd:
		return codec.OpPut
	}
	return op
}

// hides tells whether a command names a job in a tube that is not the client's. No id is
// used twice. A job that somebody moves before the command is executed was in the client's
// tube when the command came.
func (s *Session) hides(now Time, cmd *codec.Command) bool {
	switch cmd.Op {
	case codec.OpDelete, codec.OpReserveJob, codec.OpKickJob, codec.OpPeek, codec.OpStatsJob, codec.OpMoveJob:
	default:
		return false // the others find only jobs that the client has reserved
	}
	c := &s.loop.locks
	sh, _, j := s.loop.engine.lockJob(c, cmd.ID, now)
	if sh == nil {
		return false
	}
	permitted := s.wait.grant.permits(sh.tubes[j.tube].name)
	sh.unlock(c)
	return !permitted
}

// onlyWorks tells whether the session may change no jobs but those that it has reserved.
func (s *Session) onlyWorks() bool {
	return s.flags&restricted != 0 && s.wait.grant.rights&RightManage == 0
}
