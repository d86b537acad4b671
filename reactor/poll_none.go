//go:build !linux || poll_opt

package reactor

import (
	"iter"

	"github.com/panjf2000/gnet/v2"
)

// polling is what a loop needs to poll by itself: see poll_epoll.go. Here gnet polls.
type polling struct{}

func (l *loop) prepareToPoll()         {}
func (l *loop) canPoll() bool          { return false }
func (l *loop) poll()                  {}
func (l *loop) enrolled(gnet.Conn)     {}
func (l *loop) dismissed(gnet.Conn)    {}
func (l *loop) closeSoon(gc gnet.Conn) { _ = gc.Close() }

// enrolledConns are none: gnet alone knows them.
func (l *loop) enrolledConns() iter.Seq[*conn] { return func(func(*conn) bool) {} }
