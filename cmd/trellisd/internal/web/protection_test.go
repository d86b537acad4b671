package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"trellis/reactor/tlstest"
)

// The password is "secret", and later one that nobody knows.
const (
	users      = "basic_auth_users:\n  prometheus: $2a$05$0b6/2ipZg8CbPcfPBaVeP.QcyXy7YT357eIxtMWjJ/Tdy1jrxFdAi\n"
	usersLater = "basic_auth_users:\n  prometheus: $2a$05$Wmfa0/yHfYvHzJ0d9vzZpeRjFLUyO7s7dWZlqT1e0BxFQlTTzYFh.\n"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// as makes a request with a name and a password, if there is a name, and returns the
// status.
func as(t *testing.T, c *http.Client, url, user, password string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func TestOnlyWhetherTheServerIsAliveIsPublic(t *testing.T) {
	var ready Readiness
	ready.ReadyUnless(func() error { return nil })
	path := write(t, filepath.Join(t.TempDir(), "web.yml"), users)
	url := start(t, Config{Protection: open(t, path), Ready: &ready, Pprof: true})
	for path, public := range map[string]bool{
		"/healthz": true, "/readyz": true, "/leaderz": true, "/": false, "/metrics": false, "/debug/pprof/": false, "/nosuch": false,
		"//healthz": false, "/healthz/": false, "/HEALTHZ": false, "/metrics?/healthz": false, "/metrics/../healthz": false,
	} {
		status := as(t, http.DefaultClient, url+path, "", "")
		if (status == http.StatusOK) != public || !public && status != http.StatusUnauthorized {
			t.Errorf("%s without a password: %d", path, status)
		}
	}
	if status := as(t, http.DefaultClient, url+"/metrics", "prometheus", "secret"); status != http.StatusOK {
		t.Errorf("with the password: %d", status)
	}
	if status := as(t, http.DefaultClient, url+"/metrics", "prometheus", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d", status)
	}
	res, err := http.Post(url+"/healthz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /healthz: %d", res.StatusCode)
	}
}

func TestANewPasswordCountsFromTheNextRequestOn(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "web.yml"), users)
	url := start(t, Config{Protection: open(t, path)}) + "/metrics"
	if status := as(t, http.DefaultClient, url, "prometheus", "secret"); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	write(t, path, usersLater)
	if status := as(t, http.DefaultClient, url, "prometheus", "secret"); status != http.StatusUnauthorized {
		t.Errorf("with the password of before: %d", status)
	}
}

// certify makes cert.pem and key.pem for a server, and returns what its clients trust.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	a := tlstest.NewAuthority("servers")
	c := a.Issue(tlstest.Name, nil)
	write(t, filepath.Join(dir, "cert.pem"), string(tlstest.CertPEM(c)))
	write(t, filepath.Join(dir, "key.pem"), string(tlstest.KeyPEM(c)))
	return a.Pool
}

func TestTLSAndPasswordsAreForAllVersionsOfHTTP(t *testing.T) {
	dir := t.TempDir()
	pool := certify(t, dir)
	path := write(t, filepath.Join(dir, "web.yml"), "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"+users)
	url := start(t, Config{Protection: open(t, path)})
	if status := as(t, http.DefaultClient, url+"/healthz", "", ""); status != http.StatusBadRequest {
		t.Errorf("without TLS: %d", status)
	}
	url = strings.Replace(url, "http:", "https:", 1)
	for _, http2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
		c := &http.Client{Transport: tr}
		for path, want := range map[string]int{"/healthz": 200, "/metrics": 401} {
			if got := as(t, c, url+path, "", ""); got != want {
				t.Errorf("HTTP/2 %t, %s: %d, want %d", http2, path, got, want)
			}
		}
		if got := as(t, c, url+"/metrics", "prometheus", "secret"); got != 200 {
			t.Errorf("HTTP/2 %t with the password: %d", http2, got)
		}
		tr.CloseIdleConnections()
	}
}

func TestAMistakeInTheFileIsOneLineThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{
		"nonsense: 1\nmore: 2\n", "\t", "", "\n", "# nothing\n", "basic_auth_users: {}\nhttp_server_config: {headers: {X-Nonsense: a}}\n", "basic_auth_users: {a: b}\n",
		"tls_server_config: {cert_file: nosuch, key_file: nosuch}\n", "tls_server_config: {client_ca_file: x}\n",
	} {
		path := write(t, filepath.Join(dir, string(rune('a'+i))), text)
		if _, err := Open(path, slog.New(slog.DiscardHandler)); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "nosuch"), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Open(write(t, filepath.Join(dir, "open"), "{}\n"), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a file that asks for nothing: %v", err)
	}
}

func TestAFileAuthenticatesIfItAsksForPasswordsOrCertificates(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir)
	for i, tt := range []struct {
		text string
		want bool
	}{
		{"{}", false},
		{"basic_auth_users: {}\n", false},
		{"rate_limit: {burst: 1}\n", false},
		{"tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n", false},
		{"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequestClientCert}\n", false},
		{"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequireAnyClientCert}\n", false},
		{"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: VerifyClientCertIfGiven}\n", false},
		{"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequireAndVerifyClientCert}\n", true},
		{users, true},
	} {
		path := write(t, filepath.Join(dir, string(rune('a'+i))), tt.text)
		if ok := open(t, path).Authenticates(); ok != tt.want {
			t.Errorf("%q: %t", tt.text, ok)
		}
	}
}

// open opens a file that is sound.
func open(t *testing.T, path string) *Protection {
	t.Helper()
	p, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// whoami answers with who makes a request.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	name, ok := User(r)
	answer(w, http.StatusOK, fmt.Sprintf("%t %s", ok, name))
})

// asks makes a request to whoami behind a protection, and returns the status and the answer.
func asks(p *Protection, user, password string, tls *tls.ConnectionState) (status int, who string) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.TLS = tls
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	w := httptest.NewRecorder()
	p.protect(whoami).ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// Without users in the file, any name and password pass.
func TestNobodyIsTakenForWhoWasNotChecked(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "web.yml"), "{}\n")
	p := open(t, path)
	if status, who := asks(p, "ann", "x", nil); status != http.StatusOK || who != "false" {
		t.Errorf("nobody was asked for: %d %s", status, who)
	}
	write(t, path, users)
	if status, _ := asks(p, "ann", "x", nil); status != http.StatusUnauthorized {
		t.Errorf("an unknown name: %d", status)
	}
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusOK {
		t.Errorf("a right password: %d", status)
	}
	if status, _ := asks(p, "prometheus", "secre", nil); status != http.StatusUnauthorized {
		t.Errorf("a wrong password after the right one: %d", status)
	}
	if status, who := asks(p, "prometheus", "secret", nil); status != http.StatusOK || who != "true prometheus" {
		t.Errorf("%d %s", status, who)
	}
}

