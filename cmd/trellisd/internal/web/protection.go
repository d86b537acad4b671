package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
)

// Check checks a file for Config.File and what it names. The error is one line.
func Check(file string) error {
	err := toolkit.Validate(file)
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if !strings.Contains(text, file) {
		text = file + ": " + text
	}
	return errors.New(text)
}

// proofs are what a file demands of those who make requests, to know who they are.
type proofs struct{ password, certificate bool }

func (p proofs) any() bool { return p.password || p.certificate }

func proofsOf(file string) (p proofs, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	var asks struct {
		Users map[string]string `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(text, &asks); err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	return proofs{password: len(asks.Users) > 0, certificate: asks.TLS.ClientAuth == "RequireAndVerifyClientCert"}, nil
}

// Authenticates tells whether a file that has passed Check lets only those through who have
// proved who they are: by a name and a password, or by a certificate.
func Authenticates(file string) (bool, error) {
	p, err := proofsOf(file)
	return p.any(), err
}

// User is who makes a request: the name that has come with a password, or else the subject
// of the certificate. A name counts only while the file asks for passwords, and a
// certificate only while it asks for these: otherwise nobody has checked what the request
// says. It returns false if neither counts.
func User(file string, r *http.Request) (name string, ok bool) {
	p, err := proofsOf(file)
	if err != nil {
		return "", false
	}
	if name, _, ok := r.BasicAuth(); ok && p.password {
		return name, true
	}
	if p.certificate && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.PeerCertificates[0].Subject.String(), true
	}
	return "", false
}

// protectedListener lets requests for what is public past the protection, for which the
// toolkit has no option. The toolkit puts its handler before the server's own and then
// accepts; the first Accept puts publicFirst before both, while there is no request yet.
type protectedListener struct {
	net.Listener
	server *Server
	once   sync.Once
}

func (l *protectedListener) Accept() (net.Conn, error) {
	l.once.Do(func() {
		s := l.server
		s.http.Handler = publicFirst{public: s.public, protected: s.http.Handler}
	})
	return l.Listener.Accept()
}

// publicFirst asks for a name and a password only where something is to be protected, so
// that a health check needs none.
type publicFirst struct{ public, protected http.Handler }

func (h publicFirst) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		h.public.ServeHTTP(w, r)
	default:
		h.protected.ServeHTTP(w, r)
	}
}
