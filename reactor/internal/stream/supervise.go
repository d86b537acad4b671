package stream

import "errors"

// Errors with which a client is to be closed.
var (
	ErrTooMuchInput  = errors.New("it sends further ahead of its replies than may be kept")
	ErrTooMuchOutput = errors.New("it is owed more replies than may be kept")
)

// Reading is what is to be read of a client.
type Reading uint8

// What is to be read of a client.
const (
	ReadBounded Reading = iota // as much as may be kept, while the client takes its output
	ReadNothing                // nothing for now
	ReadAll                    // all: it is thrown away
)

// Supervise is called behind everything that is done with a stream of which something is pending. It has the loop
// told when a client that has stalled takes output, and has the poller read the client or not. An error tells why
// the client is to be closed.
func (ss *Streams) Supervise(s *Stream, read Reading) error {
	x := s.pending
	ss.setStalled(s, ss.Sendable(s))
	if ss.cfg.MaxOutputTotal > 0 {
		ss.noteOwed(s)
	}
	if int64(x.out.len()) > ss.cfg.MaxOutput {
		ss.Counts.TooMuchOutput.Add(1)
		return ErrTooMuchOutput
	}
	if s.stalled && !x.armed {
		if err := ss.awaitOutput(s); err != nil {
			return err
		}
		x.armed = true
	}
	if !s.polled {
		return nil
	}
	if x.In.overflowed() {
		ss.Counts.TooMuchInput.Add(1)
		return ErrTooMuchInput
	}
	return ss.pause(s, read == ReadNothing || read == ReadBounded && (s.stalled || x.In.full()))
}

// setStalled notes whether the client has to take output before it can go on.
func (ss *Streams) setStalled(s *Stream, stalled bool) {
	if stalled == s.stalled {
		return
	}
	s.stalled = stalled
	if !stalled {
		ss.Counts.Stalled.Add(-1)
		return
	}
	ss.Counts.Stalled.Add(1)
	ss.Counts.Stalls.Add(1)
}
