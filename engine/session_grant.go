package engine

import (
	"slices"
	"strings"

	"trellis/codec"
	"trellis/engine/account"
	"trellis/engine/internal/shard"
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
	// RightRead is for stats, lists of tubes, jobs, connections and settings, stats-group,
	// and all kinds of peek.
	RightRead
	// RightManage is for what is done to jobs whoever has reserved them, and to tubes:
	// delete, kick, move, flush, pause-tube, set-tube.
	RightManage
	// RightAdmin is for what concerns the server as a whole, whatever the client's tubes
	// are: drain, undrain, reload, all connections and kick-connection.
	RightAdmin
	// RightAll is all rights to tubes, so all but RightAdmin.
	RightAll = RightPut | RightWork | RightRead | RightManage
)

// TokenTube is how a name begins that a client uses in order to authenticate, with a token
// behind it. No grant gives a client a tube of such a name: a token that is sent once too
// often must not become a name that others see.
const TokenTube = "auth/"

// refuseToken refuses a command that would make a tube of a name under which a client sends a
// token, as made by trellis token new. So nobody who may list tubes learns the tokens of those
// who connect to a server that does not ask for any.
func (s *Session) refuseToken(name []byte, out *Output) bool {
	const begin, random = TokenTube + "tr_", 43
	if len(name) != len(begin)+random || string(name[:len(begin)]) != begin {
		return false
	}
	out.Reply(codec.ReplyBadFormat)
	if c := s.loop.peers; c != nil {
		c.TokenSent(s)
	}
	return true
}

// Grant is what a client may do. It does not change, and many sessions may share it.
// Make one with [NewGrant].
type Grant struct {
	name     string
	rights   Rights
	names    []string // of tubes, sorted
	prefixes []string // of names of tubes
	of       string   // name of the account whose client it is; "" for nobody's
	alone    grantee  // of the grant, without an account
}

// grantee is what a session may do, and what bounds it together with others.
type grantee struct {
	*Grant
	account *account.Tally // nil for none
}

