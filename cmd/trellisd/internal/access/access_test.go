package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/reload"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor"
)

func hashOf(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

// newStore makes a store of a file's text.
func newStore(t testing.TB, text string) (*Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := New("f", slog.New(slog.NewTextHandler(&log, nil)))
	if _, err := s.Load([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return s, &log
}

func (s *Store) token(token string) *engine.Grant {
	return s.Authenticate(&reactor.Peer{Addr: "192.0.2.1:1", UID: -1}, []byte(token))
}

func TestEachMistakeInAFileIsReportedWithItsLine(t *testing.T) {
	h := hashOf("x")
	for _, tt := range []struct{ text, want string }{
		{"", "f: it names no client, so that nobody could do anything"},
		{"# nothing\n\n", "f: it names no client, so that nobody could do anything"},
		{"a " + h + " put\n", "f:1: 3 fields; a line has a name, a credential, rights and tubes, and may go on with account and a name"},
		{"#\n\na " + h + " put a b", "f:3: 5 fields; a line has a name, a credential, rights and tubes, and may go on with account and a name"},
		{"a sha256:12 put *", "f:1: credential sha256:12: not 64 hexadecimal digits; trellis token new prints the right ones"},
		{"a " + h[:70] + "x put *", "f:1: credential " + h[:70] + "x: not 64 hexadecimal digits; trellis token new prints the right ones"},
		{"a sha512:12 put *", "f:1: unknown credential sha512:12; give sha256:HEX, uid:NUMBER, or cert: with DNS:, URI:, EMAIL:, IP: or CN: and a name"},
		{"a cert:ci put *", "f:1: unknown credential cert:ci; give sha256:HEX, uid:NUMBER, or cert: with DNS:, URI:, EMAIL:, IP: or CN: and a name"},
		{"a cert:DNS: put *", "f:1: credential cert:DNS:: the name is missing"},
		{"a cert:IP:x put *", "f:1: credential cert:IP:x: not an IP address"},
		{"a uid:root put *", "f:1: credential uid:root: not the number of a user; id -u NAME prints it"},
		{"a uid:-1 put *", "f:1: credential uid:-1: not the number of a user; id -u NAME prints it"},
		{"a uid:4294967295 put *", "f:1: credential uid:4294967295: not the number of a user; id -u NAME prints it"},
		{"a " + h + " ADMIN *", `f:1: unknown right "ADMIN"; give put, work, read, all or admin, with commas between several`},
		{"a " + h + " puts *", `f:1: unknown right "puts"; give put, work, read, all or admin, with commas between several`},
		{"a " + h + " put,,work *", `f:1: unknown right ""; give put, work, read, all or admin, with commas between several`},
		{"a " + h + " put a*b", `f:1: no tube can match "a*b": a * stands at the end, and for any name that begins so`},
		{"a " + h + " put a,**", `f:1: no tube can match "**": a * stands at the end, and for any name that begins so`},
		{"a " + h + " put a,,b", `f:1: no tube can match "": names have`},
		{"a " + h + " put -a*", `f:1: no tube can match "-a*": names have`},
		{"a " + h + " put a@b", `f:1: no tube can match "a@b": names have`},
		{"a " + h + " put " + strings.Repeat("x", 201), `f:1: no tube can match "` + strings.Repeat("x", 201) + `": names have`},
		{"a " + h + " put auth/*", `f:1: no tube can match "auth/*": names that begin with auth/ are for tokens`},
		{"a " + h + " put a\nb " + strings.ToUpper(h[7:]) + " put a", "f:2: unknown credential"},
		{"a " + h + " put a\nb sha256:" + strings.ToUpper(h[7:]) + " put b", "f:2: the credential is that of line 1; give each client one of its own"},
		{"a uid:7 put a\n\nb uid:07 put b", "f:3: the credential is that of line 1; give each client one of its own"},
		{"a cert:DNS:A.example put a\nb cert:DNS:a.Example put b", "f:2: the credential is that of line 1; give each client one of its own"},
		{"a " + h + " put \xff", `f:1: byte 0xff in "\xff"; only printable ASCII is allowed`},
		{"a\x00 " + h + " put a", `f:1: byte 0x00 in "a\x00"; only printable ASCII is allowed`},
		{"a\n\nb " + h + " put b\nc", "f:1: 1 fields; a line has a name, a credential, rights and tubes, and may go on with account and a name; mistakes that follow: 1"},
	} {
		_, err := New("f", slog.New(slog.DiscardHandler)).Load([]byte(tt.text))
		var mistake *FileError
		if !errors.As(err, &mistake) || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestAFileIsReadWithCommentsTabsAndAnyLineEnd(t *testing.T) {
	p := parse("f", []byte("# name\n\n \t\r\na\t"+hashOf("x")+"  put,work\ta,b/* # f\u00fcr das A-Team\r\nb uid:0 all,admin b"))
	if len(p.mistakes) > 0 || len(p.lines) != 2 {
		t.Fatalf("%v, %v", p.lines, p.mistakes)
	}
	a, b := p.lines[0], p.lines[1]
	if a.name != "a" || a.rights != engine.RightPut|engine.RightWork || strings.Join(a.tubes, " ") != "a b/*" {
		t.Errorf("%+v", a)
	}
	if b.name != "b" || b.credential != (credential{byUser, "0"}) || b.rights != engine.RightAll|engine.RightAdmin || strings.Join(b.tubes, " ") != "b" {
		t.Errorf("%+v", b)
	}
}

func TestAllRightsHaveThatToTheServerOnlyWhereTheyAreToAllTubes(t *testing.T) {
	for line, admin := range map[string]bool{
		"all *": true, "put,all a/*,*": true, "admin a": true, "all,admin a/*": true,
		"all a": false, "all a*,b*": false, "put,work,read *": false,
	} {
		p := parse("f", []byte("x uid:1 "+line))
		if len(p.mistakes) > 0 || (p.lines[0].rights&engine.RightAdmin != 0) != admin {
			t.Errorf("%s: %+v, %v", line, p.lines, p.mistakes)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("a " + hashOf("x") + " put,work a,b/*\n# c\nb cert:DNS:x all *\nc uid:1 read a\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		p := parse("f", content)
		for _, err := range p.mistakes {
			var mistake *FileError
			if !errors.As(err, &mistake) || strings.Contains(err.Error(), "\n") || mistake.Line < 1 || mistake.Line > bytes.Count(content, []byte("\n"))+1 {
				t.Errorf("%q: %v", content, err)
			}
		}
		seen := map[credential]bool{}
		for _, l := range p.lines {
			if l.name == "" || l.rights == 0 || l.rights&^(engine.RightAll|engine.RightAdmin) != 0 || len(l.tubes) == 0 || seen[l.credential] {
				t.Errorf("%q: %+v", content, l)
			}
			seen[l.credential] = true
			for _, tube := range l.tubes {
				if name := strings.TrimSuffix(tube, "*"); tube != "*" && !codec.ValidTubeName([]byte(name)) {
					t.Errorf("%q: a tube %q", content, tube)
				}
			}
		}
	})
}

func TestATokenIsKnownByItsHash(t *testing.T) {
	s, _ := newStore(t, "a "+hashOf("one")+" put *\nb "+hashOf("two")+" work *\n")
	a, b := s.token("one"), s.token("two")
	if a == nil || b == nil || a == b {
		t.Errorf("%v, %v", a, b)
	}
	for _, wrong := range []string{"", "on", "one ", "One", hashOf("one"), hashOf("one")[7:]} {
		if s.token(wrong) != nil {
			t.Errorf("%q is let in", wrong)
		}
	}
}

// state is that of a connection with a certificate.
func state(verified bool, names x509.Certificate) *tls.ConnectionState {
	s := &tls.ConnectionState{Version: tls.VersionTLS13, PeerCertificates: []*x509.Certificate{&names}}
	if verified {
		s.VerifiedChains = [][]*x509.Certificate{{&names, {DNSNames: []string{"the ca"}}}}
	}
	return s
}

func TestAClientIsKnownByItsUserOrItsVerifiedCertificate(t *testing.T) {
	uri, err := url.Parse("spiffe://example.org/ci")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newStore(t, `
user  uid:1000                          put *
uri   cert:URI:spiffe://example.org/ci  put *
dns   cert:DNS:ci.Example.org           put *
mail  cert:EMAIL:ci@example.org         put *
ip    cert:IP:192.0.2.7                 put *
cn    cert:CN:ci                        put *
`)
	names := map[*engine.Grant]string{nil: ""}
	for _, id := range s.roll.Load().all {
		names[id.grant] = id.name
	}
	all := x509.Certificate{
		DNSNames: []string{"other.example.org", "CI.example.org"}, URIs: []*url.URL{uri},
		EmailAddresses: []string{"ci@example.org"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 7)}, Subject: pkix.Name{CommonName: "ci"},
	}
	for _, tt := range []struct {
		want string
		peer reactor.Peer
	}{
		{"", reactor.Peer{UID: -1}},
		{"user", reactor.Peer{UID: 1000}},
		{"", reactor.Peer{UID: 1001}},
		{"", reactor.Peer{UID: 0}},
		{"dns", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{DNSNames: all.DNSNames})}},
		{"uri", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{URIs: all.URIs})}},
		{"mail", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{EmailAddresses: all.EmailAddresses})}},
		{"ip", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{IPAddresses: all.IPAddresses})}},
		{"cn", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{Subject: all.Subject})}},
		{"uri", reactor.Peer{UID: -1, TLS: state(true, all)}}, // the first line counts
		{"", reactor.Peer{UID: -1, TLS: state(false, all)}},
		{"", reactor.Peer{UID: -1, TLS: &tls.ConnectionState{}}},
		{"", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{DNSNames: []string{"ci", "*.example.org", "the ca"}})}},
		{"", reactor.Peer{UID: -1, TLS: state(true, x509.Certificate{Subject: pkix.Name{CommonName: "ci.example.org"}})}},
	} {
		if got := names[s.Identify(&tt.peer)]; got != tt.want {
			t.Errorf("%+v: known as %q, want %q", tt.peer, got, tt.want)
		}
	}
}

