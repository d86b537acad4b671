package reactor

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine/histogram"
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

// HandshakeResult is how a TLS handshake has ended.
type HandshakeResult uint8

// The results of handshakes.
const (
	HandshakeOK          HandshakeResult = iota
	HandshakeCertificate                 // the client's certificate is missing or not accepted
	HandshakeProtocol                    // what the client sent is no TLS, or no version or suite that is accepted
	HandshakeRefused                     // the client has sent an alert; most likely it does not trust the server's certificate
	HandshakeClosed                      // the client has closed the connection
	HandshakeTimeout                     // it took too long
	HandshakeCrowded                     // given up to make room for others
	HandshakeStopped                     // the server was shut down, or has failed
	NumHandshakeResults
)

var handshakeResults = [...]string{"ok", "certificate", "protocol", "refused", "closed", "timeout", "crowded", "stopped"}

func (r HandshakeResult) String() string { return handshakeResults[r] }

// HandshakeStats is what has become of TLS handshakes.
type HandshakeStats struct {
	Pending int // under way now
	// Took is how long handshakes took from when their connections were accepted, by their
	// result.
	Took [NumHandshakeResults]histogram.Histogram
}

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
// most. A flood that makes the server compute thus leaves the clients that it has begun with the
// time to answer, and one that is silent leaves them alone.
type handshakes struct {
	most    int
	running sync.WaitGroup

	mu       sync.Mutex
	tokens   int          // that nobody has; guarded by mu
	inRow    int          // tokens that went to begun handshakes since one went to a new one; guarded by mu
	waiting  []*handshake // begun, and wait for a token, the last is the next to get it; guarded by mu
	fresh    list.List    // of *handshake, those that have not begun, the oldest first; guarded by mu
	line     list.List    // of *handshake, those of fresh that wait for a token, the last is the next to get it; guarded by mu
	told     list.List    // of *handshake, those whose clients were told that they do not speak TLS, in that order; guarded by mu
	watched  watched
	begun    list.List      // of *handshake, in the order in which they began; guarded by mu
	ended    HandshakeStats // guarded by mu, without Pending
	litter   int            // handshakes whose garbage may be there; guarded by mu
	sweeper  *time.Timer    // collects it; nil before the first crowd; guarded by mu
	expiry   *time.Timer    // calls expire; nil before the first that did not begin at once; guarded by mu
	expires  time.Time      // when it does; zero if it does not; guarded by mu
	over     bool           // no more may begin; guarded by mu
	patience time.Duration  // how long a handshake may take, and may wait before it begins; does not change
	alert    time.Duration  // how long a client may read why it has failed; does not change
	logs     [NumHandshakeResults]throttle.Throttle
}

// processors is how many the process could use when it began. A program may raise GOMAXPROCS
// above that before it makes a server, because a goroutine that waits in a system call counts
// there. Such a goroutine takes no processor from others, and a handshake does.
var processors = runtime.GOMAXPROCS(0)

func (hs *handshakes) init(maxConnections int, patience, alert time.Duration) {
	hs.patience, hs.alert = patience, alert
	hs.tokens = max(1, processors/2)
	hs.most = min(maxHandshakes, max(1, maxConnections/4))
}

// Handshakes tells what has become of TLS handshakes. Any goroutine may call it.
func (s *Server) Handshakes() *HandshakeStats {
	hs := &s.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	st := hs.ended
	st.Pending = hs.pendingLocked()
	return &st
}

func (hs *handshakes) pendingLocked() int { return hs.fresh.Len() + hs.begun.Len() + hs.told.Len() }