func TestAProtectionMayChangeAndNotVanish(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "web.yml"), users)
	p := open(t, path)
	failed := uint64(0)
	for _, text := range []string{
		"", "\n", "# rewritten\n", "{}\n", "basic_auth_users:\n", "basic_auth_users: {}\n", "basic_auth_users:\n  prometheus: $2a$05$0b6\n",
		"rate_limit: {burst: 1}\n", "nonsense: 1\n", "\t",
	} {
		write(t, path, text)
		for range 2 {
			if status, _ := asks(p, "", "", nil); status != http.StatusUnauthorized {
				t.Errorf("%q: without a password: %d", text, status)
			}
			if status, who := asks(p, "prometheus", "secret", nil); status != http.StatusOK || who != "true prometheus" {
				t.Errorf("%q: with the password: %d %s", text, status, who)
			}
		}
		failed++
		if s := p.Stats(); !s.Failing || s.Failed != failed || s.Loaded != 0 {
			t.Errorf("%q: %+v", text, s)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusOK || !p.Stats().Failing {
		t.Errorf("the file is gone: %d", status)
	}
	write(t, path, usersLater)
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusUnauthorized {
		t.Errorf("another password: %d", status)
	}
	if s := p.Stats(); s.Failing || s.Loaded != 1 {
		t.Errorf("%+v", s)
	}
}

// What a file asks for besides stays too, and so does what was added since the start.
func TestEachProtectionOfItsOwnStays(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir)
	const (
		full  = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: cert.pem, client_allowed_sans: [a.example]"
		pairs = "tls_server_config: {cert_file: cert.pem, key_file: key.pem"
	)
	path := write(t, filepath.Join(dir, "web.yml"), pairs+"}\n")
	p := open(t, path)
	loads := func(text string) {
		t.Helper()
		write(t, path, text)
		if p.now(); p.Stats().Failing {
			t.Errorf("refused: %s", text)
		}
	}
	loads(pairs + ", " + full + "}\n")
	loads(pairs + ", " + full + "}\n" + users)
	for gone, text := range map[string]string{
		"the passwords":     pairs + ", " + full + "}\n",
		"TLS":               users,
		"the certificates":  pairs + ", " + strings.Replace(full, "RequireAndVerify", "Request", 1) + "}\n" + users,
		"the authority":     pairs + ", " + strings.Replace(full, "client_ca_file: cert.pem, ", "", 1) + "}\n" + users,
		"the allowed names": pairs + ", " + strings.Replace(full, ", client_allowed_sans: [a.example]", "", 1) + "}\n" + users,
	} {
		write(t, path, text)
		if s := p.now(); !p.Stats().Failing || s.lacks(kinds{true, true, true, true, true}) != "" || len(s.TLSConfig.ClientAllowedSans) != 1 {
			t.Errorf("without %s: %+v", gone, p.Stats())
		}
	}
	loads(pairs + ", " + strings.Replace(full, "a.example", "b.example", 1) + "}\n" + usersLater)

	// What takes a restart is no protection yet, and may be taken back.
	write(t, path, users)
	p = open(t, path)
	loads(pairs + ", " + full + "}\n" + users)
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusOK {
		t.Errorf("a server without TLS asks for certificates: %d", status)
	}
	loads(users)
}

// Passwords take long to compare, and whoever guesses has many.
func TestGuessesHoldUpNobodyWhosePasswordIsKnown(t *testing.T) {
	p := open(t, write(t, filepath.Join(t.TempDir(), "web.yml"), users))
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	p.comparing.Lock()
	guessed := make(chan int)
	for range maxGuesses {
		go func() {
			status, _ := asks(p, "prometheus", "wrong", nil)
			guessed <- status
		}()
	}
	inTime(t, func() error {
		if p.guesses.TryAcquire(1) {
			p.guesses.Release(1)
			return errors.New("guesses are not compared")
		}
		return nil
	})
	if status, _ := asks(p, "prometheus", "wrong", nil); status != http.StatusTooManyRequests {
		t.Errorf("a guess too many: %d", status)
	}
	if status, _ := asks(p, "prometheus", "secret", nil); status != http.StatusOK {
		t.Errorf("a password that was right before: %d", status)
	}
	p.comparing.Unlock()
	for range maxGuesses {
		if status := <-guessed; status != http.StatusUnauthorized {
			t.Errorf("a guess: %d", status)
		}
	}
}

// newAuthority makes an authority for clients, whose certificate is in a file.
func newAuthority(t *testing.T, file string) *tlstest.Authority {
	t.Helper()
	a := tlstest.NewAuthority("clients")
	write(t, file, string(tlstest.CertPEM(a.Cert)))
	return a
}

