package codec

import (
	"bytes"
	"slices"
)

// The limits of commands that beanstalkd does not have.
const (
	// MaxListJobs is how many jobs a list-jobs shows at most.
	MaxListJobs = 10_000
	// MaxReserveBatch is how many jobs a reserve-batch asks for at most.
	MaxReserveBatch = 1000
	// MaxListConns is how many connections a list-connections shows at most.
	MaxListConns = 10_000
	// MaxWeight is the greatest weight of a watched tube.
	MaxWeight = 9999
	// MaxStatsTubes is how many tubes a stats-tubes shows at most.
	MaxStatsTubes = 1000

	usualListJobs   = 100
	usualListConns  = 1000
	usualStatsTubes = 100
)

// extension is a command that beanstalkd does not have. The words are matched whole,
// and every argument follows one or more spaces. parse fills in the arguments, and may
// replace cmd.Op, which is op at first. It returns false if an argument is missing or
// not valid.
type extension struct {
	op    Op
	parse func(a *arguments, cmd *Command) bool
}

// extensions are those commands by their words.
var extensions = func() map[string]extension {
	m := make(map[string]extension)
	for _, e := range []extension{
		{OpCapabilities, func(*arguments, *Command) bool { return true }},
		{OpFlushTube, func(a *arguments, cmd *Command) bool { return a.name(&cmd.Tube) }},
		{OpListJobs, parseListJobs},
		{OpKickTube, func(a *arguments, cmd *Command) bool { return a.name(&cmd.Tube) && a.number32(&cmd.Bound) }},
		{OpPeekTube, func(a *arguments, cmd *Command) bool { return a.name(&cmd.Tube) && a.state(&cmd.State) }},
		{OpMoveJob, func(a *arguments, cmd *Command) bool { return a.number64(&cmd.ID) && a.name(&cmd.Tube) }},
		{OpMoveTube, func(a *arguments, cmd *Command) bool {
			// Jobs that somebody works on are not moved away.
			return a.name(&cmd.Tube) && a.state(&cmd.State) && cmd.State != Reserved && a.name(&cmd.To) && a.number32(&cmd.Bound)
		}},
		{OpDeleteTubeJobs, func(a *arguments, cmd *Command) bool {
			return a.name(&cmd.Tube) && a.state(&cmd.State) && a.number32(&cmd.Bound)
		}},
		{OpReserveBatch, parseReserveBatch},
		{OpTouchAll, func(*arguments, *Command) bool { return true }},
		{OpDrain, parseDrain},
		{OpUndrain, func(*arguments, *Command) bool { return true }},
		{OpSetDLQ, func(a *arguments, cmd *Command) bool {
			return a.name(&cmd.Tube) && a.number32(&cmd.Bound) && a.name(&cmd.To)
		}},
		{OpListDLQ, func(*arguments, *Command) bool { return true }},
		{OpStatsConn, parseStatsConn},
		{OpListConns, parseListConns},
		{OpKickConn, func(a *arguments, cmd *Command) bool { return a.number64(&cmd.ID) }},
		{OpListAccounts, func(*arguments, *Command) bool { return true }},
		{OpReload, func(*arguments, *Command) bool { return true }},
		{OpSetTube, parseSetTube},
		{OpListSettings, func(a *arguments, cmd *Command) bool {
			cmd.Tube = nil
			return a.end() || a.name(&cmd.Tube)
		}},
		{OpReserveMode, parseReserveMode},
		{OpStatsTubeX, func(a *arguments, cmd *Command) bool { return a.name(&cmd.Tube) }},
		{OpStatsTubes, parseStatsTubes},
		{OpStatsGroup, func(a *arguments, cmd *Command) bool { return a.name(&cmd.Tube) && len(cmd.Tube) <= MaxKey }},
	} {
		m[e.op.String()] = e
	}
	return m
}()

// parseExtension reads the line s, given without its CR LF, into cmd if it begins with
// the word of an extension. Otherwise it returns false and leaves cmd as it is.
func parseExtension(s []byte, cmd *Command) bool {
	word, _, _ := bytes.Cut(s, []byte(" "))
	e, ok := extensions[string(word)]
	if !ok {
		return false
	}
	cmd.Op, cmd.ID, cmd.Bound, cmd.Timeout = e.op, 0, 0, 0
	a := arguments{s: s, at: len(word)}
	if !e.parse(&a, cmd) || !a.end() {
		cmd.Op = OpBadFormat
	}
	cmd.set(cmd.Op)
	switch cmd.Op {
	case OpDrainStatus, OpStatsOwnConn:
		cmd.CountAs = e.op
	}
	return true
}

