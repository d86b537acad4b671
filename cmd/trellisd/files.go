package main

import (
	"errors"
	"log/slog"

	"trellis/cmd/trellisd/internal/certs"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/reload"
)

// certificates are what the sockets for TLS need.
type certificates struct {
	*certs.Store
	files *reload.Files
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
		return nil, errors.New("--tls-cert without a socket for TLS; give --tls-listen, or FileDescriptorName=tls in the socket unit")
	}
	names := certs.Files{Cert: opt.TLS.Cert, Key: opt.TLS.Key, ClientCA: opt.TLS.ClientCA}
	store := certs.New(names, certs.Policy{Optional: opt.TLS.Optional, MinVersion: opt.TLS.MinVersion}, log)
	files, err := reload.Load("certificates", store.Paths(), store.Load, log)
	if err != nil {
		return nil, err
	}
	return &certificates{store, files}, nil
}

// stats are for the metrics.
func (c *certificates) stats() (s metrics.Certificates) {
	s.Expires, s.ClientCAExpires = c.Expiry()
	s.Reload = c.files.Stats()
	return s
}

// loadFiles loads the files that the command line names and that may be loaded again, for the clients'
// sockets s, and checks the one that protects HTTP. They are read as the user of -u: what that user cannot
// read fails now, and not when it changes.
func loadFiles(opt *options.Options, s *sockets, mon *monitor, log *slog.Logger) (certs *certificates, acc *accessControl, err error) {
	if certs, err = loadCerts(opt, s, log); err != nil {
		return nil, nil, exitWith(exitUsage, err)
	}
	if acc, err = openAccess(opt, s.plain, log); err != nil {
		return nil, nil, err
	}
	mon.access, mon.sockets = acc, s.plain
	if certs != nil {
		mon.certificates = certs.stats
	}
	return certs, acc, checkWebConfig(opt)
}

// watchFiles has files loaded again when they change, until stop is called. Both may be
// nil.
func watchFiles(c *certificates, a *accessControl) (stop func()) {
	var all []*reload.Files
	if c != nil {
		all = append(all, c.files)
	}
	if a != nil {
		all = append(all, a.file)
	}
	return reload.Watch(all...)
}