// A client with a certificate is served, also when it resumes a session, as long as its name is
// allowed.
func TestCertificatesOfClientsAreAskedForAtEachHandshake(t *testing.T) {
	dir := t.TempDir()
	pool := certify(t, dir)
	a := newAuthority(t, filepath.Join(dir, "ca.pem"))
	const config = "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [%s]}\n"
	path := write(t, filepath.Join(dir, "web.yml"), fmt.Sprintf(config, "bob.example"))
	url := strings.Replace(start(t, Config{Protection: open(t, path)}), "http:", "https:", 1)
	client := func(name string) *tls.Config {
		return &tls.Config{
			RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			Certificates: []tls.Certificate{a.Issue(name, nil)},
		}
	}
	resumed := false
	ask := func(c *tls.Config) error {
		tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		res, err := (&http.Client{Transport: tr}).Get(url + "/metrics")
		if err != nil {
			return err
		}
		resumed = res.TLS.DidResume
		_, err = io.Copy(io.Discard, res.Body)
		return errors.Join(err, res.Body.Close())
	}
	bob, eve := client("bob.example"), client("eve.example")
	if err := ask(eve); err == nil {
		t.Error("a name that is not allowed was let in")
	}
	for want := range 2 {
		if err := ask(bob); err != nil || resumed != (want == 1) {
			t.Errorf("resumed: %t, %v", resumed, err)
		}
	}
	write(t, path, fmt.Sprintf(config, "eve.example"))
	if err := ask(bob); err == nil {
		t.Error("a session was resumed under a name that is not allowed any more")
	}
	if err := ask(client("eve.example")); err != nil {
		t.Errorf("a name that is allowed now: %v", err)
	}
}

// Whoever rewrites a file in place has it empty for a moment, and then half of it.
func TestNobodyGetsInWhileTheFileIsRewritten(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "web.yml"), "# who may ask\n"+users)
	p := open(t, path)
	var rewriting sync.WaitGroup
	rewriting.Go(func() {
		for i := range 300 {
			text := fmt.Sprintf("# who may ask, %d\n%s", i, users)
			f, err := os.Create(path)
			for text := range strings.SplitAfterSeq(text, ":") {
				if err == nil {
					_, err = f.WriteString(text)
				}
			}
			if err = errors.Join(err, f.Close()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	rewritten := make(chan struct{})
	go func() {
		rewriting.Wait()
		close(rewritten)
	}()
	for {
		for _, password := range []string{"", "wrong"} {
			if status, _ := asks(p, "prometheus", password, nil); status != http.StatusUnauthorized {
				t.Fatalf("with the password %q: %d", password, status)
			}
		}
		select {
		case <-rewritten:
			if status, who := asks(p, "prometheus", "secret", nil); status != http.StatusOK || who != "true prometheus" {
				t.Errorf("%d %s", status, who)
			}
			return
		default:
		}
	}
}

// A connection may live longer than what its certificate was good for.
func TestACertificateIsAskedForAtEachRequest(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir)
	ca := filepath.Join(dir, "ca.pem")
	a := newAuthority(t, ca)
	const config = "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert"
	path := write(t, filepath.Join(dir, "web.yml"), config+"}\n")
	p := open(t, path)
	by := func(c tls.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Leaf}, VerifiedChains: [][]*x509.Certificate{{c.Leaf, a.Cert.Leaf}}}
	}
	good := by(a.Issue("bob.example", nil))
	if status, who := asks(p, "ann", "x", good); status != http.StatusOK || who != "true CN=bob.example" {
		t.Errorf("with a name that no password was asked for, besides the certificate: %d %s", status, who)
	}
	if status, _ := asks(p, "", "", new(tls.ConnectionState)); status != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d", status)
	}
	if status, _ := asks(p, "", "", by(a.Issue("bob.example", tlstest.Expired))); status != http.StatusUnauthorized {
		t.Errorf("with one that has expired: %d", status)
	}
	write(t, path, config+", client_allowed_sans: [ann.example]}\n")
	if status, _ := asks(p, "", "", good); status != http.StatusUnauthorized {
		t.Errorf("with a name that is not allowed any more: %d", status)
	}
	write(t, path, config+", client_allowed_sans: [bob.example]}\n")
	if status, _ := asks(p, "", "", good); status != http.StatusOK {
		t.Errorf("with a name that is allowed again: %d", status)
	}
	newAuthority(t, ca)
	if status, _ := asks(p, "", "", good); status != http.StatusUnauthorized {
		t.Errorf("with one of an authority that is gone: %d", status)
	}
}
