package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"trellis/cmd/trellisd/internal/reload"
)

// Protection is a file that says how requests are protected, in the format of Prometheus's
// exporters. It is read for each request and each connection, and each goes by one state of it.
// A state that is no good, or that lacks a protection that the one before has, changes nothing.
// Open makes one. Any goroutine may call its methods.
type Protection struct {
	file     string
	outcomes reload.Outcomes
	limiter  *rate.Limiter // nil for none; as the file said first
	http2    bool          // likewise
	plain    bool          // the file asked for no TLS first

	comparing sync.Mutex          // held while a password is compared, which costs processor time
	guesses   *semaphore.Weighted // held by each request whose password is compared

	mu      sync.Mutex
	lastSum [sha256.Size]byte // of what was read last; guarded by mu
	state   *state            // that is in force; guarded by mu
	err     error             // why the last change could not be loaded; nil if it was; guarded by mu
}

// state is what a file said at one time.
type state struct {
	toolkit.Config
	kinds
	tls *tls.Config // nil without TLS

	mu    sync.Mutex
	right map[string][sha256.Size]byte // by name, sums of passwords that were found right; guarded by mu
}

// kinds are what a file protects by.
type kinds struct{ tls, password, certificate, authority, names bool }

// lacks names what k has and later has not, "" if there is nothing.
func (k kinds) lacks(later kinds) string {
	for _, p := range []struct {
		had, has bool
		what     string
	}{
		{k.tls, later.tls, "tls_server_config"},
		{k.password, later.password, "basic_auth_users"},
		{k.certificate, later.certificate, "client_auth_type: RequireAndVerifyClientCert"},
		{k.authority, later.authority, "client_ca_file"},
		{k.names, later.names, "client_allowed_sans"},
	} {
		if p.had && !p.has {
			return p.what
		}
	}
	return ""
}

// Open reads a file for the first time. The error is one line.
func Open(file string, log *slog.Logger) (*Protection, error) {
	p := &Protection{
		file: file, guesses: semaphore.NewWeighted(maxGuesses), outcomes: reload.Outcomes{What: "web-config-file", Log: log},
	}
	text, err := os.ReadFile(file)
	if err == nil {
		p.lastSum = p.sum(text)
		p.state, err = p.load(text)
	}
	if err != nil {
		return nil, p.oneLine(err)
	}
	p.http2, p.plain = p.state.HTTPConfig.HTTP2, p.state.tls == nil
	if l := p.state.RateLimiterConfig; l.Interval != 0 {
		p.limiter = rate.NewLimiter(rate.Every(l.Interval), l.Burst)
	}
	return p, nil
}

// oneLine is an error about the file in one line, which names it.
func (p *Protection) oneLine(err error) error {
	line := strings.Join(strings.Fields(err.Error()), " ")
	if !strings.Contains(line, p.file) {
		line = p.file + ": " + line
	}
	return errors.New(line)
}

// parse reads what is in a file. What it lets pass, load does not.
func (p *Protection) parse(text []byte) (*state, error) {
	s := &state{right: make(map[string][sha256.Size]byte)}
	s.TLSConfig.MinVersion, s.TLSConfig.MaxVersion, s.HTTPConfig.HTTP2 = tls.VersionTLS12, tls.VersionTLS13, true
	if err := yaml.Unmarshal(text, &s.Config); err != nil {
		return s, err
	}
	s.TLSConfig.SetDirectory(filepath.Dir(p.file))
	return s, nil
}

