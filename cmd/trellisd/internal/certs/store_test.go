package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/reload"
	"trellis/reactor/tlstest"
)

// rig is a store with its files, and an authority that has issued what is in them.
type rig struct {
	*Store
	t     *testing.T
	ca    *tlstest.Authority
	dir   string
	files Files
	log   *bytes.Buffer
}

func newRig(t *testing.T, mutual bool, policy Policy) *rig {
	t.Helper()
	r := &rig{t: t, ca: tlstest.NewAuthority("authority"), dir: t.TempDir(), log: new(bytes.Buffer)}
	r.files.Cert, r.files.Key = tlstest.Write(t, r.dir, "server", r.ca.Issue(tlstest.Name, nil))
	if mutual {
		r.files.ClientCA, _ = tlstest.Write(t, r.dir, "ca", r.ca.Cert)
	}
	r.Store = New(r.files, policy, slog.New(slog.NewTextHandler(r.log, nil)))
	r.reload("")
	return r
}

// write replaces a file.
func (r *rig) write(name string, text []byte) {
	r.t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// contents are what is in the files.
func (r *rig) contents() (all [][]byte) {
	r.t.Helper()
	for _, path := range r.Paths() {
		b, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// reload loads what is in the files.
func (r *rig) reload(wantErr string) {
	r.t.Helper()
	err := r.Load(r.contents())
	if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
		r.t.Fatalf("got %v, want %q", err, wantErr)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		r.t.Fatalf("more than a line: %q", err)
	}
}

// watched has the files looked at.
func (r *rig) watched() *reload.Files {
	r.t.Helper()
	f, err := reload.Load("tls", r.Paths(), r.Load, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// connect does a handshake, and exchanges a byte so that the client has its ticket and
// both know the other's opinion.
func (r *rig) connect(client *tls.Config) (server tls.ConnectionState, err error) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer here.Close()
	there, err := l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	_, _ = here.SetDeadline(deadline), there.SetDeadline(deadline)
	refused := make(chan error, 1)
	go func() {
		s := tls.Server(there, r.Config())
		err := s.Handshake()
		if err == nil {
			server = s.ConnectionState()
			_, err = s.Write([]byte("x"))
		}
		refused <- err
		there.Close()
	}()
	c := tls.Client(here, client)
	_, err = io.ReadFull(c, make([]byte, 1))
	c.Close()
	if e := <-refused; e != nil {
		err = e
	}
	return server, err
}

// client is a configuration with tickets and, if there is a name, a certificate.
func (r *rig) client(name string) *tls.Config {
	config := &tls.Config{RootCAs: r.ca.Pool, ServerName: tlstest.Name, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	if name != "" {
		c := r.ca.Issue(name, nil)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	}
	return config
}

func TestABrokenPairLeavesTheOldOneInPlace(t *testing.T) {
	r := newRig(t, false, Policy{})
	files := r.watched()
	old := r.newest.Load()
	key, err := os.ReadFile(r.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	next := r.ca.Issue(tlstest.Name, nil)
	r.write(r.files.Cert, tlstest.CertPEM(next)) // whoever replaces it comes to the key a moment later
	for range 3 {
		files.Look()
	}
	if s := files.Stats(); !s.Failing || s.Failed != 1 || s.Loaded != 0 || r.newest.Load() != old {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(r.log.String(), "the key does not belong to the certificate in "+r.files.Cert); n != 1 {
		t.Errorf("logged %d times:\n%s", n, r.log)
	}
	if _, err := r.connect(r.client("")); err != nil {
		t.Errorf("the old pair does not serve: %v", err)
	}
	r.write(r.files.Key, tlstest.KeyPEM(next))
	files.Look()
	files.Look()
	if s := files.Stats(); s.Failing || s.Loaded != 1 {
		t.Errorf("%+v", s)
	}
	if expires, _ := r.Expiry(); !expires.Equal(next.Leaf.NotAfter) {
		t.Errorf("it expires at %v", expires)
	}
	if log := r.log.String(); !strings.Contains(log, "certificates were reloaded") || !strings.Contains(log, next.Leaf.SerialNumber.Text(16)) {
		t.Errorf("the log:\n%s", log)
	}
	r.write(r.files.Key, key)
	files.Look()
	if !files.Stats().Failing {
		t.Error("a key that does not belong to the certificate was loaded")
	}
	r.write(r.files.Key, tlstest.KeyPEM(next)) // it was a mistake
	files.Look()
	if files.Stats().Failing {
		t.Error("it still fails")
	}
}

func TestACertificateThatIsNotValidYetIsLoadedInItsTime(t *testing.T) {
	r := newRig(t, false, Policy{})
	files := r.watched()
	next := r.ca.Issue(tlstest.Name, nil)
	now := next.Leaf.NotBefore.Add(-time.Second)
	r.now = func() time.Time { return now }
	r.write(r.files.Cert, tlstest.CertPEM(next))
	r.write(r.files.Key, tlstest.KeyPEM(next))
	for range 2 {
		files.Look()
	}
	if s := files.Stats(); !s.Failing || s.Loaded != 0 {
		t.Errorf("before: %+v", s)
	}
	now = next.Leaf.NotBefore
	files.Look()
	if s := files.Stats(); s.Failing || s.Loaded != 1 || r.newest.Load().leaf.SerialNumber.Cmp(next.Leaf.SerialNumber) != 0 {
		t.Errorf("in its time: %+v", s)
	}
}

func TestWhatCannotBeLoadedIsToldWithFileAndLine(t *testing.T) {
	r := newRig(t, true, Policy{})
	good := tlstest.CertPEM(r.ca.Cert)
	broken := bytes.Replace(good, []byte("\nMII"), []byte("\nAAA"), 1)
	for _, tt := range []struct {
		file string
		text []byte
		want string
	}{
		{r.files.Cert, nil, "server.pem: there is no certificate in it"},
		{r.files.Cert, []byte("\n\n" + string(good[:100])), "server.pem: line 3: the certificate is damaged"},
		{r.files.Cert, append(bytes.Clone(good), broken...), "server.pem: line 1" + "2: "},
		{r.files.Cert, tlstest.CertPEM(r.ca.Issue("x", tlstest.Expired)), `server.pem: the certificate of "x" has expired at `},
		{r.files.Cert, tlstest.CertPEM(r.ca.Issue("x", func(c *x509.Certificate) { c.NotBefore = c.NotAfter })), "is not valid before"},
		{r.files.Key, nil, "server.key: there is no private key in it"},
		{r.files.Key, good, "server.key: "},
		{r.files.Key, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), "server.key: the key is encrypted"},
		{r.files.ClientCA, []byte("x"), "ca.pem: there is no certificate in it"},
		{r.files.ClientCA, tlstest.CertPEM(r.ca.Issue("leaf", func(c *x509.Certificate) { c.BasicConstraintsValid = true })), `ca.pem: the certificate of "leaf" is not that of an authority`},
	} {
		before, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		r.write(tt.file, tt.text)
		r.reload(tt.want)
		r.write(tt.file, before)
	}
	if _, err := r.connect(r.client("client")); err != nil {
		t.Error(err)
	}
}

// Kubernetes mounts a secret as a link to a directory that is a link, and swaps that.
func TestASwappedLinkIsNoticed(t *testing.T) {
	r := newRig(t, false, Policy{})
	root := t.TempDir()
	version := func(name string) tls.Certificate {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := r.ca.Issue(tlstest.Name, nil)
		tlstest.Write(t, dir, "tls", c)
		return c
	}
	link := func(name string) {
		next := filepath.Join(root, "..next")
		if err := errors.Join(os.Symlink(name, next), os.Rename(next, filepath.Join(root, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	version("one")
	link("one")
	files := Files{Cert: filepath.Join(root, "..data/tls.pem"), Key: filepath.Join(root, "..data/tls.key")}
	r.Store = New(files, Policy{}, slog.New(slog.DiscardHandler))
	watched := r.watched()
	two := version("two")
	watched.Look()
	if n := watched.Stats().Loaded; n != 0 {
		t.Errorf("loaded %d times before the link was swapped", n)
	}
	link("two")
	watched.Look()
	if got := r.newest.Load().leaf.SerialNumber; got.Cmp(two.Leaf.SerialNumber) != 0 {
		t.Errorf("serial number %v", got)
	}
}

func TestTicketsOutliveARenewal(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r := newRig(t, false, Policy{})
		client := r.client("")
		client.MaxVersion = version
		for i := range 3 {
			state, err := r.connect(client)
			if err != nil || state.DidResume != (i > 0) {
				t.Errorf("%x: connection %d: resumed %t, %v", version, i, state.DidResume, err)
			}
			next := r.ca.Issue(tlstest.Name, nil)
			r.write(r.files.Cert, tlstest.CertPEM(next))
			r.write(r.files.Key, tlstest.KeyPEM(next))
			r.reload("")
		}
	}
}

func TestAClientOfARemovedAuthorityCannotResume(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r := newRig(t, true, Policy{})
		client := r.client("client")
		client.MaxVersion = version
		for i := range 2 {
			if state, err := r.connect(client); err != nil || state.DidResume != (i > 0) {
				t.Fatalf("%x: resumed %t, %v", version, state.DidResume, err)
			}
		}
		other := tlstest.NewAuthority("other")
		r.write(r.files.ClientCA, append(tlstest.CertPEM(other.Cert), tlstest.CertPEM(r.ca.Cert)...))
		r.reload("")
		if _, err := r.connect(client); err != nil {
			t.Errorf("%x: with another authority beside its own: %v", version, err)
		}
		r.write(r.files.ClientCA, tlstest.CertPEM(other.Cert))
		r.reload("")
		var unverified *tls.CertificateVerificationError
		for range 2 {
			if _, err := r.connect(client); !errors.As(err, &unverified) {
				t.Errorf("%x: got %v", version, err)
			}
		}
	}
}

func TestAnExpiredClientCannotResume(t *testing.T) {
	r := newRig(t, true, Policy{})
	client := r.client("client")
	if _, err := r.connect(client); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(2 * time.Hour)
	r.now = func() time.Time { return later }
	if _, err := r.connect(client); err == nil {
		t.Error("it was served")
	}
}

func TestVersionsAndSuitesAreThoseOfThePolicy(t *testing.T) {
	at := func(version uint16, suites ...uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion, c.CipherSuites = version, version, suites }
	}
	for name, tt := range map[string]struct {
		min    uint16
		change func(*tls.Config)
		ok     bool
	}{
		"1.3":               {0, at(tls.VersionTLS13), true},
		"1.2":               {0, at(tls.VersionTLS12), true},
		"1.1":               {0, at(tls.VersionTLS11), false},
		"1.0":               {0, at(tls.VersionTLS10), false},
		"1.2 with CBC":      {0, at(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA), false},
		"1.2 from 1.3 on":   {tls.VersionTLS13, at(tls.VersionTLS12), false},
		"1.3 from 1.3 on":   {tls.VersionTLS13, at(tls.VersionTLS13), true},
		"1.2 with ChaCha20": {0, at(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256), true},
	} {
		r := newRig(t, false, Policy{MinVersion: tt.min})
		client := r.client("")
		tt.change(client)
		if _, err := r.connect(client); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClientsNeedACertificateUnlessItIsOptional(t *testing.T) {
	for _, optional := range []bool{false, true} {
		r := newRig(t, true, Policy{Optional: optional})
		if _, err := r.connect(r.client("client")); err != nil {
			t.Error(err)
		}
		if _, err := r.connect(r.client("")); (err == nil) != optional {
			t.Errorf("optional %t: without one: %v", optional, err)
		}
		foreign := r.client("")
		c := tlstest.NewAuthority("foreign").Issue("client", nil)
		foreign.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
		if _, err := r.connect(foreign); err == nil {
			t.Errorf("optional %t: a foreign one is as good as none", optional)
		}
	}
}

// FuzzCertificates puts anything into one of the files, while the others are good.
func FuzzCertificates(f *testing.F) {
	ca := tlstest.NewAuthority("authority")
	c := ca.Issue("x", nil)
	good := [][]byte{tlstest.CertPEM(c), tlstest.KeyPEM(c), tlstest.CertPEM(ca.Cert)}
	names := Files{Cert: "C", Key: "K", ClientCA: "A"}
	now := time.Now()
	for which := range good {
		for _, text := range []string{
			"", "x\n-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
			"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", "-----BEGIN EC PRIVATE KEY-----\nDEK-Info: x\n\nMAA=\n-----END EC PRIVATE KEY-----\n",
			"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
		} {
			f.Add(uint8(which), []byte(text))
		}
		f.Add(uint8(which), good[which])
		f.Add(uint8(which), append(bytes.Clone(good[0]), good[1]...))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		contents := slices.Clone(good)
		contents[int(which)%len(good)] = text
		g, err := names.load(contents, now)
		if err != nil {
			if msg := err.Error(); !slices.Contains(names.paths(), strings.SplitN(msg, ": ", 2)[0]) || strings.Contains(msg, "\n") {
				t.Errorf("not a line that names a file: %q", msg)
			}
			return
		}
		if g.leaf == nil || len(g.clientCA) == 0 || len(g.config.Certificates) != 1 {
			t.Errorf("%+v", g)
		}
	})
}
