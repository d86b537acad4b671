package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"trellis/cmd/trellisd/internal/listen"
	"trellis/cmd/trellisd/internal/options"
	"trellis/reactor"
)

// sockets are those on which clients are served.
type sockets struct {
	plain []net.Listener
	tls   []net.Listener // whose clients speak TLS
}

// openSockets opens what the command line names, unless systemd has opened sockets
// for us.
func openSockets(opt *options.Options, log *slog.Logger) (*sockets, error) {
	plain, tls, err := listen.Inherited()
	if err != nil {
		return nil, err
	}
	s := &sockets{plain: plain, tls: tls}
	if len(plain)+len(tls) > 0 {
		s.warn(opt, log)
	} else if err := s.open(opt, log); err != nil {
		s.close(log)
		return nil, err
	}
	if err := s.checkProxies(opt); err != nil {
		s.close(log)
		return nil, err
	}
	for _, l := range s.plain {
		log.Info("listening", "network", l.Addr().Network(), "addr", l.Addr().String())
	}
	for _, l := range s.tls {
		log.Info("listening", "network", l.Addr().Network(), "addr", l.Addr().String(), "tls", true)
	}
	return s, nil
}

// open opens what the command line names.
func (s *sockets) open(opt *options.Options, log *slog.Logger) (err error) {
	ctx := context.Background()
	// A server that was set up for TLS only must not listen without TLS as well.
	if len(opt.TLS.Listen) == 0 || len(opt.Listen) > 0 || opt.PortGiven {
		if s.plain, err = listen.Open(ctx, opt.Listen, opt.Port, "-p", opt.SocketMode, log); err != nil {
			return err
		}
	}
	if len(opt.TLS.Listen) == 0 {
		return nil
	}
	s.tls, err = listen.Open(ctx, opt.TLS.Listen, options.DefaultTLSPort, "--tls-listen", opt.SocketMode, log)
	if err != nil {
		return fmt.Errorf("--tls-listen: %w", err)
	}
	return nil
}

// checkProxies finds an inherited socket for proxies that would serve nobody. Of those that the command
// line names this is known before.
func (s *sockets) checkProxies(opt *options.Options) error {
	for _, l := range s.all() {
		if _, ok := l.(reactor.Proxied); ok && l.Addr().Network() == "tcp" && len(opt.ProxyFrom) == 0 {
			return fmt.Errorf("the socket %s is named proxy, and no proxy may connect to it; give --proxy-from", l.Addr())
		}
	}
	return nil
}

// warn tells which options do not count because of inherited sockets.
func (s *sockets) warn(opt *options.Options, log *slog.Logger) {
	for _, addr := range opt.Listen {
		log.Warn("inherited listen fd; ignoring option: -l " + addr)
	}
	if opt.PortGiven {
		log.Warn("inherited listen fd; ignoring option: -p " + opt.Port)
	}
	for _, addr := range opt.TLS.Listen {
		log.Warn("inherited listen fd; ignoring option: --tls-listen " + addr)
	}
}

// warnOpen says where everybody who can connect may do everything, if others than those on
// this machine can.
func (s *sockets) warnOpen(opt *options.Options, log *slog.Logger) {
	if opt.AuthFile != "" {
		return
	}
	open := s.plain
	if opt.TLS.ClientCA == "" || opt.TLS.Optional {
		open = s.all()
	}
	var addrs []string
	for _, l := range open {
		if readable(l.Addr()) {
			addrs = append(addrs, l.Addr().String())
		}
	}
	if len(addrs) > 0 {
		log.Warn("WHOEVER CAN CONNECT CAN READ AND DELETE EVERY JOB: listen on a loopback address, "+
			"or give --auth-file or --tls-client-ca; see ACCESS in trellisd --help", "addrs", strings.Join(addrs, " "))
	}
}

func (s *sockets) all() []net.Listener { return slices.Concat(s.plain, s.tls) }

// close closes what the reactor has not closed, and so removes the files of UNIX
// sockets also when the start failed.
func (s *sockets) close(log *slog.Logger) {
	for _, l := range s.all() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			log.Warn("closing a listening socket", "addr", l.Addr().String(), "error", err)
		}
	}
}
