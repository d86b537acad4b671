package main

import (
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/audit"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/reload"
	"trellis/reactor"
)

// accessControl is who may do what, as the file of --auth-file says.
type accessControl struct {
	*access.Store
	file   *reload.Files
	server atomic.Pointer[reactor.Server] // that serves clients, or did last; nil before
}

// openAudit begins the audit trail. Its file is made as the user of -u, as whom it is made anew
// when it was moved away.
func openAudit(opt *options.Options, log *slog.Logger) (*audit.Trail, error) {
	t, err := audit.Open(opt.AuditFile, log)
	if err != nil {
		return nil, exitWith(exitUsage, fmt.Errorf("--audit-file: %w", err))
	}
	return t, nil
}

// openAccess reads the file. It returns nil without --auth-file. Who is let in, and what is
// wrong with the file, goes to the audit trail.
func openAccess(opt *options.Options, listeners []net.Listener, trail, log *slog.Logger) (*accessControl, error) {
	if opt.AuthFile == "" {
		return nil, nil
	}
	a := &accessControl{Store: access.New(opt.AuthFile, trail)}
	var err error
	a.file, err = reload.Load("auth-file", []string{opt.AuthFile}, a.load, trail)
	if err != nil {
		return nil, exitWith(exitUsage, fmt.Errorf("--auth-file: %w", err))
	}
	for _, l := range listeners {
		if readable(l.Addr()) {
			log.Warn("tokens and jobs can be read on the network: listen on a loopback address, or use TLS",
				"addr", l.Addr().String())
			break
		}
	}
	return a, nil
}

// load puts what is right in the file in force, and ends the connections of clients whose
// line has gone, has changed, or has a mistake.
func (a *accessControl) load(contents [][]byte) error {
	gone, err := a.Load(contents[0])
	if srv := a.server.Load(); srv != nil {
		srv.Revoke(gone)
		srv.LimitsChanged()
	}
	return err
}

// readable reports whether others than those on this machine may see what is sent to an
// address.
func readable(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
