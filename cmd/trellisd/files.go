package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"

	"trellis/cmd/trellisd/internal/certs"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/reload"
	"trellis/cmd/trellisd/internal/web"
	"trellis/reactor"
)

// certificates are what the sockets for TLS need.
type certificates struct {
	*certs.Store
	files  *reload.Files
	server atomic.Pointer[reactor.Server] // that serves clients, or did last; nil before
}

// verifyInterval is how often the certificates of connected clients are verified again: they expire.
const verifyInterval = time.Minute

// load puts what is in the files in force, and ends the connections of clients whose certificates
// are not accepted any more.
func (c *certificates) load(contents [][]byte) error {
	if err := c.Load(contents); err != nil {
		return err
	}
	c.verify()
	return nil
}

// verify ends the connections of clients whose certificates are not accepted any more.
func (c *certificates) verify() {
	if srv := c.server.Load(); srv != nil {
		srv.Reverify(c.Rejected)
	}
}

// loadCerts loads what the sockets for TLS need, nil if there are none. It is an error
// if the command line and the sockets do not agree about TLS: clients that should speak it
// would be served without.
func loadCerts(opt *options.Options, s *sockets, log *slog.Logger) (*certificates, error) {
	switch {
	case opt.TLS.Cert == "" && len(s.tls) == 0:
		return nil, nil
	case opt.TLS.Cert == "":
		return nil, errors.New("an inherited socket is named tls, and there is no certificate; give --tls-cert and --tls-key")
	case len(s.tls) == 0:
		return nil, errors.New("--tls-cert without a socket for TLS; " +
			"give --tls-listen, or FileDescriptorName=tls in the socket unit")
	}
	return loadCertFiles(opt, log)
}

// loadCertFiles loads what the command line names for TLS, which may be nothing.
func loadCertFiles(opt *options.Options, log *slog.Logger) (*certificates, error) {
	if opt.TLS.Cert == "" {
		return nil, nil
	}
	names := certs.Files{Cert: opt.TLS.Cert, Key: opt.TLS.Key, ClientCA: opt.TLS.ClientCA}
	policy := certs.Policy{Optional: opt.TLS.Optional, MinVersion: opt.TLS.MinVersion}
	c := &certificates{Store: certs.New(names, policy, log)}
	var err error
	c.files, err = reload.Load("certificates", c.Paths(), c.load, log)
	return c, err
}

// stats are for the metrics.
func (c *certificates) stats() (s metrics.Certificates) {
	s.Expires, s.ClientCAExpires = c.Expiry()
	s.Reload = c.files.Stats()
	return s
}

// loadFiles loads the files that the command line names and that may be loaded again, for the clients'
// sockets s and for mon. They are read as the user of -u: what that user cannot
// read fails now, and not when it changes.
func loadFiles(
	opt *options.Options, s *sockets, mon *monitor, log *slog.Logger,
) (certs *certificates, acc *accessControl, err error) {
	if certs, err = loadCerts(opt, s, log); err != nil {
		return nil, nil, exitWith(exitUsage, err)
	}
	if acc, err = openAccess(opt, s.plain, mon.audit.Logger(), log); err != nil {
		return nil, nil, err
	}
	s.warnOpen(opt, log)
	mon.access, mon.sockets = acc, s.plain
	if certs != nil {
		mon.certificates = certs.stats
	}
	return certs, acc, mon.protect(opt, log)
}

// reloads has files loaded again: when they change, at a signal, and when a client asks for it.
type reloads struct {
	certs *certificates   // those of clients are verified again from time to time; nil for none
	files []*reload.Files // that are looked at
	all   []reloadable    // these, and what protects HTTP, which looks at its file by itself
	sigs  *signals
	log   *slog.Logger

	mu sync.Mutex // held by load, so that systemd is told of one end for each beginning
}

// reloadable is what is loaded from files.
type reloadable interface {
	Stats() reload.Stats
	Paths() []string
	Reload() error // which is logged
}

// newReloads is of what may be nil, each of them.
func newReloads(c *certificates, a *accessControl, p *web.Protection, sigs *signals, log *slog.Logger) *reloads {
	r := &reloads{certs: c, sigs: sigs, log: log}
	if c != nil {
		r.files = append(r.files, c.files)
	}
	if a != nil {
		r.files = append(r.files, a.file)
	}
	for _, f := range r.files {
		r.all = append(r.all, f)
	}
	if p != nil {
		r.all = append(r.all, p)
	}
	return r
}

// watch looks for changes and signals, and verifies the certificates of clients again from time to time,
// until stop is called.
func (r *reloads) watch() (stop func()) {
	stopLooking := reload.Watch(r.files...)
	done, ended := make(chan struct{}), make(chan struct{})
	verify := time.NewTicker(verifyInterval)
	go func() {
		defer close(ended)
		defer verify.Stop()
		for {
			select {
			case <-r.sigs.reload:
				r.load()
			case <-verify.C:
				if r.certs != nil {
					r.certs.verify()
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		stopLooking()
	}
}

// answer is engine.Config's Reload.
func (r *reloads) answer(answer func(entries []byte)) {
	go func() { answer(r.load()) }()
}

// load loads all files again, and returns what came of it as entries of a YAML list. systemd is told
// of the beginning and the end.
func (r *reloads) load() (entries []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("loading files again", "of", len(r.all))
	serving := r.sigs.serving.Load() // before, systemd waits for the end of the start
	if serving {
		notify(daemon.SdNotifyReloading, r.log)
	}
	for _, f := range r.all {
		entries = fmt.Appendf(entries, "- name: %s\n  files: %s\n", f.Stats().What, scalar(strings.Join(f.Paths(), " ")))
		if err := f.Reload(); err != nil {
			entries = fmt.Appendf(entries, "  result: failed\n  error: %s\n", scalar(err.Error()))
		} else {
			entries = append(entries, "  result: loaded\n"...)
		}
	}
	if serving {
		notify(daemon.SdNotifyReady, r.log)
	}
	return entries
}

// scalar is a text for people as a double-quoted scalar of YAML, in which a client has nothing to
// unescape.
func scalar(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		switch {
		case r == '"' || r == '\\':
			return '\''
		case !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, s) + `"`
}

// serves notes which server has the connections that what is loaded again may end. Both may be nil.
func serves(c *certificates, a *accessControl, srv *reactor.Server) {
	if c != nil {
		c.server.Store(srv)
	}
	if a != nil {
		a.server.Store(srv)
	}
}
