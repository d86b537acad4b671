package accept

import (
	"cmp"
	"container/list"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/throttle"
)

// maxHandshakes is how many handshakes may be under way. Where few connections are allowed, it is a quarter of them.
const maxHandshakes = 1000

// handshakes are those of all listeners. To compute, a handshake needs one of the tokens, which are half as many as
// there are processors, so that a flood of handshakes leaves the other half to the event loops. It begins when it gets
// its first token, in a goroutine of its own, so that nobody waits for its client but that goroutine. It gives the
// token back when it has to wait for its client.
//
// Until a handshake begins it is a descriptor in a list. At first its client is silent, as it has not sent a whole
// record: nothing could be computed, and the poller of the listener's loop watches the descriptor (see silentClients).
// Then it waits in line for a token. A client that sends something else than TLS gets no goroutine and no token at all.
// It gets an alert, and Config.Alert to read it. Where the poller cannot watch, a handshake waits in line at once, and
// its goroutine waits for the client's first byte.
//
// All rules for a crowd prefer the newest. Of those that have begun, the token goes to the one that began to wait for
// it last, and of those that have not, to the one that came last into the line. So a good client is done before the
// flood around it can make it old, however long that lasts. Were it first come, first served, a client would wait
// behind all of the flood, and if the newest were refused instead, a few silent clients would lock out all others. What
// has begun goes before what has not, but for every fifth token: otherwise, when more clients come than can be served,
// none would ever be done.
//
// When there are too many, the oldest is given up, of those that have begun, of those that have not (silent or in
// line), or of those that got an alert because they do not speak TLS, whichever are most; and if one source has more
// than a quarter of the places, the oldest of that. A flood that makes the server compute thus leaves the clients that
// it has begun with the time to answer, and one that is silent leaves them alone.
type handshakes struct {
	running sync.WaitGroup

	mu      sync.Mutex
	crowd   *Crowd[*handshake] // guarded by mu
	tokens  int                // that nobody has; guarded by mu
	inRow   int                // tokens that went to begun handshakes since one went to a new one; guarded by mu
	waiting []*handshake       // those that resume; the last gets the next token; guarded by mu
	line    list.List          // of *handshake, those that are queued; the last gets the next token; guarded by mu
	silent  silentClients
	ended   HandshakeStats // guarded by mu, without Pending
	litter  int            // handshakes whose garbage may be there; guarded by mu
	sweeper *time.Timer    // collects it; nil before there was a lot; guarded by mu
	expiry  *time.Timer    // calls expire; nil before the first that did not begin at once; guarded by mu
	expires time.Time      // when it does; zero if it does not; guarded by mu
	over    bool           // no more may begin; guarded by mu
	logs    [NumHandshakeResults]throttle.Throttle
}

// The lines of the crowd.
const (
	lineNew     = iota // of those that are silent or queued
	lineBegun          // of those that have a goroutine
	lineAlerted        // of those whose clients got an alert
	lines
)

// processors is how many the process could use when it began. A program may raise GOMAXPROCS above that before it makes
// a server, because a goroutine that waits in a system call counts there. Such a goroutine takes no processor from
// others, and a handshake does.
var processors = runtime.GOMAXPROCS(0)

func (hs *handshakes) init(maxConnections int) {
	hs.tokens = max(1, processors/2)
	hs.crowd = NewCrowd[*handshake](min(maxHandshakes, max(1, maxConnections/4)), lines)
}

// add is called with a connection that has a place. Its handshake begins when its client has sent something and there
// is a token for it. When there are as many handshakes as may be, another is given up.
func (hs *handshakes) add(l *listener, fd int) {
	h := &handshake{by: l, fd: fd, accepted: time.Now()}
	h.expires = h.accepted.Add(l.acceptor.cfg.Handshake)
	if l.proxied {
		h.awaitsProxy = true
		// As a rule it is there already.
		whole, err := h.takeProxyHeader(l.header)
		switch {
		case err != nil:
			h.finish(err)
			return
		case whole && l.tls == nil:
			h.arrive(Arrival{FD: fd})
			return
		}
		h.source = h.client.Source()
	} else {
		h.source = PeerOf(fd).Source()
	}
	watched := h.beginWatch()
	hs.mu.Lock()
	if hs.over {
		hs.mu.Unlock()
		h.finish(errGivenUp)
		return
	}
	var old *handshake
	if hs.crowd.Full() {
		old, _ = hs.giveUpOldestLocked()
	}
	hs.enterLocked(h, lineNew)
	if !watched {
		hs.lineUpLocked(h)
	}
	hs.mu.Unlock()
	if old != nil {
		old.finish(errGivenUp)
	}
}

