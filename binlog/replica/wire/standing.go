package wire

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// standing is a connection over TLS whose handshake is done.
type standing struct {
	conn    *tls.Conn
	peer    string // who is at the other end, for the log
	began   time.Time
	end     func(error)                   // ends it
	checked atomic.Pointer[x509.CertPool] // the authorities by which its certificate was judged last
}

// stand has a connection ended when the authorities change, and its certificate is of none of
// them any more. The caller calls done when it has no use for it any more.
func (t *Transport) stand(c net.Conn, peer string) (done func()) {
	return t.standAs(c, peer, func(error) { _ = c.(*tls.Conn).NetConn().Close() }) // tls.Conn would wait to say so
}

// standAs is stand for a connection that is ended otherwise than by closing it.
func (t *Transport) standAs(c net.Conn, peer string, end func(error)) (done func()) {
	s, ok := c.(*tls.Conn)
	if !ok {
		return func() {}
	}
	st := &standing{conn: s, peer: peer, began: time.Now(), end: end}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.standing[st] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.standing, st)
	}
}

// watchAuthorities judges standing connections by the authorities of now, until the transport is
// closed.
func (t *Transport) watchAuthorities() {
	ticker := time.NewTicker(t.timing.pulse)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		roots := t.cfg.TLS.now().roots
		t.mu.Lock()
		all := slices.Collect(maps.Keys(t.standing))
		t.mu.Unlock()
		for _, s := range all {
			if s.checked.Swap(roots) == roots {
				continue
			}
			if err := s.verify(roots); err != nil {
				err = fmt.Errorf("the authorities have changed: %w", err)
				t.log.warn("a connection was ended", s.peer, err)
				s.end(err)
			}
		}
	}
}

// verify judges the certificate of the other side, as of the handshake: a certificate that has
// expired since ends no connection.
func (s *standing) verify(roots *x509.CertPool) error {
	certs := s.conn.ConnectionState().PeerCertificates
	o := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: s.began,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, c := range certs[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := certs[0].Verify(o)
	return err
}
