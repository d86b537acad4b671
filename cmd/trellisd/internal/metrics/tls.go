package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/cmd/trellisd/internal/reload"
	"trellis/reactor"
)

var listenerMetrics = list[reactor.ListenerStats]{
	gauge("beanstalkd_listener_connections", "Open connections by the listening socket that they came from.",
		func(l reactor.ListenerStats) float64 { return float64(l.Connections) }, "listener", "tls"),
	counter("beanstalkd_listener_accepted_connections_total",
		"Connections that came from a listening socket and were given to an event loop.",
		func(l reactor.ListenerStats) float64 { return float64(l.Accepted) }, "listener", "tls"),
}

var certificateMetrics = list[Certificates]{
	gauges("certificate", "beanstalkd_tls_certificate_expiry_timestamp_seconds",
		"When certificates expire: server, the server's own; client_ca, the first of the authorities of clients.",
		by[Certificates]{
			{"server", func(c Certificates) float64 { return float64(c.Expires.Unix()) }},
			{"client_ca", func(c Certificates) float64 {
				return shownIf(!c.ClientCAExpires.IsZero(), float64(c.ClientCAExpires.Unix()))
			}},
		}),
}

var handshakeMetrics = list[*reactor.HandshakeStats]{
	gauge("beanstalkd_tls_pending_handshakes", "TLS handshakes that are under way.",
		func(s *reactor.HandshakeStats) float64 { return float64(s.Pending) }),
}

var handshakeDuration = newDurations("beanstalkd_tls_handshake_duration_seconds",
	"How long TLS handshakes took, with the PROXY header before them, by how they ended: "+
		"proxy, that is missing or wrong (also without TLS); ok; certificate, the client's is missing or not accepted; "+
		"protocol, no TLS or nothing of it that is accepted; refused, the client sent an alert; closed, the client went; "+
		"timeout; crowded, given up to make room for others; stopped, the server was stopped or failed.", -14, 4, "result")

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
		listenerMetrics.collect(ch, s, label("listener", k.addr), label("tls", strconv.FormatBool(k.tls)))
	}
}

func collectHandshakes(ch chan<- prometheus.Metric, s *reactor.HandshakeStats) {
	for r := range s.Took {
		ch <- handshakeDuration.with(&s.Took[r], handshakeLabels[r])
	}
	handshakeMetrics.collect(ch, s)
}

// Certificates are what there is to know of the server's certificates.
type Certificates struct {
	Expires         time.Time // the server's own
	ClientCAExpires time.Time // the first of the authorities of clients; zero if there are none
	Reload          reload.Stats
}
