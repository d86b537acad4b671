package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// watchInterval is how often the files are compared with what was loaded.
const watchInterval = 10 * time.Second

// Policy is what is asked of clients.
type Policy struct {
	// Optional lets clients connect without a certificate. It counts where there are
	// authorities for clients.
	Optional bool
	// MinVersion is the oldest version of TLS that is spoken, 0 for TLS 1.2.
	MinVersion uint16
}

// Stats is what the outside may know of a Store.
type Stats struct {
	// CertExpires and ClientCAExpires are when the server's certificate, and that of
	// the authority whose comes first, expire. ClientCAExpires is zero if there is none.
	CertExpires, ClientCAExpires time.Time
	Reloads                      uint64 // generations that were loaded after the first
	ReloadFailures               uint64 // looks at the files that found something that could not be loaded
	Failing                      bool   // the last look was one of these
}

// Store has the newest generation of what is in some files. Any goroutine may use it.
type Store struct {
	files  Files
	policy Policy
	log    *slog.Logger
	now    func() time.Time

	config *tls.Config // has the keys of tickets; does not change
	newest atomic.Pointer[generation]

	mu      sync.Mutex
	stats   Stats  // guarded by mu
	trouble string // why the last look failed, empty if it did not; guarded by mu
}

// Load loads the files for the first time. Its error is a line that names the file.
func Load(files Files, policy Policy, log *slog.Logger) (*Store, error) {
	return load(files, policy, log, time.Now)
}

func load(files Files, policy Policy, log *slog.Logger, now func() time.Time) (*Store, error) {
	if policy.MinVersion == 0 {
		policy.MinVersion = tls.VersionTLS12
	}
	s := &Store{files: files, policy: policy, log: log, now: now}
	c, err := files.read()
	if err != nil {
		return nil, err
	}
	g, err := files.load(c, now())
	if err != nil {
		return nil, err
	}
	s.use(g)
	s.config = new(tls.Config)
	s.complete(s.config)
	s.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return s.newest.Load().config, nil
	}
	return s, nil
}

// use makes g the newest generation.
func (s *Store) use(g *generation) {
	s.complete(g.config)
	g.config.VerifyConnection = s.verify
	s.newest.Store(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.CertExpires, s.stats.ClientCAExpires = g.leaf.NotAfter, time.Time{}
	for _, ca := range g.clientCA {
		if e := s.stats.ClientCAExpires; e.IsZero() || ca.NotAfter.Before(e) {
			s.stats.ClientCAExpires = ca.NotAfter
		}
	}
}

// Config is the configuration for listeners. It takes the newest generation for each
// handshake.
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
	g := s.newest.Load()
	opts := x509.VerifyOptions{
		Roots:         g.config.ClientCAs,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   s.now(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// Watch looks at the files again and again until ctx is done.
func (s *Store) Watch(ctx context.Context) {
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_, _ = s.Reload()
		}
	}
}

// Reload looks at the files once, and loads them if they have changed. The error has
// been logged, unless it is the same as the last time.
func (s *Store) Reload() (changed bool, err error) {
	c, err := s.files.read()
	if err == nil && c.equal(&s.newest.Load().contents) {
		s.looked(nil)
		return false, nil
	}
	var g *generation
	if err == nil {
		g, err = s.files.load(c, s.now())
	}
	if err != nil {
		s.looked(err)
		return false, err
	}
	s.use(g)
	s.looked(nil)
	s.mu.Lock()
	s.stats.Reloads++
	s.mu.Unlock()
	s.log.Info("certificates were reloaded", "cert", s.files.Cert, "subject", subject(g.leaf),
		"serial", g.leaf.SerialNumber.Text(16), "expires", g.leaf.NotAfter.UTC())
	return true, nil
}

// looked notes how a look at the files has ended.
func (s *Store) looked(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Failing = err != nil; err == nil {
		s.trouble = ""
		return
	}
	s.stats.ReloadFailures++
	if err.Error() != s.trouble {
		s.trouble = err.Error()
		s.log.Error("certificates cannot be reloaded; those from before stay", "error", err)
	}
}

// Stats tells what there is to tell.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
