package reactor

import (
	"crypto/tls"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"trellis/engine"
)

// mutualTLS is the configuration of a server that wants certificates of its clients.
func mutualTLS() *tls.Config {
	config := serverTLS()
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, pki().ca.Pool
	return config
}

// as is a client's configuration with a certificate, which the client sends whatever
// the server asks for. An empty one is none.
func (a tlsAddr) as(c tls.Certificate) *tls.Config {
	config := a.client.Clone()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	return config
}

// certified is access control that knows clients by their certificates.
type certified struct {
	*doorkeeper
	names chan string
}

func (d certified) Identify(p *Peer) *engine.Grant {
	if p.TLS == nil || len(p.TLS.VerifiedChains) == 0 {
		return nil
	}
	d.names <- p.TLS.VerifiedChains[0][0].DNSNames[0]
	return d.all
}

func TestAClientIsKnownByItsCertificateAlsoWhenItsSessionIsResumed(t *testing.T) {
	t.Parallel()
	d := certified{newDoorkeeper(), make(chan string, 10)}
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Access = d })
	config := mutualTLS()
	config.ClientAuth = tls.VerifyClientCertIfGiven
	addr := ts.serveTLS(config)
	for _, name := range []string{"one", "two", "one"} {
		client := addr.as(pki().ca.Issue(name, nil))
		client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for range 3 { // resumed from the second on
			dial(t, tlsAddr{addr.Addr, client}).do("use a\r\n", "USING a\r\n")
			if got := <-d.names; got != name {
				t.Errorf("got %q, want %q", got, name)
			}
		}
	}
	c := dial(t, addr)
	c.do("auth good\r\nuse a\r\n", "AUTHENTICATED\r\nUSING a\r\n")
	for _, first := range []string{"stats\r\n", "use auth/bad\r\n", strings.Repeat("x", 300)} {
		c = dial(t, addr)
		c.do(first, "UNKNOWN_COMMAND\r\n")
		c.expectEOF()
	}
	c = ts.dial()
	c.do("stats\r\n", "UNKNOWN_COMMAND\r\n")
	c.expectEOF()
	known := dial(t, addr)
	known.do("auth good\r\n", "AUTHENTICATED\r\n")
	ts.Revoke(func(g *engine.Grant) bool { return g == d.all })
	known.expectEOF()
	if len(d.names) != 0 {
		t.Error("a client without a certificate was identified")
	}
}

// A certificate is big, and nobody needs it when it is known who has it.
func TestCertificatesAreForgottenWhenTheirClientsAreKnown(t *testing.T) {
	t.Parallel()
	d := certified{newDoorkeeper(), make(chan string, 10)}
	for name, access := range map[string]Access{"everybody is served": nil, "with access control": d} {
		t.Run(name, func(t *testing.T) {
			ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Access = access })
			config := mutualTLS()
			config.ClientAuth = tls.VerifyClientCertIfGiven
			var kept atomic.Int64
			config.VerifyConnection = func(state tls.ConnectionState) error {
				for _, c := range state.PeerCertificates {
					kept.Add(1)
					runtime.AddCleanup(c, func(int) { kept.Add(-1) }, 0)
				}
				return nil
			}
			addr := ts.serveTLS(config)
			worker := addr.as(pki().ca.Issue("worker", nil))
			worker.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			var clients []*client
			for range 3 { // resumed from the second on
				c := dial(t, tlsAddr{addr.Addr, worker})
				c.do("use a\r\n", "USING a\r\n")
				clients = append(clients, c)
			}
			ts.until("they are forgotten", func() bool {
				runtime.GC()
				return kept.Load() == 0
			})
			for _, c := range clients {
				c.do("use b\r\n", "USING b\r\n")
			}
		})
	}
}