// handshake is one that is under way. Unless marked otherwise, its fields belong to
// its goroutine.
type handshake struct {
	by       *acceptor
	fd       int
	accepted time.Time
	expires  time.Time       // guarded by handshakes.mu
	place    *list.Element   // in list; nil when it has left; guarded by handshakes.mu
	list     *list.List      // fresh, begun or told of handshakes; guarded by handshakes.mu
	inLine   *list.Element   // in handshakes.line; nil when it is not there; guarded by handshakes.mu
	watch    watch           // how the poller reports it
	givenUp  bool            // guarded by handshakes.mu
	started  bool            // it has a goroutine; guarded by handshakes.mu
	awaits   bool            // it waits for the client; guarded by handshakes.mu
	token    bool            // it has a token; guarded by handshakes.mu
	turn     chan struct{}   // tells that it has got a token, or was given up
	socket   *os.File        // fd; nil before the goroutine runs; guarded by handshakes.mu
	raw      syscall.RawConn // of socket
	left     int             // bytes that may still be read
	padding  int             // zeros that crypto/tls was given since left is 0
}

// errTooLong ends the handshake of a client that has sent too much.
var errTooLong = errors.New("the handshake is too long")

// add is called with a connection that has a place. Its handshake begins when its client has
// sent something and there is a token for it. When there are as many handshakes as may be,
// another is given up.
func (hs *handshakes) add(a *acceptor, fd int) {
	h := &handshake{by: a, fd: fd, accepted: time.Now()}
	h.expires = h.accepted.Add(hs.patience)
	watched := h.beginWatch()
	hs.mu.Lock()
	if hs.over {
		hs.mu.Unlock()
		h.leave(errGivenUp)
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
	h.list, h.place = l, l.PushBack(h)
	if l != &hs.begun {
		hs.watched.addLocked(h)
		hs.expireAtLocked(h.expires)
	}
}

// lineUpLocked has a handshake begin, now or when there is a token for it.
func (hs *handshakes) lineUpLocked(h *handshake) {
	if hs.tokens > 0 {
		hs.tokens--
		hs.startLocked(h)
	} else {
		h.inLine = hs.line.PushBack(h)
	}
}

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
	for _, l := range []*list.List{&hs.fresh, &hs.told} {
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
	hs.leaveLocked(h)
	hs.running.Add(1) // stop waits until the descriptor is closed
	hs.mu.Unlock()
	h.leave(why)
	hs.running.Done()
	return true
}

// startLocked begins a handshake, which gets a token.
func (hs *handshakes) startLocked(h *handshake) {
	hs.leaveLocked(h)
	hs.enterLocked(h, &hs.begun)
	h.started, h.token = true, true
	hs.running.Go(h.run)
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
// list, or of those that have begun, the first that waits for its client.
func (hs *handshakes) oldestLocked() *handshake {
	most := &hs.begun
	for _, l := range []*list.List{&hs.fresh, &hs.told} {
		if l.Len() > most.Len() {
			most = l
		}
	}
	if most != &hs.begun {
		return most.Front().Value.(*handshake)
	}
	for e := hs.begun.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handshake); h.awaits {
			return h
		}
	}
	for _, l := range []*list.List{&hs.told, &hs.fresh, &hs.begun} {
		if e := l.Front(); e != nil {
			return e.Value.(*handshake)
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
	hs.leaveLocked(h)
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
	h.leave(errGivenUp)
}

// leave ends a handshake that has no goroutine, and that is in no list any more. Of one whose
// client was told, refuse has noted why before.
func (h *handshake) leave(why error) {
	if h.list != &h.by.server.handshakes.told {
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

// run is the handshake's goroutine.
func (h *handshake) run() {
	s := h.by.server
	defer h.give()
	t := new(tlsConn)
	t.transport.handshake = h
	t.tls = tls.Server(&t.transport, h.by.tls)
	err := h.open()
	if err == nil {
		err = h.shake(t)
	}
	fd := -1
	if err == nil {
		fd, err = h.release()
	}
	result := h.end(err)
	if err != nil {
		h.explain(result, err)
		_ = h.socket.Close()
		s.open.Add(-1)
		s.descriptorFreed()
		return
	}
	t.transport.handshake = nil
	s.leastLoop(h.by.loop).arrive(arrival{fd: fd, listener: h.by.id, by: h.by, tls: t})
}

// open makes the descriptor a file, for which a goroutine can wait.
func (h *handshake) open() error {
	hs := &h.by.server.handshakes
	h.turn = make(chan struct{}, 1)
	h.left = maxBareInput
	if h.by.tls.ClientAuth != tls.NoClientCert {
		h.left = maxHandshakeInput
	}
	socket := os.NewFile(uintptr(h.fd), "socket")
	raw, err := socket.SyscallConn()
	if err == nil {
		err = socket.SetDeadline(h.accepted.Add(hs.patience))
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.socket, h.raw = socket, raw
	if h.place == nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// shake is the handshake proper.
func (h *handshake) shake(t *tlsConn) (err error) {
	defer func() {
		if r := recover(); r != nil {
			h.by.server.log.Error("a TLS handshake has panicked; its connection is closed", "panic", r, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return t.tls.Handshake()
}

// read reads for the tls.Conn.
func (h *handshake) read(p []byte) (n int, err error) {
	if h.left == 0 {
		// If reading failed, crypto/tls would not tell the client why. But it does
		// object to what cannot be a record.
		if h.padding >= maxHandshakeInput {
			return 0, errTooLong
		}
		h.padding += len(p)
		clear(p)
		return len(p), nil
	}
	p = p[:min(len(p), h.left)]
	waited := h.raw.Read(h.patiently(func(fd int) error {
		n, err = unix.Read(fd, p)
		return err
	}))
	if !h.take() {
		return 0, errGivenUp
	}
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	h.left -= n
	return n, nil
}

// write writes for the tls.Conn.
func (h *handshake) write(p []byte) (n int, err error) {
	waited := h.raw.Write(h.patiently(func(fd int) error {
		for n < len(p) {
			var m int
			if m, err = unix.Write(fd, p[n:]); err != nil {
				return err
			}
			n += m
		}
		return nil
	}))
	if !h.take() {
		return 0, errGivenUp
	}
	if waited != nil {
		return n, waited
	}
	return n, os.NewSyscallError("write", err)
}

// patiently makes of a system call one for a [syscall.RawConn], which waits until the socket
// is ready while it returns false. The token is given back before.
func (h *handshake) patiently(call func(fd int) error) func(fd uintptr) bool {
	return func(fd uintptr) bool {
		for {
			switch call(int(fd)) {
			case unix.EINTR:
			case unix.EAGAIN:
				h.give()
				return false
			default:
				return true
			}
		}
	}
}

// errGivenUp ends a handshake that was given up, and errNotBegun one that was not given a
// token in time.
var (
	errGivenUp  = errors.New("the handshake was given up")
	errNotBegun = errors.New("the handshake could not begin in time, because of others")
)

// take waits for a token, unless h has one. It reports false if the handshake was given up.
func (h *handshake) take() bool {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	h.awaits = false
	if h.place == nil || h.token {
		defer hs.mu.Unlock()
		return h.place != nil
	}
	if hs.tokens > 0 {
		hs.tokens--
		h.token = true
		hs.mu.Unlock()
		return true
	}
	hs.waiting = append(hs.waiting, h)
	hs.mu.Unlock()
	<-h.turn
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.token
}

// give passes the token on, if h has one. It comes before each wait for the client, and at
// the end.
func (h *handshake) give() {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.awaits = true
	if !h.token {
		return
	}
	h.token = false
	n := len(hs.waiting)
	newest := hs.line.Back()
	switch {
	case newest != nil && (n == 0 || hs.inRow >= goingOn):
		hs.inRow = 0
		hs.startLocked(newest.Value.(*handshake))
	case n > 0:
		hs.inRow++
		next := hs.waiting[n-1]
		hs.waiting[n-1] = nil
		hs.waiting = hs.waiting[:n-1]
		next.token = true
		next.turn <- struct{}{}
	default:
		hs.tokens++
	}
}

// release takes the connection out of Go's poller, and returns the descriptor that it
// has now.
func (h *handshake) release() (fd int, err error) {
	closed := h.raw.Control(func(old uintptr) { fd, err = h.by.server.extraFD.duplicate(int(old)) })
	if closed != nil {
		return -1, closed
	}
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	acknowledge(fd)
	_ = h.socket.Close()
	return fd, nil
}

// end notes how the handshake has ended.
func (h *handshake) end(err error) HandshakeResult {
	hs := &h.by.server.handshakes
	took := time.Since(h.accepted)
	hs.mu.Lock()
	result := h.result(err)
	hs.ended.Took[result].Observe(took, 1)
	if err == nil {
		hs.leaveLocked(h)
	}
	if h.started {
		hs.litterLocked()
	}
	hs.mu.Unlock()
	if err != nil {
		h.log(result, err)
	}
	return result
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

// leaveLocked takes h out of all lists, which makes room for another handshake.
func (hs *handshakes) leaveLocked(h *handshake) {
	if h.place == nil {
		return
	}
	h.list.Remove(h.place)
	h.place = nil
	if h.inLine != nil {
		hs.line.Remove(h.inLine)
		h.inLine = nil
	}
	hs.watched.removeLocked(h)
}

// result classifies err, with which the handshake has ended. handshakes.mu is held.
func (h *handshake) result(err error) HandshakeResult {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case err == nil:
		return HandshakeOK
	case errors.Is(err, errNotBegun):
		return HandshakeTimeout
	case h.givenUp, errors.Is(err, errGivenUp):
		select {
		case <-h.by.server.done:
			return HandshakeStopped
		default:
			return HandshakeCrowded
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return HandshakeTimeout
	case errors.As(err, &unverified), strings.HasSuffix(err.Error(), noCertificate):
		return HandshakeCertificate
	case errors.As(err, &op) && op.Op == "remote error":
		return HandshakeRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return HandshakeClosed
	case errors.As(err, new(*os.SyscallError)), errors.As(err, new(*os.PathError)), errors.Is(err, errPanicked):
		return HandshakeStopped
	}
	return HandshakeProtocol
}

// noCertificate is how crypto/tls says that a client has none, for which it has no
// type.
const noCertificate = "client didn't provide a certificate"

var errPanicked = errors.New("the handshake has panicked")

// log tells the operator who could not connect, and why.
func (h *handshake) log(result HandshakeResult, err error) {
	s := h.by.server
	level := slog.LevelInfo
	switch result {
	case HandshakeStopped:
		level = slog.LevelDebug
	case HandshakeCertificate, HandshakeCrowded:
		level = slog.LevelWarn
	}
	if n, ok := s.handshakes.logs[result].Allow(); ok {
		s.log.Log(context.Background(), level, "a TLS handshake has failed", "result", result.String(), "error", err,
			"peer", h.peerName(), "listener", h.by.listener.Addr().String(), "unreported", n)
	}
}

// peerName is the client's address, as far as it can be told. The socket is open.
func (h *handshake) peerName() string {
	switch a, _ := unix.Getpeername(h.fd); a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String()
	case *unix.SockaddrUnix:
		return "unix"
	}
	return ""
}

// noTLSAlert is the alert unexpected_message, RFC 8446, section 6.
var noTLSAlert = []byte{21, 3, 3, 0, 2, 2, 10}

// explain leaves a client whose handshake has failed the time to read the alert. To
// close at once, with something unread, would destroy it. The handshake stays among
// those that may be given up.
func (h *handshake) explain(result HandshakeResult, why error) {
	hs := &h.by.server.handshakes
	var noTLS tls.RecordHeaderError
	if errors.As(why, &noTLS) && noTLS.Conn != nil {
		_, _ = h.socket.Write(noTLSAlert) // crypto/tls has not sent any
	}
	if result == HandshakeCertificate || result == HandshakeProtocol {
		err := h.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		hs.mu.Lock()
		if h.place != nil && err == nil {
			err = h.socket.SetDeadline(time.Now().Add(hs.alert))
		}
		hs.mu.Unlock()
		if err == nil {
			h.give()
			_, _ = io.CopyN(io.Discard, h.socket, alertInput)
		}
	}
	hs.mu.Lock()
	hs.leaveLocked(h)
	hs.mu.Unlock()
}