func parseListJobs(a *arguments, cmd *Command) bool {
	return a.name(&cmd.Tube) && a.state(&cmd.State) && a.page(usualListJobs, MaxListJobs, cmd)
}

func parseReserveBatch(a *arguments, cmd *Command) bool {
	if !a.number32(&cmd.Bound) || cmd.Bound == 0 || cmd.Bound > MaxReserveBatch {
		return false
	}
	return a.end() || a.number32(&cmd.Timeout) && cmd.Timeout <= MaxTimeout
}

// parseDrain takes the words that clients of beanstalkd-pi send: drain on, off, status.
func parseDrain(a *arguments, cmd *Command) bool {
	if a.end() {
		return true
	}
	switch string(a.word()) {
	case "on":
	case "off":
		cmd.Op = OpUndrain
	case "status":
		cmd.Op = OpDrainStatus
	default:
		return false
	}
	return true
}

func parseStatsConn(a *arguments, cmd *Command) bool {
	if a.end() {
		cmd.Op = OpStatsOwnConn
		return true
	}
	return a.number64(&cmd.ID)
}

func parseListConns(a *arguments, cmd *Command) bool {
	return a.page(usualListConns, MaxListConns, cmd)
}

func parseReserveMode(a *arguments, cmd *Command) bool {
	w := a.word()
	i := slices.Index(modeNames[FIFO:], string(w))
	cmd.Mode = FIFO + Mode(i)
	cmd.Info, cmd.Abort = a.option("info"), a.option("abort")
	return i >= 0 && a.end()
}

// parseWeight reads the weight behind the name in the watch s, a line without its CR LF, from
// s[i] on.
func parseWeight(s []byte, i int, cmd *Command) bool {
	a := arguments{s: s, at: i}
	return a.number32(&cmd.Weight) && 1 <= cmd.Weight && cmd.Weight <= MaxWeight && a.end()
}

func parseStatsTubes(a *arguments, cmd *Command) bool {
	cmd.Tube, cmd.Bound = nil, usualStatsTubes
	if a.end() {
		return true
	}
	if !a.number32(&cmd.Bound) {
		return false
	}
	cmd.Bound = min(cmd.Bound, MaxStatsTubes)
	return a.end() || a.name(&cmd.Tube)
}

// arguments are what is left of a line.
type arguments struct {
	s  []byte
	at int
}

func (a *arguments) end() bool { return a.at == len(a.s) }

// spaces skips the spaces before an argument, of which there must be one.
func (a *arguments) spaces() bool {
	begin := a.at
	for a.at < len(a.s) && a.s[a.at] == ' ' {
		a.at++
	}
	return a.at > begin
}

// word returns what comes before the next space, or nothing.
func (a *arguments) word() []byte {
	if !a.spaces() {
		return nil
	}
	w := a.s[a.at:]
	if i := bytes.IndexByte(w, ' '); i >= 0 {
		w = w[:i]
	}
	a.at += len(w)
	return w
}

// option skips the next word if it is that one, and reports whether it is.
func (a *arguments) option(w string) bool {
	at := a.at
	if string(a.word()) == w {
		return true
	}
	a.at = at
	return false
}

func (a *arguments) name(to *[]byte) bool {
	w := a.word()
	if nameRun(w, 0) != len(w) || !validName(w) {
		return false
	}
	*to = w
	return true
}

func (a *arguments) number64(to *uint64) bool {
	w := a.word()
	v, end := digits(w, 0, 0, 0)
	*to = v
	return len(w) > 0 && end == len(w)
}

func (a *arguments) number32(to *uint32) bool {
	var v uint64
	if !a.number64(&v) || v > 1<<32-1 {
		return false
	}
	*to = uint32(v)
	return true
}

// page reads the optional bounds of a list: how many entries, and the id behind which
// they begin.
func (a *arguments) page(usual, most uint32, cmd *Command) bool {
	cmd.Bound = usual
	if a.end() {
		return true
	}
	if !a.number32(&cmd.Bound) {
		return false
	}
	cmd.Bound = min(cmd.Bound, most)
	return a.end() || a.number64(&cmd.ID)
}

func (a *arguments) state(to *State) bool {
	switch string(a.word()) {
	case "ready":
		*to = Ready
	case "reserved":
		*to = Reserved
	case "delayed":
		*to = Delayed
	case "buried":
		*to = Buried
	default:
		return false
	}
	return true
}
