package main

import (
	"crypto/tls"
	"os"
	"syscall"
	"testing"

	"trellis/reactor/tlstest"
)

// as is a client's configuration with a certificate of an authority.
func (f *certFiles) as(ca *tlstest.Authority, name string) *tls.Config {
	c := ca.Issue(name, nil)
	config := f.client()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	return config
}

func TestWhenAnAuthorityIsRemovedItsClientsConnectionsEnd(t *testing.T) {
	t.Parallel()
	files, second := newCertFiles(t), tlstest.NewAuthority("second")
	no(t, os.WriteFile(files.caFile, append(tlstest.CertPEM(files.ca.Cert), tlstest.CertPEM(second.Cert)...), 0o600))
	s := startTLS(t, append(files.flags(), "--tls-client-ca="+files.caFile, "--grace=1")...)
	leaver, worker, stayer := s.dialTLS(0, files.as(files.ca, "leaver")), s.dialTLS(0, files.as(files.ca, "worker")), s.dialTLS(0, files.as(second, "stayer"))
	leaver.send("use a")
	leaver.want("USING a")
	worker.send("put 0 0 600 1", "x", "reserve")
	worker.want("INSERTED 1", "RESERVED 1 1", "x")
	stayer.send("reserve")
	no(t, os.WriteFile(files.caFile, tlstest.CertPEM(second.Cert), 0o600))
	s.signal(syscall.SIGHUP)
	leaver.wantEOF()
	worker.wantEOF() // it keeps its job for the time of --grace
	stayer.want("RESERVED 1 1", "x")
	s.waitText("is not accepted any more")
}

func TestConnectionsThatAreTooOldEnd(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-connection-age=1")
	worker := s.dialInTime("put 0 0 600 1", "x", "reserve")
	worker.want("INSERTED 1", "RESERVED 1 1", "x")
	s.dial(0).wantEOF()
	worker.send("touch 1", "delete 1")
	worker.want("TOUCHED", "DELETED")
	worker.wantEOF()
}