func TestALineThatStaysAsItWasKeepsItsGrant(t *testing.T) {
	one, two, three := hashOf("one"), hashOf("two"), hashOf("three")
	s, _ := newStore(t, "a "+one+" put a\nb "+two+" put,work b,c/*\nu uid:1 all *\n")
	before := map[string]*engine.Grant{"one": s.token("one"), "two": s.token("two"), "u": s.Identify(&reactor.Peer{UID: 1})}
	load := func(text string, kept ...string) {
		t.Helper()
		gone, err := s.Load([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, g := range before {
			if want := !strings.Contains(strings.Join(kept, " "), name); gone(g) != want {
				t.Errorf("%q: %s is gone: %t, want %t", text, name, !want, want)
			}
		}
	}
	load("# moved\nu uid:1 all *\n\nb "+two+" work,put b,c/*\na "+one+" put a\nz "+three+" all *", "one", "two", "u")
	if s.token("one") != before["one"] || s.token("three") == nil {
		t.Error("the grants are others")
	}
	load("a "+one+" put a\n", "one")
	if s.token("two") != nil || s.Identify(&reactor.Peer{UID: 1}) != nil {
		t.Error("what is gone is let in")
	}
	load("a " + one + " put b\n") // other tubes
	if g := s.token("one"); g == nil || g == before["one"] {
		t.Error("the new grant is not in force")
	}
}

func TestWhatIsGoneIsRevokedThoughOtherLinesHaveMistakes(t *testing.T) {
	one, two, three, four := hashOf("one"), hashOf("two"), hashOf("three"), hashOf("four")
	s, _ := newStore(t, "a "+one+" put a\nb "+two+" put b\nc "+three+" all *\n")
	before := []*engine.Grant{s.token("one"), s.token("two"), s.token("three")}
	gone, err := s.Load([]byte("oops\nc " + three + " all a*b\na " + one + " put a\nx " + one + " all *\nd " + four + " put d\n"))
	var partial *reload.PartialError
	if !errors.As(err, &partial) || len(partial.Mistakes) != 3 {
		t.Fatalf("mistakes: %v", err)
	}
	for i, want := range []string{"f:1: 1 fields", `f:2: no tube can match "a*b"`, "f:4: the credential is that of line 3"} {
		if !strings.HasPrefix(partial.Mistakes[i].Error(), want) {
			t.Errorf("%v, want %s", partial.Mistakes[i], want)
		}
	}
	if gone(before[0]) || !gone(before[1]) || !gone(before[2]) {
		t.Error("it is not the lines that have gone, or have a mistake now, that are revoked")
	}
	if s.token("one") != before[0] || s.token("two") != nil || s.token("three") != nil || s.token("four") == nil {
		t.Error("it is not the lines without a mistake that are in force")
	}
}

func TestAnEmptyFileAdmitsNobody(t *testing.T) {
	for _, text := range []string{"", "# nobody\n\n"} {
		s, _ := newStore(t, "a "+hashOf("one")+" put a\nu uid:1 all *\n")
		token, user := s.token("one"), s.Identify(&reactor.Peer{UID: 1})
		gone, err := s.Load([]byte(text))
		if err != nil || !gone(token) || !gone(user) || s.token("one") != nil || s.Identify(&reactor.Peer{UID: 1}) != nil {
			t.Errorf("%q: %v, or somebody is still let in", text, err)
		}
		if gone, err = s.Load([]byte("a " + hashOf("one") + " put a\n")); err != nil || gone(s.token("one")) {
			t.Errorf("%q: nobody is let in again: %v", text, err)
		}
	}
}

func TestEverythingIsCountedAndLoggedNowAndThen(t *testing.T) {
	s, log := newStore(t, "anna "+hashOf("one")+" put a\nbert cert:DNS:b all *\n")
	peer := &reactor.Peer{Addr: "192.0.2.1:7", UID: -1}
	for range 3 {
		s.token("one")
		s.Identify(&reactor.Peer{Addr: "192.0.2.2:7", UID: -1, TLS: state(true, x509.Certificate{DNSNames: []string{"b"}})})
		s.token("secret-and-wrong")
		s.Refused(peer, reactor.RefusedUnauthenticated)
		s.Refused(peer, reactor.RefusedSilent)
	}
	if got, want := s.Stats(), (Stats{Authenticated: 6, BadToken: 3, NoToken: 3, Silent: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, want := range []string{
		`level=INFO msg="client authenticated" peer=192.0.2.1:1 client=anna by=sha256 unreported=0`,
		`level=INFO msg="client authenticated" peer=192.0.2.2:7 tls="TLS 1.3" san=DNS:b client=bert by=cert:DNS unreported=0`,
		`level=WARN msg="client refused" peer=192.0.2.1:1 reason="wrong token" unreported=0`,
		`level=WARN msg="client refused" peer=192.0.2.1:7 reason="a command before a token" unreported=0`,
		`level=WARN msg="client refused" peer=192.0.2.1:7 reason="no token in time" unreported=0`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not once: %s", want)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 5 || strings.Contains(log.String(), "secret") {
		t.Errorf("logged:\n%s", log)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "c %s put a\n", hashOf(fmt.Sprint(i)))
	}
	s, _ := newStore(b, text.String())
	token := []byte("9999")
	r := s.roll.Load()
	b.ReportAllocs()
	for b.Loop() {
		if r.byToken(token) == nil {
			b.Fatal("not known")
		}
	}
}
