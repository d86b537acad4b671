package main

import (
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"trellis/cmd/trellisd/internal/access"
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

// openAccess reads the file. It returns nil without --auth-file.
func openAccess(opt *options.Options, listeners []net.Listener, log *slog.Logger) (*accessControl, error) {
	if opt.AuthFile == "" {
		return nil, nil
	}
	a := &accessControl{Store: access.New(opt.AuthFile, log)}
	var err error
	a.file, err = reload.Load("auth-file", []string{opt.AuthFile}, a.load, log)
	if err != nil {
		return nil, exitWith(exitUsage, fmt.Errorf("--auth-file: %w", err))
	}
	for _, l := range listeners {
		if readable(l.Addr()) {
			log.Warn("tokens and jobs can be read on the network: listen on a loopback address, or use TLS", "addr", l.Addr().String())
			break
		}
	}
	return a, nil
}

// load puts what is in the file in force, and ends the connections of clients whose line has
// gone or has changed.
func (a *accessControl) load(contents [][]byte) error {
	gone, err := a.Load(contents[0])
	if err != nil {
		return err
	}
	if srv := a.server.Load(); srv != nil {
		srv.Revoke(gone)
	}
	return nil
}

// readable tells whether others than those on this machine may see what is sent to an
// address.
func readable(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
