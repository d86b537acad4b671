package script

import (
	"errors"
	"time"
)

// ErrSilence is returned by Conn.Receive when no byte has come and none is
// expected to come any more. It tells a missing reply from a closed connection.
var ErrSilence = errors.New("no reply")

// A Target is a kind of server that scripts can be played against. Its method may
// be called from several goroutines at once, a Server and its Conns may not.
type Target interface {
	// Start starts a fresh server: no jobs, no tubes but default, ids from 1,
	// all counters at 0. If there are clients it serves these and no others. The options
	// are words of a command line, such as "-z", "10".
	Start(clients []Client, options ...string) (Server, error)
}

// A Server is one running server.
type Server interface {
	// Open connects a client, one of that name unless it is "". The server has taken note
	// of the connection when Open returns.
	Open(client string) (Conn, error)

	// Wait lets d pass on the server's clock and returns when what became due
	// has been done.
	Wait(d time.Duration)

	// Settle returns when the server has handled all that was sent or closed
	// before. The driver calls it where the order of events on two connections
	// matters and no reply tells it.
	Settle()

	// Drain switches drain mode.
	Drain(on bool) error

	// Stop ends the server and frees what it holds. Its connections are of no
	// more use.
	Stop()
}

// A Restarter is a Server that has a log.
type Restarter interface {
	// Restart kills the server, at a moment when all replies were sent, and starts it on its log.
	// Its connections are gone.
	Restart() error
}

// A Client is the clients of one name, which have some of the rights to some tubes.
type Client struct {
	Name   string
	Rights []string // in the words of trellisd's authentication file
	Tubes  []string // names, and beginnings of names with a * behind them
}

// A Conn is a client's end of a connection.
type Conn interface {
	// Send sends all of p in one piece.
	Send(p []byte) error

	// Receive returns the bytes that arrived since the last call, waiting for
	// at least one. The error is ErrSilence if none came, io.EOF if none came
	// and the server has closed the connection.
	Receive() ([]byte, error)

	// Pending is Receive for a time when the server is thought to be at rest:
	// it returns no bytes and no error when nothing has arrived.
	Pending() ([]byte, error)

	// HalfClose tells the server that nothing more will be sent.
	HalfClose() error

	// Close closes the connection in both directions.
	Close() error
}
