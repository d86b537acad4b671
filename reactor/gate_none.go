//go:build !linux || poll_opt

package reactor

import (
	"errors"

	"github.com/panjf2000/gnet/v2"
)

// gate is what a loop's own poller needs to tell when somebody connects. On kqueue,
// and with gnet's build tag poll_opt, it cannot: see gate_epoll.go.
type gate struct{}

func (l *loop) canGate() bool { return false }

func (a *acceptor) openGate(chan<- error) error { return errors.ErrUnsupported }
func (a *acceptor) opened(gnet.Conn)            {}
func (a *acceptor) arrived()                    {}
func (a *acceptor) closed(gnet.Conn)            {}
func (a *acceptor) closeGate()                  {}
