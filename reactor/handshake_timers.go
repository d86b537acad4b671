package reactor

import (
	"container/list"
	"os"
	"runtime/debug"
	"time"
)

// expireAtLocked has expire called at a time, or before. The timer is not stopped when the
// handshake leaves for which it was set: as a rule, the next one comes before.
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

// expire ends the handshakes that have not begun in time, and those whose clients have had the
// time to read why there will be none. Those that have begun have a deadline on their socket.
func (hs *handshakes) expire() {
	hs.mu.Lock()
	hs.expires = time.Time{}
	hs.mu.Unlock()
	for _, l := range []*list.List{&hs.fresh, &hs.alerted} {
		for hs.expireFirst(l) {
		}
	}
}

// expireFirst ends the first handshake of a list, if its time is over.
func (hs *handshakes) expireFirst(l *list.List) bool {
	hs.mu.Lock()
	first := l.Front()
	if first == nil || hs.over {
		hs.mu.Unlock()
		return false
	}
	h := first.Value.(*handshake)
	if time.Until(h.expires) > 0 {
		hs.expireAtLocked(h.expires)
		hs.mu.Unlock()
		return false
	}
	why := os.ErrDeadlineExceeded
	if h.inLine != nil {
		why = errNotBegun
	}
	hs.removeLocked(h)
	hs.running.Add(1) // stop waits until the descriptor is closed
	hs.mu.Unlock()
	h.finish(why)
	hs.running.Done()
	return true
}

// litterLocked notes that a handshake has left garbage. When there is a lot, and no
// handshakes follow for a while, the memory goes back to the system.
func (hs *handshakes) litterLocked() {
	if hs.litter++; hs.litter < crowd {
		return
	}
	if hs.sweeper == nil {
		hs.sweeper = time.AfterFunc(crowdRest, hs.sweep)
	} else {
		hs.sweeper.Reset(crowdRest)
	}
}

func (hs *handshakes) sweep() {
	hs.mu.Lock()
	hs.litter = 0
	hs.mu.Unlock()
	debug.FreeOSMemory()
}
