package process

import (
	"crypto/tls"
	"os"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
	"trellis/reactor/tlstest"
)

// as is a client's configuration with a certificate of an authority.
func as(f *servertest.CertFiles, ca *tlstest.Authority, name string) *tls.Config {
	c := ca.Issue(name, nil)
	config := f.Client()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	return config
}

func TestWhenAnAuthorityIsRemovedItsClientsConnectionsEnd(t *testing.T) {
	t.Parallel()
	files, second := servertest.NewCertFiles(t), tlstest.NewAuthority("second")
	servertest.NoError(t, os.WriteFile(files.CAFile, append(tlstest.CertPEM(files.CA.Cert), tlstest.CertPEM(second.Cert)...), 0o600))
	s := servertest.StartTLS(t, append(files.Flags(), "--tls-client-ca="+files.CAFile, "--grace=1")...)
	leaver, worker, stayer := s.DialTLS(0, as(files, files.CA, "leaver")), s.DialTLS(0, as(files, files.CA, "worker")), s.DialTLS(0, as(files, second, "stayer"))
	leaver.Send("use a")
	leaver.Want("USING a")
	worker.Send("put 0 0 600 1", "x", "reserve")
	worker.Want("INSERTED 1", "RESERVED 1 1", "x")
	stayer.Send("reserve")
	servertest.NoError(t, os.WriteFile(files.CAFile, tlstest.CertPEM(second.Cert), 0o600))
	s.Signal(syscall.SIGHUP)
	leaver.WantEOF()
	worker.WantEOF() // it keeps its job for the time of --grace
	stayer.Want("RESERVED 1 1", "x")
	s.WaitText("is not accepted any more")
}

func TestConnectionsThatAreTooOldEnd(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--max-connection-age=1")
	worker := s.DialInTime("put 0 0 600 1", "x", "reserve")
	worker.Want("INSERTED 1", "RESERVED 1 1", "x")
	s.Dial(0).WantEOF()
	worker.Send("touch 1", "delete 1")
	worker.Want("TOUCHED", "DELETED")
	worker.WantEOF()
}
