package process

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine/script"
	"trellis/reactor/tlstest"
)

// scriptConn is a connection whose end nobody need be told of.
type scriptConn struct{ *tls.Conn }

func (c scriptConn) Close() error {
	_ = c.Conn.Close()
	return nil
}

func TestTheServerBehavesOverTLSAsTheCorpusSays(t *testing.T) {
	stalls := watchStalls(t)
	files := servertest.NewCertFiles(t)
	for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		part := 2 // each case in one version, for commands do not know of versions
		if !servertest.Proof {
			part = 20
		}
		cases := every(part, script.Corpus()[part/2*i:])
		t.Run(strings.TrimPrefix(tls.VersionName(version), "TLS "), func(t *testing.T) {
			t.Parallel()
			config := files.Client()
			config.MinVersion, config.MaxVersion = version, version
			playCases(t, stalls, cases, &script.Socket{Patience: servertest.Patience, Authorize: authorize(t), Launch: func(options ...string) (*script.Process, error) {
				p, err := launchForScript(t, append(options, files.Flags()...)...)
				if err != nil {
					return nil, err
				}
				p.Dial = func() (net.Conn, error) {
					c, err := tls.DialWithDialer(&net.Dialer{Timeout: servertest.Patience}, p.Network, p.Addr, config)
					return scriptConn{c}, err
				}
				return p, nil
			}})
		})
	}
}

// every is the first of each n cases.
func every(n int, cases []script.Case) (some []script.Case) {
	for i := 0; i < len(cases); i += n {
		some = append(some, cases[i])
	}
	return some
}

func TestClientsOfBothListenersShareJobs(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.Start(t, files.Flags()...)
	plain, secure := s.Dial(0), s.DialTLS(1, files.Client())
	plain.Send("put 0 0 60 1", "x")
	plain.Want("INSERTED 1")
	secure.Send("reserve", "delete 1")
	secure.Want("RESERVED 1 1", "x", "DELETED")
}

func TestATakenPortForTLSNamesTheFlagThatChoosesAnother(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	servertest.NoError(t, err)
	defer taken.Close()
	files := servertest.NewCertFiles(t)
	p := servertest.Launch(t, "--tls-listen="+taken.Addr().String(), "--tls-cert="+files.Cert, "--tls-key="+files.Key)
	code, log := p.Wait(), p.Log()
	if code != 111 || len(log) != 1 || !strings.Contains(log[0], "choose another port with --tls-listen") {
		t.Errorf("exit code %d, log %q; want 111 and a line that advises --tls-listen", code, log)
	}
}

func TestAServerForTLSHasNoOtherListenerUnlessToldTo(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	s.DialTLS(0, files.Client()).Send("quit")
}

func TestClientsWithoutACertificateOfTheAuthorityAreRefused(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	with := func(c ...tls.Certificate) *tls.Config {
		config := files.Client()
		// The server's list of authorities does not keep it from presenting any.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(c) == 0 {
				return new(tls.Certificate), nil
			}
			return &c[0], nil
		}
		return config
	}
	good := with(files.CA.Issue("client", tlstest.Usage(x509.ExtKeyUsageClientAuth)))
	bad := map[string]*tls.Config{
		"certificate required":          with(),
		"unknown certificate authority": with(tlstest.NewAuthority("foreign").Issue("client", nil)),
		"expired certificate":           with(files.CA.Issue("client", tlstest.Expired)),
		"bad certificate":               with(files.CA.Issue("client", tlstest.Usage(x509.ExtKeyUsageServerAuth))),
	}
	s := servertest.StartTLS(t, append(files.Flags(), "--tls-client-ca="+files.CAFile)...)
	for want, config := range bad {
		if _, err := servertest.TryTLS(s.Addrs[0], config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	s.DialTLS(0, good)
	s.WaitText("a TLS handshake has failed")

	s = servertest.StartTLS(t, append(files.Flags(), "--tls-client-ca="+files.CAFile, "--tls-client-auth=optional")...)
	s.DialTLS(0, good)
	s.DialTLS(0, with())
	if _, err := servertest.TryTLS(s.Addrs[0], bad["expired certificate"]); err == nil {
		t.Error("an expired certificate is as good as none")
	}
}

func TestCertificatesThatCannotBeUsedEndTheStart(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	expired, expiredKey := tlstest.Write(t, files.Dir, "expired", files.CA.Issue("x", tlstest.Expired))
	damaged := filepath.Join(files.Dir, "damaged.pem")
	text := tlstest.CertPEM(files.CA.Cert)
	if err := os.WriteFile(damaged, append([]byte("note\n"), text[:len(text)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(files.Dir, "missing")
	for _, tt := range []struct{ args, want string }{
		{"--tls-cert=" + missing, missing + ": no such file or directory"},
		{"--tls-key=" + missing, missing + ": no such file or directory"},
		{"--tls-cert=" + files.Dir, files.Dir + ": it is no regular file"},
		{"--tls-key=" + expiredKey, expiredKey + ": the key does not belong to the certificate in " + files.Cert},
		{"--tls-key=" + files.Cert, files.Cert + ": "},
		{"--tls-cert=" + expired + " --tls-key=" + expiredKey, expired + ": the certificate of \"x\" has expired at "},
		{"--tls-cert=" + damaged, damaged + ": line 2: the certificate is damaged"},
		{"--tls-client-ca=" + files.Key, files.Key + ": there is no certificate in it"},
	} {
		p := servertest.Launch(t, append(files.Flags(), strings.Fields(tt.args)...)...)
		if code := p.Wait(); code != servertest.ExitUsage {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], tt.want) {
			t.Errorf("%s: got %q, want %q", tt.args, log, tt.want)
		}
	}
	for _, args := range [][]string{
		{"-l127.0.0.1", "-p0", "--tls-cert=" + files.Cert, "--tls-key=" + files.Key},
	} {
		if code := servertest.Launch(t, args...).Wait(); code != servertest.ExitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// What the user of -u cannot read would end the server's next reload; it ends the start.
func TestAKeyThatTheServersUserCannotReadEndsTheStart(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	files := servertest.NewCertFiles(t)
	p := servertest.Launch(t, append(files.Flags(), "-u", "nobody")...)
	if code := p.Wait(); code != servertest.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], "permission denied") {
		t.Errorf("logged %q", log)
	}
}

func TestInheritedSocketsNamedTLSAreForTLS(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	sockets := func() (fs []*os.File) {
		for range 2 {
			f, _ := servertest.Passable(t, "tcp", "127.0.0.1:0")
			fs = append(fs, f)
		}
		return fs
	}
	args := append(files.Flags(), "-V", "--log-format=json")
	p := servertest.Activated(t, sockets(), []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=tls:trellisd.socket"}, args...)
	s := servertest.Ready(p, 2)
	s.Dial(0).Send("quit") // the socket that is not named tls comes first
	s.DialTLS(1, files.Client()).Send("quit")
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for names, args := range map[string][]string{"tls:x": nil, "x:y": files.Flags()} {
		p := servertest.Activated(t, sockets(), []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=" + names}, args...)
		if code := p.Wait(); code != servertest.ExitUsage {
			t.Errorf("%s, %q: exit code %d", names, args, code)
		}
	}
}
