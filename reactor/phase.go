package reactor

// phase is how far a connection has come in its life. It only moves forward,
// except among serving, waiting and forwarded; enter is the only place where it changes,
// and doc.go draws it.
type phase uint8

const (
	authenticating phase = iota // the client has to authenticate; the session is not open
	serving                     // commands are executed as they come
	waiting                     // the session waits: commands that come are kept
	forwarded                   // a gateway passes on what comes, and the session is the leader's
	draining                    // nothing more is executed; the client is still sent what it is owed
	lingering                   // all is sent; the client has sent too much, was told that no more comes, and is to close
	broken                      // nothing more is read or written; conclude ends the connection
	ended                       // nothing is left of it
)

var phaseNames = [...]string{
	"authenticating", "serving", "waiting", "forwarded", "draining", "lingering", "broken", "ended",
}

func (p phase) String() string { return phaseNames[p] }

// closure is how far the end of a connection's session has come. As with beanstalkd, a
// client sees the end of its connection only when others can have the jobs that it had
// reserved, unless it has ended the connection itself.
type closure uint8

const (
	open      closure = iota // or there is no session yet
	postponed                // it is to be closed when commands are executed again
	closing                  // the engine gives back what the client has reserved
	closed                   // all is given back
)

// retirement is why a connection is to end as soon as that can be in order.
type retirement uint8

const (
	notRetired  retirement = iota
	tooOld                 // Config.MaxConnectionAge
	uncertified            // the client's certificate is not accepted any more
)
