package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"trellis/binlog/replica/member"
)

// accept takes connections until the listener is closed.
func (t *Transport) accept() {
	var delay time.Duration
	for {
		c, err := t.cfg.Listener.Accept()
		if t.ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err != nil {
			// The process has no descriptors left, most likely.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			t.log.warn("cannot take a connection", t.cfg.Listener.Addr().String(), err)
			select {
			case <-t.ctx.Done():
			case <-time.After(delay):
			}
			continue
		}
		delay = 0
		t.mu.Lock()
		if len(t.greeting) == maxGreeting {
			// The oldest, because one that has something to say has said it.
			_ = t.greeting[0].Close()
			t.greeting = slices.Delete(t.greeting, 0, 1)
		}
		t.greeting = append(t.greeting, c)
		t.mu.Unlock()
		t.all.Go(func() { t.serve(c) })
	}
}

// serve is a connection's life, from the other side's hello to its end.
func (t *Transport) serve(raw net.Conn) {
	defer func() { _ = raw.Close() }()
	ctx, cancel := context.WithTimeout(t.ctx, 2*t.timing.greet)
	stop := until(ctx, raw)
	c, h, err := t.welcome(ctx, raw)
	if h.release != nil {
		defer h.release()
	}
	expired := !stop()
	cancel()
	t.mu.Lock()
	i := slices.Index(t.greeting, raw) // it was taken out to make room
	if i >= 0 {
		t.greeting = slices.Delete(t.greeting, i, i+1)
	}
	t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
		return
	case expired:
		err = errors.New("no handshake in time")
	case i < 0:
		err = errors.New("no handshake while many others came")
	case errors.Is(err, io.EOF):
		return // it was a check of the port
	}
	if err == nil {
		err = t.handle(c, raw, h)
	}
	if err != nil && t.ctx.Err() == nil {
		t.log.warn("a connection was ended", t.nameOf(h, raw), err)
	}
}

// nameOf is who is at the other end, for a log.
func (t *Transport) nameOf(h hello, c net.Conn) string {
	if p := t.members.Load().peers[h.from.ID]; p != nil {
		return p.String()
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// welcome does TLS, reads the hello, and answers it.
func (t *Transport) welcome(ctx context.Context, raw net.Conn) (net.Conn, hello, error) {
	c := raw
	var cert *x509.Certificate
	if t.cfg.TLS != nil {
		s := tls.Server(&below{raw}, t.cfg.TLS.server())
		if err := s.HandshakeContext(ctx); err != nil {
			return c, hello{}, fmt.Errorf("TLS: %w", err)
		}
		c = s
		cert = certificateOf(s)
	}
	h, err := readHello(c, t.speaks)
	h.cert = cert
	if err != nil {
		if t.cfg.TLS == nil && (errors.Is(err, errHello) || errors.Is(err, io.ErrUnexpectedEOF)) {
			err = fmt.Errorf("%w; does it use TLS, and this node not?", err)
		}
		return c, h, err
	}
	r := t.admit(h)
	if r == nil {
		h.release, r = t.acquire(h)
	}
	if r != nil {
		_, _ = c.Write(encodeReply(t.speaks.highest, r.status, r.reason)) // the reason is logged here too
		return c, h, r
	}
	version := t.speaks.agreed(h.speaks)
	_, err = c.Write(encodeReply(version, welcome, ""))
	return inVersion(version, h.purpose, c), h, err
}

// refuse says why a hello is refused, or nil. The caller holds t.mu.
func (t *Transport) refuse(h hello) *refusal {
	if t.speaks.agreed(h.speaks) == 0 {
		return refuse(refused, "the protocol between members is spoken here in %s, and there in %s", t.speaks, h.speaks)
	}
	if h.purpose == purposeControl {
		return nil
	}
	if err := t.checkSender(h); err != nil {
		return refuse(refused, "%v", err)
	}
	ms := t.members.Load()
	p := ms.peers[h.from.ID]
	switch {
	case ms.self.ID == 0 || ms.peers == nil:
		return refuse(refused, "this node belongs to no cluster yet")
	case h.cluster != ms.cluster:
		return refuse(refused, "%s belongs to cluster %s, not to %s", ms.self.Name, ms.cluster, h.cluster)
	case h.to != stationOf(ms.self):
		return refuse(refused, "this is %s, member %s in incarnation %s, not %s in incarnation %s",
			ms.self.Name, ms.self.ID, ms.self.Incarnation, h.to.id, h.to.incarnation)
	case p == nil:
		return ms.refuseUnlisted(h)
	case h.from.Incarnation != p.Incarnation:
		return refuse(refused, "%s is member %s in incarnation %s, not %s: was its directory replaced?",
			p.Name, p.ID, p.Incarnation, h.from.Incarnation)
	}
	return nil
}

// acquire takes a slot for a connection. Lanes need none: a newer one ends the older.
func (t *Transport) acquire(h hello) (release func(), r *refusal) {
	var slots chan struct{}
	switch h.purpose {
	case purposeControl:
		slots = t.controls
	case purposeSnapshot:
		slots = t.snapshots
	case purposeTrunk:
		return t.acquireTrunk(h.from.ID)
	default:
		return nil, nil
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	default:
		return nil, refuse(refused, "%d connections for %s are all that this node serves", cap(slots), h.purpose)
	}
}

func (t *Transport) handle(c, raw net.Conn, h hello) error {
	if h.purpose == purposeTrunk {
		return t.takeTrunk(c, raw, h)
	}
	defer until(t.ctx, raw)()
	defer t.stand(c, t.nameOf(h, raw))()
	switch h.purpose {
	case purposeControl:
		return t.serveControl(c, t.caller(h.cert))
	case purposeSnapshot:
		return t.takeSnapshot(c, h.from.ID)
	}
	return t.receive(c, h)
}

// receive reads messages from a lane of another member.
func (t *Transport) receive(c net.Conn, h hello) error {
	key := inboundKey{h.from.ID, h.purpose}
	t.mu.Lock()
	ms := t.members.Load()
	p := ms.peers[h.from.ID]
	r := t.refuse(h)
	if r == nil && p == nil {
		r = refuse(refused, "it had to make room for others that this node does not know")
	}
	if r != nil {
		t.mu.Unlock()
		return r // that has come about since it was welcomed
	}
	if old := t.inbound[key]; old != nil {
		_ = old.Close() // a member that connects anew has given up the connection before
	}
	t.inbound[key] = c
	t.mu.Unlock()
	for _, l := range p.lanes {
		wake(l.hurry)
	}
	err := t.read(c, ms.self.ID, h.from.ID, &p.arrived[h.purpose-1])
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inbound[key] != c {
		return nil // a newer one has come
	}
	delete(t.inbound, key)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("nothing came on the lane of %s for %v", h.purpose, t.timing.dead)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection ended within a frame: %w", err)
	}
	return err
}

// read reads messages, and counts bytes as they come.
func (t *Transport) read(c net.Conn, self, from member.ID, arrived *atomic.Uint64) error {
	tm := &t.timing
	r := newFrameReader(&echoConn{timedConn: timedConn{c, tm.dead, tm.dead}, period: tm.pulse, arrived: arrived}, bufSize,
		kindMessage, kindPulse)
	for {
		k, payload, err := r.next()
		if err != nil {
			return err
		}
		if k == kindPulse {
			continue
		}
		m, err := decodeMessage(payload)
		if err != nil {
			return err
		}
		if !crosses(m.GetType()) {
			return malformed("a %s on a lane", m.GetType())
		}
		if err := checkWay(m, self, from); err != nil {
			return err
		}
		t.cfg.Handler.Message(m)
	}
}
