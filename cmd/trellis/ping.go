package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/bench"
)

func pingCommand() *cobra.Command {
	var to target
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask a server whether it answers",
		Long: `Connect to a server and ask it a question that costs it nothing.

The exit status is 0 if the answer is right and comes in time, and 1 otherwise, for health checks.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a, err := to.address()
			if err != nil {
				return err
			}
			if err := ping(&a, timeout); err != nil {
				return fmt.Errorf("%s: %w", to.addr, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	to.register(f)
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long connection and answer may take")
	return cmd
}

// ping asks which tube a new connection uses, which is always the same.
func ping(a *bench.Address, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	conn, err := a.Dial(timeout)
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
