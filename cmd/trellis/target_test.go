package main

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"trellis/reactor/tlstest"
)

// answeringTLS is a server that wants a client's certificate. It returns its address and
// files: its authority, and a certificate that it accepts.
func answeringTLS(t *testing.T) (addr, ca, cert, key string) {
	t.Helper()
	authority := tlstest.NewAuthority("authority")
	dir := t.TempDir()
	ca, _ = tlstest.Write(t, dir, "ca", authority.Cert)
	cert, key = tlstest.Write(t, dir, "client", authority.Issue("client", nil))
	l := tls.NewListener(listen(t), &tls.Config{
		Certificates: []tls.Certificate{authority.Issue("localhost", nil)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool,
	})
	addr = serveEach(t, l, func(c net.Conn) { answerPing(c, "USING default\r\n") })
	return addr, ca, cert, key
}

func TestPingSpeaksTLSAsFlagsAndEnvironmentSay(t *testing.T) {
	addr, ca, cert, key := answeringTLS(t)
	plain := answering(t, "tcp", "127.0.0.1:0", "USING default\r\n")
	for _, tt := range []struct {
		args, env string // separated by blanks
		want      string // in the error; empty for none
	}{
		{args: "-a " + addr + " --tls --ca " + ca + " --cert " + cert + " --key " + key},
		{args: "-a " + addr, env: "TRELLIS_TLS=1 TRELLIS_CA=" + ca + " TRELLIS_CERT=" + cert + " TRELLIS_KEY=" + key},
		{args: "-a " + addr + " --tls --ca " + ca, env: "TRELLIS_CA=/nosuch TRELLIS_CERT=" + cert + " TRELLIS_KEY=" + key},
		{args: "-a " + addr + " --tls --ca " + ca, want: "certificate required"},
		{args: "-a " + addr + " --tls", want: "certificate"},
		{args: "-a " + addr, want: "EOF"},
		{args: "-a " + plain + " --tls", want: "EOF"},
		{args: "-a " + plain, env: "TRELLIS_TLS=0 TRELLIS_CA=" + ca},
		{args: "-a " + plain + " --tls=false", env: "TRELLIS_TLS=1"},
		{args: "-a " + addr + " --ca " + ca, want: "--ca without --tls"},
		{args: "-a " + addr + " --tls --cert " + cert, want: "give both --cert and --key"},
		{args: "-a " + addr + " --tls --ca /nosuch", want: "/nosuch"},
		{args: "-a " + addr + " --tls --ca " + key, want: "there is no certificate in it"},
		{args: "-a " + plain, env: "TRELLIS_TLS=maybe", want: "TRELLIS_TLS=maybe"},
	} {
		t.Run(tt.args+" "+tt.env, func(t *testing.T) {
			for _, name := range []string{"TRELLIS_TLS", "TRELLIS_CA", "TRELLIS_CERT", "TRELLIS_KEY"} {
				t.Setenv(name, "")
			}
			for _, e := range strings.Fields(tt.env) {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			cmd := patientCommand()
			cmd.SetArgs(append([]string{"ping"}, strings.Fields(tt.args)...))
			err := cmd.Execute()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestThePortDependsOnTLS(t *testing.T) {
	for _, tt := range []struct {
		tls        bool
		addr, want string
	}{
		{false, "127.0.0.1", "127.0.0.1:11300"},
		{true, "127.0.0.1", "127.0.0.1:11400"},
		{true, "127.0.0.1:9", "127.0.0.1:9"},
	} {
		cmd := newCommand()
		ping, _, err := cmd.Find([]string{"ping"})
		if err != nil {
			t.Fatal(err)
		}
		to := target{addr: tt.addr, tls: tt.tls, flags: ping.Flags()}
		a, err := to.address()
		if err != nil {
			t.Fatal(err)
		}
		if host, _, _ := net.SplitHostPort(tt.want); a.Name != tt.want || tt.tls && a.TLS().ServerName != host {
			t.Errorf("%s, TLS %t: %s", tt.addr, tt.tls, a.Name)
		}
	}
}
