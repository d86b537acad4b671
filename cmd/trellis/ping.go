package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/bench"
)

func pingCommand() *cobra.Command {
	var addr string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask a server whether it answers",
		Long: `Connect to a server and ask it a question that costs it nothing.

The exit status is 0 if the answer is right and comes in time, and 1 otherwise, for health checks.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a, err := bench.ParseAddress(addr)
			if err != nil {
				return err
			}
			if err := ping(a.Network, a.Name, timeout); err != nil {
				return fmt.Errorf("%s: %w", addr, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&addr, "addr", "a", "127.0.0.1:11300", "the server: host:port or unix:/path")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long connection and answer may take")
	return cmd
}

// ping asks which tube a new connection uses, which is always the same.
func ping(network, addr string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "list-tube-used\r\n"); err != nil {
		return err
	}
	reply, err := bufio.NewReader(io.LimitReader(conn, 256)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && reply != "USING default\r\n" {
		err = fmt.Errorf("not the answer of a beanstalkd server: %q", strings.TrimSpace(reply))
	}
	return err
}
