package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"trellis/binlog/replica/member"
)

// part is the most that one Write gives to the system, so that a deadline is one for
// progress.
const part = 256 << 10

// timedConn is a connection of which every read and every part of a write has a time
// limit. Zero is none.
type timedConn struct {
	net.Conn
	read, write time.Duration
}

func (c *timedConn) Read(b []byte) (int, error) {
	if c.read > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.read)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func (c *timedConn) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		if c.write > 0 {
			if err := c.SetWriteDeadline(time.Now().Add(c.write)); err != nil {
				return n, err
			}
		}
		var m int
		m, err = c.Conn.Write(b[:min(len(b), part)])
		n += m
		b = b[m:]
	}
	return n, err
}

// pulseFrame is a whole frame of kind pulse.
var pulseFrame = func() []byte {
	var b bytes.Buffer
	_ = newFrameWriter(&b, smallBuf).frame(kindPulse, nil) // a buffer takes all
	return b.Bytes()
}()

// echoConn answers what arrives with a pulse, at most one in half a period: so the other
// side knows that its bytes arrive, whatever is on their way.
type echoConn struct {
	timedConn
	period  time.Duration
	last    time.Time
	arrived *atomic.Uint64 // counts what arrives
}

func (c *echoConn) Read(b []byte) (int, error) {
	n, err := c.timedConn.Read(b)
	c.arrived.Add(uint64(n))
	if n > 0 && time.Since(c.last) >= c.period/2 {
		c.last = time.Now()
		if _, werr := c.Write(pulseFrame); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}

// open dials an address, and says hello for a purpose. The connection ends with ctx only
// until open returns.
func open(ctx context.Context, cfg *ClientConfig, limit time.Duration, addr string, h hello) (net.Conn, error) {
	if cfg.TLS == nil {
		if err := CheckPlain(addr); err != nil {
			return nil, err
		}
	}
	dialing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := cfg.dial(dialing, addr)
	if err != nil {
		if ctx.Err() == nil && dialing.Err() != nil {
			err = errors.New("no answer to a connection's start")
		}
		return nil, err
	}
	greeting, done := context.WithTimeout(ctx, limit)
	defer done()
	stop := until(greeting, c)
	c, err = greet(greeting, cfg, c, addr, h)
	if !stop() && err == nil {
		err = greeting.Err()
	}
	if err != nil {
		if ctx.Err() == nil && greeting.Err() != nil {
			err = errors.New("no answer to a handshake")
		}
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// greet is open's part after the dialling. It returns the connection to use or to close.
func greet(ctx context.Context, cfg *ClientConfig, c net.Conn, addr string, h hello) (net.Conn, error) {
	if cfg.TLS != nil {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return c, err
		}
		s := tls.Client(&below{c}, cfg.TLS.client(host))
		if err := s.HandshakeContext(ctx); err != nil {
			return c, fmt.Errorf("TLS: %w", err)
		}
		c = s
		if err := cfg.TLS.checkMember(certificateOf(s), host); err != nil {
			return c, err
		}
	}
	h.speaks = cmp.Or(cfg.speaks, spoken())
	if _, err := c.Write(h.encode()); err != nil {
		return c, err
	}
	version, err := readReply(c, h.speaks)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ended the connection during the handshake")
		if cfg.TLS == nil {
			err = fmt.Errorf("%w; does it use TLS, and this node not?", err)
		}
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" { // an alert of TLS
		err = fmt.Errorf("it refuses this node's certificate: %w", err)
	}
	return inVersion(version, h.purpose, c), err
}

// hello is what this node says to another member.
func (m *members) hello(p purpose, to member.Member) hello {
	h := hello{purpose: p, cluster: m.cluster, from: m.self, to: stationOf(to)}
	if m.includesSelf {
		h.index = m.index
	}
	return h
}
