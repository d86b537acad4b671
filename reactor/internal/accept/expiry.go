package accept

import (
	"os"
	"runtime/debug"
	"time"
)

// expireAtLocked sets the timer that calls expire to a time, unless that is set to an earlier one. The timer is not
// stopped when the handshake leaves for which it was set: as a rule, the next one comes before.
func (hs *handshakes) expireAtLocked(at time.Time) {
	if !hs.expires.IsZero() && !at.Before(hs.expires) {
		return
	}
	hs.expires = at
	if left := time.Until(at); hs.expiry == nil {
		hs.expiry = time.AfterFunc(left, hs.expire)
	} else {
		hs.expiry.Reset(left)
	}
}

// expire ends the handshakes that have not begun in time, and those whose clients have had the time to read why there
// will be none. Those that have begun have a deadline on their socket.
func (hs *handshakes) expire() {
	hs.mu.Lock()
	hs.expires = time.Time{}
	hs.mu.Unlock()
	for _, line := range []int{lineNew, lineAlerted} {
		for hs.expireFirst(line) {
		}
	}
}

// expireFirst ends the first handshake of a line of the crowd, if its time is over.
func (hs *handshakes) expireFirst(line int) bool {
	hs.mu.Lock()
	h := hs.crowd.first(line)
	if h == nil || hs.over {
		hs.mu.Unlock()
		return false
	}
	if time.Until(h.expires) > 0 {
		hs.expireAtLocked(h.expires)
		hs.mu.Unlock()
		return false
	}
	why := os.ErrDeadlineExceeded
	if h.stage == queued {
		why = errNotBegun
	}
	hs.removeLocked(h)
	hs.running.Add(1) // stop waits until the descriptor is closed
	hs.mu.Unlock()
	h.finish(why)
	hs.running.Done()
	return true
}

const (
	// litterMost is how many handshakes leave so much garbage that it is worth collecting, and litterRest how long
	// after the last of them. Clients that are idle afterwards give the runtime no cause to do so by itself.
	litterMost = 250
	litterRest = time.Second
)

// litterLocked notes that a handshake has left garbage. When there is a lot, and no handshakes follow for a while, the
// memory goes back to the system.
func (hs *handshakes) litterLocked() {
	if hs.litter++; hs.litter < litterMost {
		return
	}
	if hs.sweeper == nil {
		hs.sweeper = time.AfterFunc(litterRest, hs.sweep)
	} else {
		hs.sweeper.Reset(litterRest)
	}
}

func (hs *handshakes) sweep() {
	hs.mu.Lock()
	hs.litter = 0
	hs.mu.Unlock()
	debug.FreeOSMemory()
}
