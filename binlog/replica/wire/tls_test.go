package wire

import (
	"bytes"
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/wire/wiretest"
)

func load(t *testing.T, f wiretest.Files, a *wiretest.Authority) *Credentials {
	t.Helper()
	cfg, err := LoadTLS(f.Cert, f.Key, a.File, quietLog(&lockedBuffer{}))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestMembersTalkOverTLS(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
	ns := nodes(t, 3, setup{timing: patient, tls: func(int) *Credentials { return cfg }, change: func(_ int, n *node, _ *Config) {
		n.take, n.control = discard, echo
	}})
	meet(t, ns...)
	for i := range uint64(50) {
		ns[0].tr.Send(appendOf(ns[0], ns[1], i, 1000, 100_000))
	}
	ns[0].tr.Send(message(raftpb.MsgHeartbeat, ns[0], ns[1]))
	eventually(t, "all messages arrive", func() bool { return ns[1].count() == 51 })
	resp, err := Call(t.Context(), asks(cfg), ns[2].self.Addr, []byte("{}"))
	if err != nil || string(resp) != "{}" {
		t.Errorf("%q, %v", resp, err)
	}
	if _, err := Call(t.Context(), asks(nil), ns[2].self.Addr, []byte("{}")); err == nil || !strings.Contains(err.Error(), "does it use TLS, and this node not?") {
		t.Errorf("a request without TLS: %v", err)
	}
	ns[0].tr.SendSnapshot(snapshotOf(ns[0], ns[1]), func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	})
	once(t, ns[0], true)
}

// One line on each side says what is wrong, and nothing comes through.
func TestCertificatesThatAreWrongKeepNodesApart(t *testing.T) {
	ours, theirs := wiretest.NewAuthority(t, "ours"), wiretest.NewAuthority(t, "theirs")
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	good := load(t, ours.Issue(soon, "127.0.0.1"), ours)
	for name, c := range map[string]struct {
		bad                                          *Credentials
		goodDials, goodAccepts, badDials, badAccepts string
	}{
		"of another authority": {
			load(t, theirs.Issue(soon, "127.0.0.1"), theirs),
			"certificate signed by unknown authority", "remote error: tls: bad certificate",
			"certificate signed by unknown authority", "remote error: tls: bad certificate",
		},
		"of another authority, and trusts ours": {
			load(t, theirs.Issue(soon, "127.0.0.1"), ours),
			"certificate signed by unknown authority", "certificate signed by unknown authority",
			"it refuses this node's certificate", "remote error: tls: bad certificate",
		},
		"expired": {
			load(t, ours.Issue(past, "127.0.0.1"), ours),
			"certificate has expired or is not yet valid", "certificate has expired or is not yet valid",
			"it refuses this node's certificate", "remote error: tls: bad certificate",
		},
		"for another host": {
			load(t, ours.Issue(soon, "10.9.9.9"), ours),
			"certificate is valid for 10.9.9.9, not 127.0.0.1", "",
			"", "remote error: tls: bad certificate",
		},
	} {
		ns := nodes(t, 2, setup{timing: patient, tls: func(i int) *Credentials { return []*Credentials{good, c.bad}[i] }})
		for _, l := range []struct {
			n    *node
			msg  string
			want string
		}{
			{ns[0], "no connection to a member", c.goodDials},
			{ns[0], "a connection was ended", c.goodAccepts},
			{ns[1], "no connection to a member", c.badDials},
			{ns[1], "a connection was ended", c.badAccepts},
		} {
			if l.want == "" {
				continue
			}
			has := func() (n int) {
				for s := range strings.Lines(l.n.log.String()) {
					if strings.Contains(s, l.msg) && strings.Contains(s, l.want) {
						n++
					}
				}
				return n
			}
			eventually(t, name+": "+l.n.self.Name+" logs: "+l.msg+": "+l.want+"; it logs\n"+l.n.log.String(), func() bool { return has() > 0 })
			if has() != 1 {
				t.Errorf("%s: %s logs %q %d times:\n%s", name, l.n.self.Name, l.want, has(), l.n.log)
			}
		}
		for _, n := range ns {
			_ = n.tr.Close()
			if n.count() > 0 {
				t.Errorf("%s: a message came through", name)
			}
		}
	}
}

// A side without a certificate is refused.
func TestWhoHasNoCertificateIsRefused(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
	ns := nodes(t, 2, setup{timing: patient, tls: func(int) *Credentials { return cfg }})
	bare := cfg.client("127.0.0.1")
	bare.GetClientCertificate = nil
	c, err := tls.Dial("tcp", ns[0].self.Addr, bare)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if err == nil {
		t.Error("it was taken")
	}
	ns[0].logs("client didn't provide a certificate")
}

