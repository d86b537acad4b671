package accept

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
	HandshakeRefused                     // the client has sent an alert: it may not trust the server's certificate
	HandshakeClosed                      // the client has closed the connection
	HandshakeTimeout                     // it took too long
	HandshakeCrowded                     // given up to make room for others
	HandshakeStopped                     // the server was shut down, or has failed
	NumHandshakeResults
)

var handshakeResults = [...]string{
	"ok", "certificate", "protocol", "proxy", "refused", "closed", "timeout", "crowded", "stopped",
}

func (r HandshakeResult) String() string { return handshakeResults[r] }

// HandshakeStats is what has become of TLS handshakes, and of connections whose PROXY header has not come. A connection
// without TLS counts as OK nowhere.
type HandshakeStats struct {
	Pending int // under way now
	// Took is how long handshakes took from when their connections were accepted, by their result.
	Took [NumHandshakeResults]histogram.Histogram
}

// Handshakes returns what has become of TLS handshakes.
func (a *Acceptor) Handshakes() *HandshakeStats {
	hs := &a.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	st := hs.ended
	st.Pending = hs.crowd.Size()
	return &st
}

// end notes how the handshake has ended.
func (h *handshake) end(err error) HandshakeResult {
	hs := &h.by.acceptor.handshakes
	took := time.Since(h.accepted)
	hs.mu.Lock()
	result := h.resultLocked(err)
	if err != nil || h.by.tls != nil {
		hs.ended.Took[result].Observe(took, 1)
	}
	if err == nil {
		hs.removeLocked(h)
	}
	if h.stage.begun() {
		hs.litterLocked()
	}
	hs.mu.Unlock()
	if err != nil {
		h.log(result, err)
	}
	return result
}

// resultLocked classifies err, with which the handshake has ended.
func (h *handshake) resultLocked(err error) HandshakeResult {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case err == nil:
		return HandshakeOK
	case errors.Is(err, errNotBegun):
		return HandshakeTimeout
	case errors.Is(err, errNoProxy):
		return HandshakeProxy
	case h.stage.begun() && !h.place.taken(), errors.Is(err, errGivenUp):
		select {
		case <-h.by.acceptor.done:
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return HandshakeClosed
	case errors.As(err, new(*os.SyscallError)), errors.As(err, new(*os.PathError)), errors.Is(err, errPanicked):
		return HandshakeStopped
	}
	return HandshakeProtocol
}

// noCertificate is how crypto/tls says that a client has none, for which it has no type.
const noCertificate = "client didn't provide a certificate"

var errPanicked = errors.New("the handshake has panicked")

// log logs who could not connect, and why.
func (h *handshake) log(result HandshakeResult, err error) {
	a := h.by.acceptor
	level := slog.LevelInfo
	switch result {
	case HandshakeStopped:
		level = slog.LevelDebug
	case HandshakeCertificate, HandshakeCrowded:
		level = slog.LevelWarn
	}
	if n, ok := a.handshakes.logs[result].Allow(); ok {
		peer, what := PeerOf(h.fd), "a TLS handshake has failed"
		if h.awaitsProxy {
			what = "a proxy's connection has ended before its header was read"
		} else if h.by.proxied {
			peer = h.client
		}
		a.log.Log(context.Background(), level, what, "result", result.String(), "error", err,
			"peer", peer.String(), "listener", h.by.socket.Addr().String(), "unreported", n)
	}
}
