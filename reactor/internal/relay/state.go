package relay

import "fmt"

// state is where a client of a gateway stands. Move is the only place where it changes, and doc.go draws it.
type state uint8

const (
	unannounced state = iota // no leader has heard of the client
	detached                 // its session goes on at the next leader, or over the next trunk
	replaying                // its session is resumed; the leader gets no input before it has what the log tells of it
	serving                  // the leader executes what it sends
	lastRead                 // the same, and the client was read for the last time, because the gateway ends
	ending                   // the same, and the leader knows that the client sends no more than what waits here
	halfClosed               // the leader knows that the client sends no more
	closed                   // the leader knows that the client has gone, and has not ended its session
	lost                     // it cannot go on; its connection is about to be reset
	over                     // its session has ended, or its connection before a leader has heard of it

	states // how many there are
)

var stateNames = [states]string{
	"unannounced", "detached", "replaying", "serving", "lastRead", "ending", "halfClosed", "closed", "lost", "over",
}

func (s state) String() string { return stateNames[s] }

func set(list ...state) (bits uint16) {
	for _, s := range list {
		bits |= 1 << s
	}
	return bits
}

// follows are the states that may follow each one.
var follows = [states]uint16{
	unannounced: set(serving, lost, over),
	detached:    set(unannounced, replaying, serving, lost, over),
	replaying:   set(serving, detached, closed, lost, over),
	serving:     set(lastRead, ending, halfClosed, detached, closed, lost, over),
	lastRead:    set(ending, halfClosed, detached, closed, lost, over),
	ending:      set(halfClosed, detached, closed, lost, over),
	halfClosed:  set(detached, closed, lost, over),
	closed:      set(over),
	lost:        set(closed, over),
}

// move changes the client's state. A move that is not in the table is a mistake of this package's.
func (f *Client) move(to state) {
	if follows[f.state]&set(to) == 0 {
		panic(fmt.Sprintf("relay: a client that is %v becomes %v", f.state, to))
	}
	f.state = to
}

// isForwarded reports whether the client is served, or waits to be.
func (s state) isForwarded() bool { return s <= halfClosed }

// takesInput reports whether the leader takes input of the client.
func (s state) takesInput() bool { return s >= serving && s <= ending }
