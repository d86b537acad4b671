package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Rejected returns which certificates of clients the newest authorities do not accept any more,
// and why: each is a client's, and those behind it, in DER. It is for connections that stand, as
// crypto/tls verifies once only. What is accepted is not verified again by the same generation
// before a certificate in it has expired, so that a look at many costs little. Load must have
// succeeded before. Any goroutine may call it.
func (s *Store) Rejected(certificates []string) map[string]error {
	g, now := s.newest.Load(), s.now()
	s.verifying.Lock()
	defer s.verifying.Unlock()
	if s.verifiedBy != g {
		s.verifiedBy, s.verified = g, nil
	}
	rejected := make(map[string]error)
	accepted := make(map[string]time.Time, len(certificates))
	for _, der := range certificates {
		until := s.verified[der]
		if !now.Before(until) {
			var err error
			if until, err = s.acceptedUntil(g, der, now); err != nil {
				rejected[der] = err
				continue
			}
		}
		accepted[der] = until
	}
	s.verified = accepted
	return rejected
}

// acceptedUntil verifies a client's certificate, and returns when it has to be done again.
func (s *Store) acceptedUntil(g *generation, der string, now time.Time) (until time.Time, err error) {
	certificates, err := x509.ParseCertificates([]byte(der))
	if err != nil {
		return until, fmt.Errorf("reading a client's certificate: %w", err)
	}
	chains, err := VerifyClient(g.config.ClientCAs, certificates, now)
	if err != nil {
		return until, fmt.Errorf("the certificate of %q: %w", subject(certificates[0]), err)
	}
	sooner := func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }
	for _, chain := range chains {
		if end := slices.MinFunc(chain, sooner).NotAfter; end.After(until) {
			until = end
		}
	}
	return until, nil
}

// VerifyClient verifies a client's certificate, the first of certificates, against authorities,
// as crypto/tls does in a handshake. It returns the chains that lead to one of these.
func VerifyClient(
	authorities *x509.CertPool, certificates []*x509.Certificate, now time.Time,
) ([][]*x509.Certificate, error) {
	opts := x509.VerifyOptions{
		Roots:         authorities,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range certificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	return certificates[0].Verify(opts)
}