// load makes a state of what was read from the file.
func (p *Protection) load(text []byte) (s *state, err error) {
	var document any
	if err := yaml.Unmarshal(text, &document); err == nil && document == nil {
		return nil, errors.New("the file is empty; write what HTTP is to be protected by, or {} for nothing")
	}
	// The toolkit knows what may be in such a file, and reads it itself.
	if err := toolkit.Validate(p.file); err != nil {
		return nil, err
	}
	if again, err := os.ReadFile(p.file); err != nil || !bytes.Equal(again, text) {
		return nil, cmp.Or(err, errBeingWritten)
	}
	if s, err = p.parse(text); err != nil {
		return nil, err
	}
	t := &s.TLSConfig
	s.kinds = kinds{
		tls: t.IsEnabled(), password: len(s.Users) > 0, certificate: t.ClientAuth == "RequireAndVerifyClientCert",
		authority: t.ClientCAs != "" || t.ClientCAsText != "", names: t.ClientAllowedSans != nil,
	}
	if p.plain {
		s.kinds = kinds{password: s.kinds.password} // until a restart there is no TLS
	}
	if s.kinds.tls {
		s.tls, err = s.newTLS(p.http2 || p.state == nil && s.HTTPConfig.HTTP2)
	}
	return s, err
}

var errBeingWritten = errors.New("the file is being written")

// newTLS is what connections are accepted with. Unlike that of the toolkit, it has the certificate
// that was there when the state was loaded, and asks for the allowed names in resumed sessions too.
func (s *state) newTLS(http2 bool) (*tls.Config, error) {
	cfg, err := toolkit.ConfigToTLSConfig(&s.TLSConfig)
	if err != nil {
		return nil, err
	}
	cert, err := cfg.GetCertificate(nil)
	if err != nil {
		return nil, err
	}
	cfg.Certificates, cfg.GetCertificate = []tls.Certificate{*cert}, nil
	if cfg.VerifyPeerCertificate != nil {
		cfg.VerifyPeerCertificate = nil
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			return s.TLSConfig.VerifyPeerCertificate([][]byte{cs.PeerCertificates[0].Raw}, nil)
		}
	}
	cfg.NextProtos = []string{"http/1.1"}
	if http2 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return cfg, nil
}

// sum tells one state of the file, and of the files that it names, from another.
func (p *Protection) sum(text []byte) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q", text)
	if s, err := p.parse(text); err == nil {
		for _, file := range []string{s.TLSConfig.TLSCertPath, s.TLSConfig.TLSKeyPath, s.TLSConfig.ClientCAs} {
			if file != "" {
				b, err := os.ReadFile(file)
				fmt.Fprintf(h, "%q%v", b, err)
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Paths is the name of the file.
func (p *Protection) Paths() []string { return []string{p.file} }

// Reload loads the file as it is now, whether it has changed or not.
func (p *Protection) Reload() error {
	p.mu.Lock()
	p.lastSum = [sha256.Size]byte{}
	p.mu.Unlock()
	p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// now returns the state in force, after a look at the file.
func (p *Protection) now() *state {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := os.ReadFile(p.file)
	if err != nil {
		text = []byte(err.Error())
	}
	sum := p.sum(text)
	if sum == p.lastSum {
		return p.state
	}
	var next *state
	if err == nil {
		next, err = p.load(text)
	}
	if errors.Is(err, errBeingWritten) {
		return p.state // the next request looks again
	}
	p.lastSum = sum
	if err == nil {
		if gone := p.state.lacks(next.kinds); gone != "" {
			err = fmt.Errorf("%s is gone; restart the server to serve without", gone)
		}
	}
	if err != nil {
		err = p.oneLine(err)
	} else {
		p.state = next
	}
	p.outcomes.Add(err)
	p.err = err
	return p.state
}

// Stats are what has become of changes of the file, as far as a request has come since.
func (p *Protection) Stats() reload.Stats { return p.outcomes.Stats() }

// Authenticates reports whether only those are let through who have proved who they are: by a
// name and a password, or by a certificate. If so, that does not change.
func (p *Protection) Authenticates() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.password || p.state.certificate
}

// Names are those that have a password, nil if none is asked for.
func (p *Protection) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.state.Users))
}

// secure makes an http.Server serve by TLS, if the file says so, and reports whether it does.
func (p *Protection) secure(server *http.Server) bool {
	if p.now().tls == nil {
		return false
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(p.http2)
	server.TLSConfig = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
		error,
	) {
		return p.now().tls, nil
	}}
	return true
}
