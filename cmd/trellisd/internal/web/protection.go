package web

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	toolkit "github.com/prometheus/exporter-toolkit/web"
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
