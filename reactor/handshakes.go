package reactor

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

const (
	// handshakeTime is how long a handshake may take.
	handshakeTime = 10 * time.Second

	// maxHandshakeInput is how many bytes a client may send in a handshake if it is
	// asked for a certificate, and maxBareInput if it is not.
	maxHandshakeInput = 64 << 10
	maxBareInput      = 16 << 10

	// alertTime is how long a client whose handshake has failed has to read why, and
	// alertInput how much more it may send until then.
	alertTime  = time.Second
	alertInput = 1 << 20

	// maxHandshakes is how many handshakes may be under way. Where few connections
	// are allowed, it is a quarter of them.
	maxHandshakes = 1000

	// crowd is how many handshakes leave so much garbage that it is worth collecting,
	// and crowdRest how long after the last of them. Clients that are idle afterwards
	// give the runtime no cause to do so by itself.
	crowd     = 250
	crowdRest = time.Second

	// goingOn is how many tokens in a row go to handshakes that have begun before a new
	// one gets one.
	goingOn = 4
)

// handshakes are those of all listeners. To compute, a handshake needs one of the tokens,
// which are half as many as there are processors, so that a flood of handshakes leaves the
// other half to the event loops. It begins when it gets its first token, in a goroutine of
// its own, so that nobody waits for its client but that goroutine. It gives the token back when
// it has to wait for its client.
//
// Until a handshake begins it is a descriptor in a list. At first its client is silent, as it
// has not sent a whole record: nothing could be computed, and the poller of the acceptor's loop
// watches the descriptor (see watched). Then it waits in line for a token. A client that sends
// something else than TLS gets no goroutine and no token at all. It is sent an alert, and has
// alertTime to read it. Where the poller cannot watch, a handshake waits in line at once, and
// its goroutine waits for the client's first byte.
//
// All rules for a crowd prefer the newest. Of those that have begun, the token goes to the
// one that began to wait for it last, and of those that have not, to the one that came last
// into the line. So a good client is done before the flood around it can make it old,
// however long that lasts. Were it first come, first served, a client would wait behind all
// of the flood, and if the newest were refused instead, a few silent clients would lock out
// all others. What has begun goes before what has not, but for every fifth token:
// otherwise, when more clients come than can be served, none would ever be done.
//
// When there are too many, the oldest is given up, of those that have begun, of those that have
// not (silent or in line), or of those that were told that they do not speak TLS, whichever are
// most; and if one source has more than a quarter of the places, the oldest of that. A flood
// that makes the server compute thus leaves the clients that it has begun with the time to
// answer, and one that is silent leaves them alone.
type handshakes struct {
	most    int
	running sync.WaitGroup

	mu      sync.Mutex
	tokens  int          // that nobody has; guarded by mu
	inRow   int          // tokens that went to begun handshakes since one went to a new one; guarded by mu
	waiting []*handshake // begun, and wait for a token, the last is the next to get it; guarded by mu
	fresh   list.List    // of *handshake, those that have not begun, the oldest first; guarded by mu
	line    list.List    // of *handshake, those of fresh that wait for a token, the last is the next to get it; guarded by mu
	alerted list.List    // of *handshake, those whose clients were told that they do not speak TLS, in that order; guarded by mu
	watched watched
	begun   list.List      // of *handshake, in the order in which they began; guarded by mu
	sources sources        // of those in fresh, begun and alerted; guarded by mu
	ended   HandshakeStats // guarded by mu, without Pending
	litter  int            // handshakes whose garbage may be there; guarded by mu
	sweeper *time.Timer    // collects it; nil before the first crowd; guarded by mu
	expiry  *time.Timer    // calls expire; nil before the first that did not begin at once; guarded by mu
	expires time.Time      // when it does; zero if it does not; guarded by mu
	over    bool           // no more may begin; guarded by mu
	timeout time.Duration  // how long a handshake may take, and may wait before it begins; does not change
	alert   time.Duration  // how long a client may read why it has failed; does not change
	logs    [NumHandshakeResults]throttle.Throttle
}

// processors is how many the process could use when it began. A program may raise GOMAXPROCS
// above that before it makes a server, because a goroutine that waits in a system call counts
// there. Such a goroutine takes no processor from others, and a handshake does.
var processors = runtime.GOMAXPROCS(0)

func (hs *handshakes) init(maxConnections int, timeout, alert time.Duration) {
	hs.timeout, hs.alert = timeout, alert
	hs.tokens = max(1, processors/2)
	hs.most = min(maxHandshakes, max(1, maxConnections/4))
	hs.sources.init(hs.most)
}

func (hs *handshakes) pendingLocked() int { return hs.fresh.Len() + hs.begun.Len() + hs.alerted.Len() }

