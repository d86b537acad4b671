package client

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound tells that there is no such tube or job, or none in that state.
	ErrNotFound = errors.New("not found")

	// ErrDeadlineSoon tells that a reserved job is about to time out.
	ErrDeadlineSoon = errors.New("a reserved job is about to time out")

	// ErrToken tells that the server does not serve clients without a token.
	ErrToken = errors.New("the server wants a token")

	// ErrLine tells that a command was not sent, since it is longer than a server takes
	// or has a byte in it that would end it early.
	ErrLine = errors.New("the command is too long, or has a line break or a NUL byte in it")

	// ErrBroken is wrapped by the ConnError for a reply that is not one of the protocol, or
	// is too large: the replies behind it could not be told apart.
	ErrBroken = errors.New("not a reply of the beanstalkd protocol")

	// ErrTooLarge is wrapped beside ErrBroken if the body of a reply has more than
	// Conn.MaxBody bytes.
	ErrTooLarge = errors.New("too large")
)

// A LacksError tells that the server does not have an extension. Nothing was sent.
type LacksError struct {
	Command string // the command, or "idp" or "con" for a tag of put
}

func (e *LacksError) Error() string {
	return fmt.Sprintf("the server does not have the command %s, which is an extension of Trellis", e.Command)
}

// A RefusedError is a reply that says no, other than NOT_FOUND.
type RefusedError struct {
	Command string // the first word of what was sent
	Reply   string // the first line of what came, as it came
}

func (e *RefusedError) Error() string {
	why := ""
	switch e.Reply {
	case "UNKNOWN_COMMAND":
		why = ": it does not know the command, or this client has no right to it"
	case "DRAINING":
		why = ": it takes no new jobs while it drains"
	case "OUT_OF_MEMORY":
		why = ": its memory or its disk is full, or a limit is reached"
		if e.Command == "set-tube" || e.Command == "set-dlq" {
			why += ", or a member of its cluster is too old for the setting"
		}
	case "JOB_TOO_BIG":
		why = ": the body is larger than its max-job-size"
	case "BAD_FORMAT":
		why = ": it does not take these arguments"
	case "INTERNAL_ERROR":
		why = ": it has failed, see its log"
	}
	return fmt.Sprintf("the server answers %q to %s%s", e.Reply, e.Command, why)
}

// A ConnError tells that the connection failed, or that the other side does not speak the
// protocol.
type ConnError struct {
	Addr string
	Err  error
}

func (e *ConnError) Error() string { return fmt.Sprintf("%s: %v", e.Addr, e.Err) }
func (e *ConnError) Unwrap() error { return e.Err }
