package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	url := start(t, Config{File: path, Ready: &ready, Pprof: true})
	for path, public := range map[string]bool{
		"/healthz": true, "/readyz": true, "/": false, "/metrics": false, "/debug/pprof/": false, "/nosuch": false,
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
	url := start(t, Config{File: path}) + "/metrics"
	if status := as(t, http.DefaultClient, url, "prometheus", "secret"); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	write(t, path, usersLater)
	if status := as(t, http.DefaultClient, url, "prometheus", "secret"); status != http.StatusUnauthorized {
		t.Errorf("with the password of before: %d", status)
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns who trusts it.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(dir, "cert.pem"), string(certPEM))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}

func TestTLSAndPasswordsAreForAllVersionsOfHTTP(t *testing.T) {
	dir := t.TempDir()
	pool := selfSigned(t, dir)
	path := write(t, filepath.Join(dir, "web.yml"), "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"+users)
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	url := start(t, Config{File: path})
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
		"nonsense: 1\nmore: 2\n", "\t", "basic_auth_users: {a: b}\n",
		"tls_server_config: {cert_file: nosuch, key_file: nosuch}\n", "tls_server_config: {client_ca_file: x}\n",
	} {
		path := write(t, filepath.Join(dir, string(rune('a'+i))), text)
		if err := Check(path); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := Check(filepath.Join(dir, "nosuch")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := Check(write(t, filepath.Join(dir, "empty"), "")); err != nil {
		t.Errorf("a file that asks for nothing: %v", errors.Unwrap(err))
	}
}

func TestAFileAuthenticatesIfItAsksForPasswordsOrCertificates(t *testing.T) {
	dir := t.TempDir()
	for i, tt := range []struct {
		text string
		want bool
	}{
		{"", false},
		{"basic_auth_users: {}\n", false},
		{"rate_limit: {burst: 1}\n", false},
		{"tls_server_config: {cert_file: a, key_file: b}\n", false},
		{"tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}\n", false},
		{"tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAnyClientCert}\n", false},
		{"tls_server_config: {cert_file: a, key_file: b, client_auth_type: VerifyClientCertIfGiven}\n", false},
		{"tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}\n", true},
		{users, true},
	} {
		path := write(t, filepath.Join(dir, string(rune('a'+i))), tt.text)
		if ok, err := Authenticates(path); ok != tt.want || err != nil {
			t.Errorf("%q: %t, %v", tt.text, ok, err)
		}
	}
	if ok, err := Authenticates(filepath.Join(dir, "nosuch")); ok || err == nil {
		t.Errorf("a file that is not there: %t, %v", ok, err)
	}
}

// TestNobodyIsTakenForWhoWasNotChecked: without users in the file, the toolkit lets any name
// and password pass.
func TestNobodyIsTakenForWhoWasNotChecked(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "web.yml"), users)
	r, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := User(path, r); ok {
		t.Errorf("a request that says nothing is %q's", name)
	}
	r.SetBasicAuth("ann", "x")
	if name, ok := User(path, r); !ok || name != "ann" {
		t.Errorf("%q, %t", name, ok)
	}
	write(t, path, "")
	if name, ok := User(path, r); ok {
		t.Errorf("without users in the file it is %q", name)
	}
	write(t, path, "tls_server_config: {client_auth_type: RequireAndVerifyClientCert}\n")
	r.Header.Del("Authorization")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "bob"}}}}
	if name, ok := User(path, r); ok {
		t.Errorf("a certificate that was not verified is %q's", name)
	}
	r.TLS.VerifiedChains = [][]*x509.Certificate{r.TLS.PeerCertificates}
	r.SetBasicAuth("ann", "x")
	if name, ok := User(path, r); !ok || name != "CN=bob" {
		t.Errorf("with a name that no password was asked for, besides the certificate: %q, %t", name, ok)
	}
	r.Header.Del("Authorization")
	if name, ok := User(path, r); !ok || name != "CN=bob" {
		t.Errorf("%q, %t", name, ok)
	}
}
