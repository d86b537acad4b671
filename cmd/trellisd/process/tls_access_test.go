package process

import (
	"crypto/tls"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestAClientIsKnownByItsCertificateOrByATokenOverTLS(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.Start(t, append(files.Flags(), "--tls-client-ca="+files.CAFile, "--tls-client-auth=optional", "--auth-file",
		servertest.AuthFile(t, "worker cert:DNS:worker.example work jobs/*\n", servertest.TokenLine("producer", "right", "put", "jobs/*")))...)
	with := func(name string) *tls.Config {
		config := files.Client()
		if name != "" {
			config.Certificates = []tls.Certificate{files.CA.Issue(name, nil)}
		}
		return config
	}
	dial := func(config *tls.Config) *servertest.Client {
		a := s.Addrs[len(s.Addrs)-1]
		conn, err := tls.Dial(a.Network(), a.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		return servertest.ClientOn(t, conn)
	}
	producer, worker := dial(with("other.example")), dial(with("worker.example"))
	producer.Send("use auth/right", "use jobs/a", "put 0 0 60 1", "x")
	producer.Want("USING default", "USING jobs/a", "INSERTED 1")
	worker.Send("watch jobs/a", "reserve", "delete 1", "put 0 0 60 1", "x")
	worker.Want("WATCHING 2", "RESERVED 1 1", "x", "DELETED", "UNKNOWN_COMMAND")
	for _, name := range []string{"", "other.example"} {
		c := dial(with(name))
		c.Send("watch jobs/a")
		c.Want("UNKNOWN_COMMAND")
		c.WantEOF()
	}
	s.WaitText(`"tls":"TLS 1.3","san":"DNS:worker.example`)
	if strings.Contains(strings.Join(s.Log(), "\n"), "can be read on the network") {
		t.Error("warned of a listener on a loopback address")
	}
}
