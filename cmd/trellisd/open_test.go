package main

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

// listening is a listener that has an address, and nothing else.
type listening struct {
	net.Listener
	addr net.Addr
}

func (l listening) Addr() net.Addr { return l.addr }

func TestWhereEverybodyMayDoEverythingOneLineSaysSo(t *testing.T) {
	t.Parallel()
	at := func(addr string) []net.Listener {
		return []net.Listener{
			listening{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))},
			listening{addr: &net.UnixAddr{Name: "/s", Net: "unix"}},
		}
	}
	ca := options.TLS{ClientCA: "ca.pem"}
	for name, tt := range map[string]struct {
		plain, tls string
		opt        options.Options
		want       string
	}{
		"everywhere":                     {plain: "0.0.0.0:1", want: "0.0.0.0:1"},
		"everywhere, by IPv6":            {plain: "[::]:1", want: "[::]:1"},
		"two":                            {plain: "192.0.2.1:1", tls: "192.0.2.1:2", want: "192.0.2.1:1 192.0.2.1:2"},
		"loopback":                       {plain: "127.0.0.1:1", tls: "[::1]:2"},
		"tokens":                         {plain: "0.0.0.0:1", tls: "0.0.0.0:2", opt: options.Options{AuthFile: "auth"}},
		"client certificates":            {plain: "127.0.0.1:1", tls: "0.0.0.0:2", opt: options.Options{TLS: ca}},
		"client certificates beside TCP": {plain: "0.0.0.0:1", tls: "0.0.0.0:2", opt: options.Options{TLS: ca}, want: "0.0.0.0:1"},
		"optional ones":                  {plain: "127.0.0.1:1", tls: "0.0.0.0:2", opt: options.Options{TLS: options.TLS{ClientCA: "ca.pem", Optional: true}}, want: "0.0.0.0:2"},
	} {
		s := &sockets{plain: at(tt.plain)}
		if tt.tls != "" {
			s.tls = at(tt.tls)
		}
		var log bytes.Buffer
		s.warnOpen(&tt.opt, slog.New(slog.NewTextHandler(&log, nil)))
		lines := strings.Count(log.String(), "\n")
		switch {
		case tt.want == "" && lines != 0:
			t.Errorf("%s: %s", name, &log)
		case tt.want != "" && (lines != 1 || !strings.Contains(log.String(), "CAN READ AND DELETE EVERY JOB") || !strings.Contains(log.String(), tt.want+"\n") && !strings.Contains(log.String(), `"`+tt.want+`"`)):
			t.Errorf("%s: %q", name, log.String())
		}
	}
}
