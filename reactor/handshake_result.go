package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"trellis/engine/histogram"
)

// HandshakeResult is how a TLS handshake has ended.
type HandshakeResult uint8

// The results of handshakes.
const (
	HandshakeOK          HandshakeResult = iota
	HandshakeCertificate                 // the client's certificate is missing or not accepted
	HandshakeProtocol                    // what the client sent is no TLS, or no version or suite that is accepted
	HandshakeProxy                       // what came before it is no PROXY header
	HandshakeRefused                     // the client has sent an alert; most likely it does not trust the server's certificate
	HandshakeClosed                      // the client has closed the connection
	HandshakeTimeout                     // it took too long
	HandshakeCrowded                     // given up to make room for others
	HandshakeStopped                     // the server was shut down, or has failed
	NumHandshakeResults
)

var handshakeResults = [...]string{"ok", "certificate", "protocol", "proxy", "refused", "closed", "timeout", "crowded", "stopped"}

func (r HandshakeResult) String() string { return handshakeResults[r] }

// HandshakeStats is what has become of TLS handshakes, and of connections whose PROXY header
// has not come. A connection without TLS counts as OK nowhere.
type HandshakeStats struct {
	Pending int // under way now
	// Took is how long handshakes took from when their connections were accepted, by their
	// result.
	Took [NumHandshakeResults]histogram.Histogram
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

// end notes how the handshake has ended.
func (h *handshake) end(err error) HandshakeResult {
	hs := &h.by.server.handshakes
	took := time.Since(h.accepted)
	hs.mu.Lock()
	result := h.result(err)
	if err != nil || h.by.tls != nil {
		hs.ended.Took[result].Observe(took, 1)
	}
	if err == nil {
		hs.removeLocked(h)
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

// result classifies err, with which the handshake has ended. handshakes.mu is held.
func (h *handshake) result(err error) HandshakeResult {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case err == nil:
		return HandshakeOK
	case errors.Is(err, errNotBegun):
		return HandshakeTimeout
	case errors.Is(err, errNoProxy):
		return HandshakeProxy
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
		peer, what := endpointOf(h.fd), "a TLS handshake has failed"
		if h.awaitsProxy {
			what = "a proxy's connection has ended before its header was read"
		} else if h.by.proxied {
			peer = h.client
		}
		s.log.Log(context.Background(), level, what, "result", result.String(), "error", err,
			"peer", peer.String(), "listener", h.by.listener.Addr().String(), "unreported", n)
	}
}
