package reactor

import "fmt"

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

// enter moves the connection to another phase.
func (c *conn) enter(p phase) {
	if p <= c.phase && !(p == serving && (c.phase == waiting || c.phase == forwarded)) {
		panic(fmt.Sprintf("reactor: a connection that is %v becomes %v", c.phase, p))
	}
	if c.phase == authenticating && c.deadline != nil {
		c.loop.unauthenticated.Leave(c.deadline.place)
	}
	c.phase = p
}

// fail notes that nothing more can, or is to, be read from the connection or written
// to it.
func (c *conn) fail() {
	if c.phase < broken {
		c.enter(broken)
	}
}

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
