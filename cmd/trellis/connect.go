package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trellis/bench"
	"trellis/cmd/internal/client"
)

type serverFlags struct {
	to      target
	token   tokenFlag
	timeout time.Duration
	output  outputFlags

	authenticated bool
}

func (f *serverFlags) register(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	f.output.register(cmd)
	f.registerServer(cmd)
}

// registerServer is register for commands whose output has a format of its own.
func (f *serverFlags) registerServer(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	f.to.register(flags)
	f.token.register(flags)
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long the server may keep silent (TRELLIS_TIMEOUT)")
	mistakesAreUsage(cmd)
}

// run has do talk to the server, and gives its error the exit status that it means.
func (f *serverFlags) run(cmd *cobra.Command, do func(ctx context.Context, c *client.Conn, p *printer) error) error {
	p, err := f.output.printer(cmd.OutOrStdout())
	if err != nil {
		return usageError(err)
	}
	ctx := cmd.Context()
	c, err := f.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f.explain(c.Addr(), errors.Join(do(ctx, c, p), p.err()))
}

// serverCommand completes a command that needs no more than a server, which do asks. Its first arguments, so many, and
// those of tubeFlags are tubes. What is wrong with the command line, cmd.Args says.
func serverCommand(
	cmd *cobra.Command, tubes int,
	do func(ctx context.Context, c *client.Conn, p *printer, args []string) error, tubeFlags ...string,
) *cobra.Command {
	var f serverFlags
	cmd.Long += "\n\n" + exitHelp
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error { return do(ctx, c, p, args) })
	}
	f.register(cmd)
	f.completeTubes(cmd, tubes, tubeFlags...)
	return cmd
}

// dial connects to the server, and authenticates if there is a token. Its errors have
// their exit statuses.
func (f *serverFlags) dial(ctx context.Context) (*client.Conn, error) {
	a, token, err := f.server()
	if err != nil {
		return nil, err
	}
	return f.dialAddr(ctx, &a, token)
}

// dialAddr is dial for an address, and a token if it is not empty.
func (f *serverFlags) dialAddr(ctx context.Context, a *bench.Address, token string) (*client.Conn, error) {
	nc, err := dialAddress(ctx, a, f.timeout)
	if err != nil {
		return nil, f.explain(a.String(), &client.ConnError{Addr: a.String(), Err: err})
	}
	c := client.New(nc, a.String())
	c.Timeout = f.timeout
	if token != "" {
		if err := c.Auth(ctx, token); err != nil {
			c.Close()
			if no := (*client.RefusedError)(nil); errors.As(err, &no) {
				err = fmt.Errorf("the server does not take the token: it does not know it, or wants none: it answers %q", no.Reply)
				return nil, refused(fmt.Errorf("%s: %w", a, err))
			}
			return nil, f.explain(a.String(), err)
		}
		f.authenticated = true
	}
	return c, nil
}

var errTimeout = errors.New("--timeout is to be above zero")

// fromEnvironment takes what no flag gives from variables. Its errors have their exit statuses.
func (f *serverFlags) fromEnvironment() error {
	if err := fromVariable(f.to.flags, "timeout", "TRELLIS_TIMEOUT"); err != nil {
		return usageError(err)
	}
	if f.timeout <= 0 {
		return usageError(errTimeout)
	}
	f.to.fromEnvironment()
	return nil
}

// server is the server's address, and the token for it if there is one. Its errors have their exit statuses.
func (f *serverFlags) server() (a bench.Address, token string, err error) {
	if err = f.fromEnvironment(); err != nil {
		return a, "", err
	}
	if a, err = f.to.address(); err == nil {
		token, err = f.token.readFor(&a)
	}
	return a, token, usageError(err)
}

func dialAddress(ctx context.Context, a *bench.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if a.TLS() != nil {
		d := tls.Dialer{Config: a.TLS()}
		return d.DialContext(ctx, a.Network, a.Name)
	}
	var d net.Dialer
	return d.DialContext(ctx, a.Network, a.Name)
}

// explain makes of an error one line that names the server and says what to do, with an exit status if it has none.
func (f *serverFlags) explain(addr string, err error) error {
	exit, conn, no, part := (*exitError)(nil), (*client.ConnError)(nil), (*client.RefusedError)(nil), (*partialError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &part) && errors.As(part.err, &conn):
		_, explained := f.explainConn(addr, conn) // no hint, since the server has served it
		return &exitError{exitStatus(explained), &partialError{explained, part.rest}}
	case errors.As(err, &part) && errors.Is(part.err, context.Canceled):
		return &exitError{exitInterrupted, &partialError{interrupted(addr), part.rest}}
	case errors.As(err, &exit) && exit.status == exitUsage:
		return err
	case errors.As(err, &exit):
		return &exitError{exit.status, fmt.Errorf("%s: %w", addr, err)}
	case errors.Is(err, client.ErrToken):
		return refused(fmt.Errorf("%s: %w: give --token-file", addr, err))
	case errors.As(err, &no) && no.Reply == "UNKNOWN_COMMAND" && !f.authenticated:
		return refused(fmt.Errorf("%s: %w; if it wants a token, give --token-file", addr, err))
	case !errors.As(err, &conn) && errors.Is(err, context.Canceled):
		return interrupted(addr)
	case !errors.As(err, &conn):
		return &exitError{statusOfAnswer(err), fmt.Errorf("%s: %w", addr, err)}
	}
	hint, err := f.explainConn(addr, conn)
	return &exitError{exitStatus(err), fmt.Errorf("%w%s", err, hint)}
}

func interrupted(addr string) error {
	return &exitError{exitInterrupted, fmt.Errorf("%s: interrupted", addr)}
}

// explainConn is explain for an error of the connection. The hint says what may be wrong if
// the server has never answered.
func (f *serverFlags) explainConn(addr string, err *client.ConnError) (hint string, explained error) {
	reason := err.Err
	if sys := syscall.Errno(0); errors.As(reason, &sys) { // shorter than what net makes of it
		reason = sys
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "", interrupted(addr)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		reason, hint = fmt.Errorf("silent for %v", f.timeout), "; --timeout gives it longer"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		hint = "; is a server running there? Name another with -a or in TRELLIS_ADDR"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		reason = errors.New("the server has closed the connection")
		hint = "; does it want --tls, or a token (--token-file)?"
	case errors.As(err, new(tls.RecordHeaderError)):
		hint = "; does it speak TLS on this port?"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		hint = "; --ca names the authorities that it may be of"
	case errors.Is(err, client.ErrBroken):
		hint = "; is it a beanstalkd or trellisd, and does it want --tls?"
	}
	return hint, &exitError{exitUnreachable, fmt.Errorf("%s: %w", addr, reason)}
}