// add is called with a connection that has a slot. Its handshake begins when its client has
// sent something and there is a token for it. When there are as many handshakes as may be,
// another is given up.
func (hs *handshakes) add(a *acceptor, fd int) {
	h := &handshake{by: a, fd: fd, accepted: time.Now()}
	h.expires = h.accepted.Add(hs.timeout)
	if a.proxied {
		h.awaitsProxy = true
		// As a rule it is there already.
		whole, err := h.takeProxyHeader(a.header)
		switch {
		case err != nil:
			h.finish(err)
			return
		case whole && a.tls == nil:
			h.arrive(fd, nil)
			return
		}
		h.source = h.client.source()
	} else {
		h.source = endpointOf(fd).source()
	}
	watched := h.beginWatch()
	hs.mu.Lock()
	if hs.over {
		hs.mu.Unlock()
		h.finish(errGivenUp)
		return
	}
	var old *handshake
	if hs.pendingLocked() >= hs.most {
		old = hs.oldestLocked()
		hs.giveUpLocked(old)
	}
	hs.enterLocked(h, &hs.fresh)
	if !watched {
		hs.lineUpLocked(h)
	}
	hs.mu.Unlock()
	old.abandon()
}

// enterLocked makes h the newest of a list. It is in none.
func (hs *handshakes) enterLocked(h *handshake, l *list.List) {
	h.list, h.element = l, l.PushBack(h)
	hs.sources.add(h.source)
	if l != &hs.begun {
		hs.watched.addLocked(h)
		hs.expireAtLocked(h.expires)
	}
}

// removeLocked takes h out of all lists, which makes room for another handshake.
func (hs *handshakes) removeLocked(h *handshake) {
	if h.element == nil {
		return
	}
	h.list.Remove(h.element)
	h.element = nil
	hs.sources.remove(h.source)
	if h.inLine != nil {
		hs.line.Remove(h.inLine)
		h.inLine = nil
	}
	hs.watched.removeLocked(h)
}

// giveUpOldest gives up a handshake, if there is any.
func (hs *handshakes) giveUpOldest() {
	hs.mu.Lock()
	old := hs.oldestLocked()
	hs.giveUpLocked(old)
	hs.mu.Unlock()
	old.abandon()
}

// oldestLocked is the handshake to be given up, nil if there is none: the first of the longest
// list, or of those that have begun, the first that waits for its client. If a source has more
// than its share, only those from there count.
func (hs *handshakes) oldestLocked() *handshake {
	most := &hs.begun
	for _, l := range []*list.List{&hs.fresh, &hs.alerted} {
		if l.Len() > most.Len() {
			most = l
		}
	}
	from, crowded := hs.sources.heaviest()
	counts := func(h *handshake) bool { return !crowded || h.source == from }
	if most != &hs.begun {
		if h := firstOf(most, counts); h != nil {
			return h
		}
	}
	if h := firstOf(&hs.begun, func(h *handshake) bool { return h.awaits && counts(h) }); h != nil {
		return h
	}
	return cmp.Or(firstOf(&hs.alerted, counts), firstOf(&hs.fresh, counts), firstOf(&hs.begun, counts))
}

// firstOf is the first handshake of a list that counts, nil if there is none.
func firstOf(l *list.List, counts func(*handshake) bool) *handshake {
	for e := l.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handshake); counts(h) {
			return h
		}
	}
	return nil
}

// giveUpLocked makes reading and writing fail from now on. One that has not begun is to be
// abandoned.
func (hs *handshakes) giveUpLocked(h *handshake) {
	if h == nil {
		return
	}
	h.givenUp = true
	hs.removeLocked(h)
	if i := slices.Index(hs.waiting, h); i >= 0 {
		hs.waiting = slices.Delete(hs.waiting, i, i+1)
		h.turn <- struct{}{}
	}
	if h.socket != nil {
		_ = h.socket.SetDeadline(time.Unix(1, 0))
	}
}

// abandon ends a handshake that was given up. One that has begun is ended by its goroutine.
// h may be nil.
func (h *handshake) abandon() {
	if h == nil || h.started { // which does not change any more
		return
	}
	h.finish(errGivenUp)
}

// finish ends a handshake that has no goroutine, and that is in no list any more. Of one whose
// client was told, refuse has noted why before.
func (h *handshake) finish(why error) {
	if h.list != &h.by.server.handshakes.alerted {
		h.end(why)
	}
	h.endWatch()
	_ = unix.Close(h.fd)
	h.by.server.open.Add(-1)
	h.by.server.descriptorFreed()
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
	for {
		hs.mu.Lock()
		hs.over = true
		h := hs.oldestLocked()
		hs.giveUpLocked(h)
		hs.mu.Unlock()
		if h == nil {
			return
		}
		h.abandon()
	}
}
