package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/cmd/trellisd/internal/reload"
	"trellis/reactor"
)

var (
	listenerConnections = gauge("beanstalkd_listener_connections",
		"Open connections by the listening socket that they came from.", "listener", "tls")
	listenerAccepted = counter("beanstalkd_listener_accepted_connections_total",
		"Connections that came from a listening socket and were given to an event loop.", "listener", "tls")

	handshakeDuration = newDurations("beanstalkd_tls_handshake_duration_seconds",
		"How long TLS handshakes took, by how they ended: ok; certificate, the client's is missing or not accepted; "+
			"protocol, no TLS or nothing of it that is accepted; refused, the client sent an alert; closed, the client went; "+
			"timeout; crowded, given up to make room for others; stopped, the server was stopped or failed.", -14, 4, "result")
	handshakesPending = gauge("beanstalkd_tls_pending_handshakes",
		"TLS handshakes that are under way.")
	certificateExpiry = gauge("beanstalkd_tls_certificate_expiry_timestamp_seconds",
		"When certificates expire: server, the server's own; client_ca, the first of the authorities of clients.", "certificate")
)

var (
	certificateServer   = label("certificate", "server")
	certificateClientCA = label("certificate", "client_ca")
)

var handshakeLabels = func() (l [reactor.NumHandshakeResults]*dto.LabelPair) {
	for r := range l {
		l[r] = label("result", reactor.HandshakeResult(r).String())
	}
	return l
}()

// collectListeners shows the listeners. Several with one address, as there can be with
// sockets that were inherited, are shown as one.
func collectListeners(ch chan<- prometheus.Metric, all []reactor.ListenerStats) {
	type key struct {
		addr string
		tls  bool
	}
	sums := make(map[key]reactor.ListenerStats, len(all))
	for _, l := range all {
		k := key{l.Addr, l.TLS}
		s := sums[k]
		s.Connections += l.Connections
		s.Accepted += l.Accepted
		sums[k] = s
	}
	for k, s := range sums {
		addr, tls := label("listener", k.addr), label("tls", strconv.FormatBool(k.tls))
		ch <- listenerConnections.with(float64(s.Connections), addr, tls)
		ch <- listenerAccepted.with(float64(s.Accepted), addr, tls)
	}
}

func collectHandshakes(ch chan<- prometheus.Metric, s *reactor.HandshakeStats) {
	for r := range s.Took {
		ch <- handshakeDuration.with(&s.Took[r], handshakeLabels[r])
	}
	ch <- handshakesPending.with(float64(s.Pending))
}

// Certificates are what there is to know of the server's certificates.
type Certificates struct {
	Expires         time.Time // the server's own
	ClientCAExpires time.Time // the first of the authorities of clients; zero if there are none
	Reload          reload.Stats
}

func collectCertificates(ch chan<- prometheus.Metric, s Certificates) {
	ch <- certificateExpiry.with(float64(s.Expires.Unix()), certificateServer)
	if !s.ClientCAExpires.IsZero() {
		ch <- certificateExpiry.with(float64(s.ClientCAExpires.Unix()), certificateClientCA)
	}
	collectReload(ch, s.Reload)
}
