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

// Authenticates tells whether a file that has passed Check lets only those through who have
// proved who they are: by a name and a password, or by a certificate.
func Authenticates(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	var asks struct {
		Users map[string]string `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(text, &asks); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	return len(asks.Users) > 0 || asks.TLS.ClientAuth == "RequireAndVerifyClientCert", nil
}

// User is who makes a request, by the name that has come with a password, or that is in a
// certificate. It returns false if the file does not ask for either, as it is now: then
// nobody has checked what the request says.
func User(file string, r *http.Request) (name string, ok bool) {
	if ok, err := Authenticates(file); err != nil || !ok {
		return "", false
	}
	if name, _, ok := r.BasicAuth(); ok {
		return name, true
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.PeerCertificates[0].Subject.String(), true
	}
	return "", false
}

// protectedListener lets what is public past the protection, for which the toolkit has no
// means: it puts a handler before the server's own, and then begins to accept. At that
// moment nobody has a request yet.
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
// that who looks whether the server is alive needs to know none.
type publicFirst struct{ public, protected http.Handler }

func (h publicFirst) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		h.public.ServeHTTP(w, r)
	default:
		h.protected.ServeHTTP(w, r)
	}
}