func TestANodeWithTLSAndOneWithoutStayApart(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
	ns := nodes(t, 2, setup{timing: patient, tls: func(i int) *Credentials { return []*Credentials{cfg, nil}[i] }})
	eventually(t, "n1 logs that it reaches nobody", func() bool {
		return strings.Contains(ns[0].log.String(), "no connection to a member")
	})
	ns[0].logs("first record does not look like a TLS handshake")
	ns[1].logs("not a connection of this protocol; does it use TLS, and this node not?")
	ns[1].logs("it ended the connection during the handshake; does it use TLS, and this node not?")
}

func TestCertificatesAreReadAgain(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	past, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	f := ours.Issue(past, "127.0.0.1")
	log := &lockedBuffer{}
	cfg, err := LoadTLS(f.Cert, f.Key, ours.File, quietLog(log))
	if err != nil {
		t.Fatal(err)
	}
	ns := nodes(t, 2, setup{timing: patient, tls: func(int) *Credentials { return cfg }})
	ns[0].logs("failed to verify certificate")

	// A certificate without its key is half of a change: the old one stays.
	key, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	ours.IssueTo(f, soon, "127.0.0.1")
	next, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.WriteFile(f.Key+".tmp", b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(f.Key+".tmp", f.Key); err != nil {
			t.Fatal(err)
		}
	}
	put(key)
	eventually(t, "the failure is logged", func() bool { return strings.Contains(log.String(), "those before stay") })
	put(next)
	meet(t, ns...)
	eventually(t, "the success is logged", func() bool {
		return strings.Contains(log.String(), "the node's certificate and authorities were read again")
	})
}

// authorities are those in an authority's file, and trust puts others there.
func authorities(t *testing.T, a *wiretest.Authority) []byte {
	t.Helper()
	pem, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	return pem
}

func trust(t *testing.T, a *wiretest.Authority, pem []byte) {
	t.Helper()
	if err := os.WriteFile(a.File+".tmp", pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.File+".tmp", a.File); err != nil {
		t.Fatal(err)
	}
}

// An authority takes the place of another without a restart: first the members trust both, then
// they get certificates of the new one, then the old one goes.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	ours, next := wiretest.NewAuthority(t, "ours"), wiretest.NewAuthority(t, "next")
	soon := time.Now().Add(time.Hour)
	f := ours.Issue(soon, "127.0.0.1")
	old, fresh := authorities(t, ours), authorities(t, next)
	cfg := load(t, f, ours)
	ns := nodes(t, 2, setup{timing: patient, tls: func(int) *Credentials { return cfg }, change: func(_ int, n *node, _ *Config) {
		n.control = echo
	}})
	meet(t, ns...)
	call := func(c *Credentials) error {
		_, err := Call(t.Context(), asks(c), ns[0].self.Addr, []byte("{}"))
		return err
	}
	theirs := load(t, next.Issue(soon, "127.0.0.1"), ours)
	if err := call(theirs); err == nil {
		t.Fatal("an authority that is not trusted")
	}
	trust(t, ours, append(bytes.Clone(old), fresh...))
	if err := call(theirs); err != nil {
		t.Fatalf("an authority that was added: %v", err)
	}
	trust(t, ours, []byte("half a file"))
	if err := call(theirs); err != nil {
		t.Fatalf("a file that cannot be read: %v", err)
	}
	next.IssueTo(f, soon, "127.0.0.1")
	trust(t, ours, fresh)
	if err := call(load(t, ours.Issue(soon, "127.0.0.1"), ours)); err == nil {
		t.Fatal("an authority that was taken out")
	}
	if err := call(theirs); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatAreNoCertificatesAreRefused(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	f := ours.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	other := ours.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct{ cert, key, ca, want string }{
		{missing, f.Key, ours.File, "certificate of this node"},
		{f.Cert, missing, ours.File, "certificate of this node"},
		{f.Cert, f.Key, missing, "authorities of the cluster"},
		{empty, f.Key, ours.File, "certificate of this node"},
		{f.Cert, empty, ours.File, "certificate of this node"},
		{f.Cert, f.Key, empty, "holds no certificate"},
		{f.Cert, other.Key, ours.File, "private key does not match"},
	} {
		if _, err := LoadTLS(c.cert, c.key, c.ca, nil); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
