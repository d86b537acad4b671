package certs

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Policy is what is asked of clients.
type Policy struct {
	// Optional lets clients connect without a certificate. It counts where there are
	// authorities for clients.
	Optional bool
	// MinVersion is the oldest version of TLS that is spoken, 0 for TLS 1.2.
	MinVersion uint16
}

// Store has the newest generation of what is in some files. Any goroutine may use it, but
// Load only one at a time.
type Store struct {
	files  Files
	policy Policy
	log    *slog.Logger
	now    func() time.Time

	config *tls.Config // has the keys of tickets; does not change
	newest atomic.Pointer[generation]

	verifying  sync.Mutex
	verifiedBy *generation // guarded by verifying
	// what it has accepted of clients that are connected, and until when; guarded by verifying
	verified map[string]time.Time
}

// New makes a store that has nothing yet: see Load.
func New(files Files, policy Policy, log *slog.Logger) *Store {
	policy.MinVersion = cmp.Or(policy.MinVersion, tls.VersionTLS12)
	s := &Store{files: files, policy: policy, log: log, now: time.Now, config: new(tls.Config)}
	s.complete(s.config)
	s.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return s.newest.Load().config, nil
	}
	return s
}

// Paths are the files whose contents Load wants, in their order.
func (s *Store) Paths() []string { return s.files.paths() }

// Load makes what is in the files the newest generation. The error is a line that names the
// file; then the generation before stays.
func (s *Store) Load(contents [][]byte) error {
	g, err := s.files.load(contents, s.now())
	if err != nil {
		return err
	}
	s.complete(g.config)
	g.config.VerifyConnection = s.verify
	if s.newest.Swap(g) != nil {
		s.log.Info("certificates were reloaded", "cert", s.files.Cert, "subject", subject(g.leaf),
			"serial", g.leaf.SerialNumber.Text(16), "expires", g.leaf.NotAfter.UTC())
	}
	return nil
}

// Expiry returns when the server's certificate expires, and when the first of the clients'
// authorities does, or did. clientCA is zero if there is none. Load must have succeeded
// before.
func (s *Store) Expiry() (server, clientCA time.Time) {
	g := s.newest.Load()
	for _, ca := range g.clientCA {
		if clientCA.IsZero() || ca.NotAfter.Before(clientCA) {
			clientCA = ca.NotAfter
		}
	}
	return g.leaf.NotAfter, clientCA
}

// Config is the configuration for listeners. It takes the newest generation for each
// handshake, which needs that Load has succeeded before.
func (s *Store) Config() *tls.Config { return s.config }

// aead are the suites of TLS 1.2 that have forward secrecy and authenticated
// encryption. Those of TLS 1.3 all do.
var aead = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// complete sets what is the same in all generations.
func (s *Store) complete(c *tls.Config) {
	c.MinVersion = s.policy.MinVersion
	c.CipherSuites = aead
	c.DynamicRecordSizingDisabled = true // it is for browsers, and costs records
	c.Time = func() time.Time { return s.now() }
	switch {
	case s.files.ClientCA == "":
		c.ClientAuth = tls.NoClientCert
	case s.policy.Optional:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	default:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
}

// verify verifies a client's certificate against the newest authorities. crypto/tls has
// done so in a full handshake; in one that resumes a session, it knows the certificate
// from the ticket.
func (s *Store) verify(state tls.ConnectionState) error {
	if !state.DidResume || len(state.PeerCertificates) == 0 {
		return nil
	}
	if _, err := VerifyClient(s.newest.Load().config.ClientCAs, state.PeerCertificates, s.now()); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}
