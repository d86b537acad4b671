package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	protocol "trellis/cmd/internal/client"
	"trellis/cmd/internal/console"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/web"
)

// openConsole makes the console and begins to measure. It returns nil if there is to be
// none.
func (m *monitor) openConsole(
	opt *options.Options, src metrics.Sources, names []string, log *slog.Logger,
) *console.Console {
	mode := m.consoleMode(opt, log)
	if mode == options.ConsoleOff {
		return nil
	}
	c := console.New(console.Config{
		Server: serverName(opt, m.sockets),
		Dial:   m.dialSelf,
		Local:  &ownServer{monitor: m, opt: opt, src: src, began: time.Now()},
		Write:  mode == options.ConsoleWrite,
		Who:    web.User,
		Writes: mayWrite(opt),
		Hosts:  names,
		Log:    m.audit.Logger(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	m.console = func(ctx context.Context) {
		cancel()
		select {
		case <-ended:
		case <-ctx.Done(): // it waits for a shard of the engine, which may never answer
		}
	}
	return c
}

// scraper is the name of whoever scrapes metrics, in our documents and in those of Prometheus. Its
// password lies on another machine, in a file that is not thought to be worth much.
const scraper = "prometheus"

// mayWrite tells who may change jobs in the console, of those who have proved who they are.
func mayWrite(opt *options.Options) func(name string) bool {
	return func(name string) bool {
		if opt.Writers != nil {
			return slices.Contains(opt.Writers, name)
		}
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "CN="), ",") // of the subject of a certificate
		return !strings.EqualFold(name, scraper)
	}
}

// consoleMode is what --console says. Where it says nothing, the console shows jobs if
// those who can open it have proved who they are, or could read the jobs anyway: everybody on
// this machine can connect to a loopback address, and to a server that lets everybody in.
// It is decided once.
func (m *monitor) consoleMode(opt *options.Options, log *slog.Logger) string {
	authenticates := m.protection != nil && m.protection.Authenticates()
	near := !readable(m.listener.Addr())
	switch {
	case opt.Console == options.ConsoleRead && !authenticates && !(near && m.anybody()):
		log.Warn("the console shows jobs to everybody who can connect to it; see --web-config-file",
			"addr", m.listener.Addr().String())
	case opt.Console != "":
	case authenticates, near && m.anybody():
		return options.ConsoleRead
	default:
		return options.ConsoleOff
	}
	return opt.Console
}

// anybody reports whether everybody on this machine can connect to the server.
func (m *monitor) anybody() bool {
	return m.access == nil && slices.ContainsFunc(m.sockets, func(l net.Listener) bool {
		_, ok := l.Addr().(*net.TCPAddr)
		return ok
	})
}

// serverName is how pages call the server: its host, and the port of its first socket.
func serverName(opt *options.Options, listeners []net.Listener) string {
	if opt.Cluster.Member() {
		return opt.Cluster.Node.Name
	}
	name, err := os.Hostname()
	if err != nil {
		name = "this server"
	}
	for _, l := range listeners {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			return net.JoinHostPort(name, strconv.Itoa(a.Port))
		}
	}
	return name
}

var errNotServing = errors.New("this server executes no commands now")

// notServing is errNotServing with the reason.
func (m *monitor) notServing() error {
	if err := m.leads.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNotServing, err)
	}
	return errNotServing
}

// dialSelf connects to the server in this process.
func (m *monitor) dialSelf(ctx context.Context) (*protocol.Conn, error) {
	srv := m.reactor.Load()
	if srv == nil {
		return nil, m.notServing()
	}
	nc, err := srv.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return protocol.New(nc, "this server"), nil
}
