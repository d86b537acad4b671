package main

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestAClientIsKnownByItsCertificateOrByATokenOverTLS(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	s := start(t, append(files.flags(), "--tls-client-ca="+files.caFile, "--tls-client-auth=optional", "--auth-file",
		authFile(t, "worker cert:DNS:worker.example work jobs/*\n", tokenLine("producer", "right", "put", "jobs/*")))...)
	with := func(name string) *tls.Config {
		config := files.client()
		if name != "" {
			config.Certificates = []tls.Certificate{files.ca.Issue(name, nil)}
		}
		return config
	}
	dial := func(config *tls.Config) *client {
		a := s.addrs[len(s.addrs)-1]
		conn, err := tls.Dial(a.Network(), a.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		return clientOn(t, conn)
	}
	producer, worker := dial(with("other.example")), dial(with("worker.example"))
	producer.send("use auth/right", "use jobs/a", "put 0 0 60 1", "x")
	producer.want("USING default", "USING jobs/a", "INSERTED 1")
	worker.send("watch jobs/a", "reserve", "delete 1", "put 0 0 60 1", "x")
	worker.want("WATCHING 2", "RESERVED 1 1", "x", "DELETED", "UNKNOWN_COMMAND")
	for _, name := range []string{"", "other.example"} {
		c := dial(with(name))
		c.send("watch jobs/a")
		c.want("UNKNOWN_COMMAND")
		c.wantEOF()
	}
	s.waitText(`"tls":"TLS 1.3","san":"DNS:worker.example`)
	if strings.Contains(strings.Join(s.log(), "\n"), "can be read on the network") {
		t.Error("warned of a listener on a loopback address")
	}
}