// enterLocked makes h, which has no goroutine, the newest of a line of the crowd.
func (hs *handshakes) enterLocked(h *handshake, line int) {
	h.place = hs.crowd.Enter(line, h, h.source)
	hs.silent.addLocked(h)
	hs.expireAtLocked(h.expires)
}

// removeLocked takes h out of all lines, which makes room for another handshake.
func (hs *handshakes) removeLocked(h *handshake) {
	if !h.place.taken() {
		return
	}
	hs.crowd.Leave(h.place)
	if h.inLine != nil {
		hs.line.Remove(h.inLine)
		h.inLine = nil
	}
	hs.silent.removeLocked(h)
}

// giveUpOldest gives up a handshake. It reports false if there is none.
func (hs *handshakes) giveUpOldest() bool {
	hs.mu.Lock()
	h, ok := hs.giveUpOldestLocked()
	hs.mu.Unlock()
	if h != nil {
		h.finish(errGivenUp)
	}
	return ok
}

// giveUpOldestLocked makes room for another handshake. It reports false if there is none to give up. If that has no
// goroutine, it is returned, and is to be finished. Otherwise its goroutine ends it: it can read and write no more.
func (hs *handshakes) giveUpOldestLocked() (idle *handshake, ok bool) {
	h := hs.oldestLocked()
	if h == nil {
		return nil, false
	}
	hs.removeLocked(h)
	if !h.stage.begun() {
		return h, true
	}
	if h.stage == resuming {
		hs.waiting = slices.DeleteFunc(hs.waiting, func(other *handshake) bool { return other == h })
		h.turn <- struct{}{}
	}
	if h.socket != nil {
		_ = h.socket.SetDeadline(time.Unix(1, 0))
	}
	return nil, true
}

// oldestLocked is the handshake to be given up, nil if there is none: the oldest of the longest line, or of those that
// have begun, the oldest that waits for its client.
func (hs *handshakes) oldestLocked() *handshake {
	most := lineBegun
	for _, line := range []int{lineNew, lineAlerted} {
		if hs.crowd.count(line) > hs.crowd.count(most) {
			most = line
		}
	}
	if most != lineBegun {
		if h := hs.crowd.Oldest(most, nil); h != nil {
			return h
		}
	}
	awaits := func(h *handshake) bool { return h.stage == awaiting }
	if h := hs.crowd.Oldest(lineBegun, awaits); h != nil {
		return h
	}
	return cmp.Or(hs.crowd.Oldest(lineAlerted, nil), hs.crowd.Oldest(lineNew, nil), hs.crowd.Oldest(lineBegun, nil))
}

// finish ends a handshake that has no goroutine, and no place any more. That of one whose client got an alert has ended
// before.
func (h *handshake) finish(why error) {
	if h.stage != alerted {
		h.end(why)
	}
	h.endWatch()
	_ = unix.Close(h.fd)
	h.by.acceptor.taken.Add(-1)
	h.by.acceptor.Freed()
}

// stop gives up all handshakes, and waits until their goroutines have ended.
func (hs *handshakes) stop() {
	hs.giveUpAll()
	hs.running.Wait()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, t := range []*time.Timer{hs.sweeper, hs.expiry} {
		if t != nil {
			t.Stop()
		}
	}
}

// giveUpAll gives up all handshakes. No more begin from now on.
func (hs *handshakes) giveUpAll() {
	hs.mu.Lock()
	hs.over = true
	hs.mu.Unlock()
	for hs.giveUpOldest() {
	}
}
