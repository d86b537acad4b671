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
