package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/console"
)

// consoleStopTime is how long requests that are under way may take when the console is to
// end.
const consoleStopTime = 2 * time.Second

func consoleCommand() *cobra.Command {
	var f serverFlags
	var servers []string
	var listen string
	var write bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show servers in a browser",
		Long: `Show what servers do in a browser: their tubes, jobs, workers and failed jobs, with charts. With --write,
jobs can be put, kicked, buried, moved, copied and deleted there, and tubes paused and cleared. Servers may be a
stock beanstalkd, of which that is shown which it tells.

The address to open is printed. It has a token in it, without which nobody gets anywhere: everybody on this machine
can connect, but only who has the address sees jobs. A browser that has opened it is known for 12 hours, until nobody
has looked for half an hour, or until "Log out". The console listens on loopback only. From another machine, use "ssh
-L 11390:127.0.0.1:11390". Scripts send the token in a header, "Authorization: Bearer TOKEN"; /api/v1/openapi.json
describes what they can ask.

A token is for one server and is sent to no other: of several servers, each is given its own, behind its address.

trellisd --http has the same console built in, which tells more of its own server.

Every change is written to standard error. The console runs until it is interrupted.`,
		Example: `  trellis console --server 10.0.0.1 --server 10.0.0.2:11301
  trellis console --tls --server 10.0.0.1,token-file=one.token --server 10.0.0.2,token-file=two.token
  trellis console --write --listen 127.0.0.1:11390`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfgs, err := f.consoles(servers, write, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			l, err := listenOnLoopback(listen)
			if err != nil {
				return err
			}
			return serveConsole(cmd.Context(), l, cfgs, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&write, "write", false, "let people change and delete jobs")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "address on loopback, HOST:PORT, where the browser connects")
	f.registerServers(flags, &servers)
	mistakesAreUsage(cmd)
	return cmd
}

// registerServers adds the flags for several servers.
func (f *serverFlags) registerServers(flags *pflag.FlagSet, servers *[]string) {
	flags.StringArrayVar(servers, "server", nil,
		"a server, written as for -a, with "+ofServer+
			"FILE behind it if it wants a token; may be given several times (default: that of -a)")
	f.to.register(flags)
	f.token.register(flags)
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long a server may keep silent (TRELLIS_TIMEOUT)")
}

// ofServer comes between a server and the file with the token for it.
const ofServer = ",token-file="

// consoles says which consoles there are to be.
func (f *serverFlags) consoles(servers []string, write bool, log *slog.Logger) (cfgs []console.Config, err error) {
	if err = f.fromEnvironment(); err != nil {
		return nil, err
	}
	switch {
	case len(servers) == 0:
		servers = []string{f.to.addr}
	case len(servers) > 1 && f.token.path != "":
		return nil, usageError(errors.New("--token-file is for one server, and would show the token to others: " +
			"give --server ADDR" + ofServer + "FILE"))
	}
	who := "somebody"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	for _, server := range servers {
		of := *f
		addr, file, own := strings.Cut(server, ofServer)
		switch {
		case own:
			of.token.path = file
		case len(servers) > 1:
			of.token.none = true
		}
		of.to.addr = trimURL(addr)
		a, err := of.to.address()
		if err == nil {
			_, err = of.token.readFor(&a) // a mistake shows at the start
		}
		if err != nil {
			return nil, usageError(fmt.Errorf("--server %s: %w", server, err))
		}
		cfgs = append(cfgs, console.Config{
			Server: a.String(),
			Dial: func(ctx context.Context) (*client.Conn, error) {
				f := of                           // dialling changes it, and several may dial at a time
				token, err := f.token.readFor(&a) // it may have been replaced
				if err != nil {
					return nil, usageError(err)
				}
				return f.dialAddr(ctx, &a, token)
			},
			Write: write,
			Who:   func(*http.Request) (string, bool) { return who, true }, // who has the token is who has started it
			Log:   log,
		})
	}
	return cfgs, nil
}

// listenOnLoopback opens an address that only this machine can connect to.
func listenOnLoopback(address string) (net.Listener, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError(fmt.Errorf("--listen %s: give HOST:PORT, such as 127.0.0.1:11390", address))
	}
	if ip := net.ParseIP(name); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usageError(fmt.Errorf("--listen %s: that is not an address on loopback, "+
			"and the console is not for others: "+
			"listen on 127.0.0.1, and reach it from elsewhere with ssh -L, or use trellisd --http with --web-config-file",
			address))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// serveConsole serves until ctx is done.
func serveConsole(ctx context.Context, l net.Listener, cfgs []console.Config, out io.Writer) error {
	gate, link := console.NewGate(cfgs)
	server := &http.Server{
		Handler: gate, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var measuring sync.WaitGroup
	measuring.Go(func() { gate.Run(ctx) })
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if _, err := fmt.Fprintf(out, "http://%s%s\n", l.Addr(), link); err != nil {
		fmt.Fprintln(os.Stderr, "trellis: the address cannot be printed:", err)
	}
	var err error
	select {
	case <-ctx.Done():
		stop, done := context.WithTimeout(context.Background(), consoleStopTime)
		defer done()
		if err = server.Shutdown(stop); err != nil {
			err = errors.Join(err, server.Close())
		}
	case err = <-served:
		cancel()
	}
	measuring.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // somebody's request was cut off
	}
	return err
}