// NewGrant gives the client of that name rights to tubes: names, and beginnings of names
// with a * behind them.
func NewGrant(name string, rights Rights, tubes []string) *Grant {
	g := &Grant{name: name, rights: rights}
	g.alone.Grant = g
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

// In says that the client's connections, and the rate of its commands, count for the account of
// that name, "" for none, while the engine knows one. It returns g, and is called before any session has
// the grant.
func (g *Grant) In(account string) *Grant {
	g.of = account
	return g
}

// Name returns the client's name.
func (g *Grant) Name() string { return g.name }

// Terms returns what the grant was made of, so that another server can make the same.
func (g *Grant) Terms() (name, account string, rights Rights, tubes []string) {
	tubes = slices.Clone(g.names)
	for _, p := range g.prefixes {
		tubes = append(tubes, p+"*")
	}
	return g.name, g.of, g.rights, tubes
}

// permits reports whether a tube is the client's.
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

// permitsGroup reports whether a put may name a group, which is nil if it names none. A group
// spans tubes, and so belongs to whom a tube of its name would.
func (g *Grant) permitsGroup(name []byte) bool { return name == nil || g.permits(string(name)) }

// shows reports whether the client is shown the connection of a session: one of a client of
// the same name, unless it may administer the server. What others use and watch is no
// reason: a connection that idles uses default, whoever it belongs to.
func (g *Grant) shows(s *Session) bool {
	return g.rights&RightAdmin != 0 || s.client.Flags&restricted != 0 && s.wait.grant.name == g.name
}

// OpenGranted starts a session as [Loop.Open] does, which may do what g says. If the
// default tube is not the client's, the session begins with one of that name that is
// always empty, and that nobody puts into. So clients that ignore default, or count what
// they watch, need not know. It opens no session, and returns false, if the client's account
// has as many connections as it may have.
func (l *Loop) OpenGranted(s *Session, g *Grant, now Time) bool {
	return l.openGranted(s, g, false, now) == nil
}

// openGranted is OpenGranted. A client that goes on had its connection before, and keeps it: meanwhile others may have
// come, or the account may have got fewer.
func (l *Loop) openGranted(s *Session, g *Grant, goesOn bool, now Time) error {
	account := l.engine.Accounts().Named(g.of)
	if !account.Connect(goesOn) {
		return ErrConnections
	}
	if !l.open(s, g.permits(shard.DefaultTube), now) {
		account.EndConnection()
		return ErrSessionID
	}
	s.waiter().grant = &g.alone
	if account != nil {
		s.wait.grant = &grantee{g, account}
	}
	s.client.Flags |= restricted
	return nil
}

// permits returns a function that reports whether a tube is the client's, nil if all are.
func (s *Session) permits() func(tube string) bool {
	if s.client.Flags&restricted == 0 {
		return nil
	}
	return s.wait.grant.permits
}

// Rate bounds how many commands of the session are to be executed, together with those of
// others. It is nil where there is no bound.
func (s *Session) Rate() *account.Rate {
	if s.client.Flags&restricted == 0 {
		return nil
	}
	return s.wait.grant.account.Rate()
}

// RateOf is what bounds the commands of a grant's clients, nil where there is no bound.
func (l *Loop) RateOf(g *Grant) *account.Rate { return l.engine.Accounts().Named(g.of).Rate() }

// restrict looks at a command of a restricted session before it is executed. If it is not
// to be, it answers it.
func (s *Session) restrict(now Time, cmd *codec.Command, out *Output) (outcome Outcome, denied bool) {
	if !s.mayExecute(cmd) {
		return s.deny(cmd, out), true
	}
	if tube := s.hidden(now, cmd, out); tube != "" {
		s.tellDenied(cmd, tube, codec.ReplyNotFound)
		out.Reply(codec.ReplyNotFound)
		return Done, true
	}
	return Done, false
}

// mayExecute reports whether the client has a right to a command. It does not look at the job
// that a command names.
func (s *Session) mayExecute(cmd *codec.Command) bool {
	g := s.wait.grant
	has := func(r Rights) bool { return g.rights&r != 0 }
	usesOwn := s.client.TubeUsed() != shard.DefaultTube || g.permits(shard.DefaultTube)
	switch cmd.Op {
	case codec.OpPut, codec.OpPutBegin:
		return has(RightPut) && usesOwn &&
			(cmd.Tags == nil || g.permitsGroup(cmd.Tags.Group) && g.permitsGroup(cmd.Tags.After))
	case codec.OpPutChunk, codec.OpPutEnd:
		return has(RightPut) && usesOwn && !s.wait.putDenied
	case codec.OpPutTooBig, codec.OpPutTooBigEnd:
		return has(RightPut) && usesOwn
	case codec.OpReserve, codec.OpReserveWithTimeout, codec.OpReserveJob,
		codec.OpRelease, codec.OpBury, codec.OpTouch, codec.OpIgnore,
		codec.OpReserveBatch, codec.OpReserveMode, codec.OpTouchAll:
		return has(RightWork)
	case codec.OpDelete:
		return has(RightWork | RightManage)
	case codec.OpKick:
		return has(RightManage) && usesOwn
	case codec.OpKickJob:
		return has(RightManage)
	case codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		return has(RightRead) && usesOwn
	case codec.OpPeek, codec.OpStats, codec.OpStatsJob, codec.OpListTubes, codec.OpListDLQ, codec.OpStatsTubes:
		return has(RightRead)
	case codec.OpListSettings:
		return has(RightRead) && (len(cmd.Tube) == 0 || g.permits(string(cmd.Tube)))
	case codec.OpStatsTube, codec.OpStatsTubeX, codec.OpListJobs, codec.OpPeekTube:
		return has(RightRead) && g.permits(string(cmd.Tube))
	case codec.OpStatsGroup:
		return has(RightRead) && g.permitsGroup(cmd.Tube)
	case codec.OpPauseTube, codec.OpFlushTube, codec.OpDeleteTubeJobs, codec.OpKickTube, codec.OpMoveJob:
		return has(RightManage) && g.permits(string(cmd.Tube))
	case codec.OpMoveTube, codec.OpSetDLQ:
		return has(RightManage) && g.permits(string(cmd.Tube)) && g.permits(string(cmd.To))
	case codec.OpSetTube:
		return has(RightManage) && g.permits(string(cmd.Tube)) && (len(cmd.To) == 0 || g.permits(string(cmd.To)))
	case codec.OpDrain, codec.OpUndrain, codec.OpKickConn, codec.OpReload:
		return has(RightAdmin)
	case codec.OpDrainStatus, codec.OpStatsConn, codec.OpListConns, codec.OpListAccounts:
		return has(RightRead | RightAdmin)
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
	case codec.OpPutBegin:
		s.wait.putDenied = true
		return Done // answered when all of the body was discarded
	case codec.OpPutChunk, codec.OpPutTooBig:
		return Done
	case codec.OpPutEnd:
		s.wait.putDenied = false
	}
	s.tellDenied(cmd, "", codec.ReplyUnknownCommand)
	out.Reply(codec.ReplyUnknownCommand)
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

// hidden is the tube, which is not the client's, of the job that a command names; "" where
// there is nothing to hide. No id is used twice. A job that somebody moves before the command
// is executed was in the client's tube when the command came.
func (s *Session) hidden(now Time, cmd *codec.Command, out *Output) string {
	switch cmd.Op {
	case codec.OpDelete, codec.OpReserveJob, codec.OpKickJob, codec.OpPeek, codec.OpStatsJob, codec.OpMoveJob:
	default:
		return "" // the others find only jobs that the client has reserved
	}
	return s.loop.tx.Hides(now, cmd.ID, s.wait.grant.permits, out)
}

// onlyWorks reports whether the session may change no jobs but those that it has reserved.
func (s *Session) onlyWorks() bool {
	return s.client.Flags&restricted != 0 && s.wait.grant.rights&RightManage == 0
}
