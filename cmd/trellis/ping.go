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
	var token tokenFlag
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask a server whether it answers",
		Long: `Connect to a server and ask it a question that costs it nothing.

The exit status is 0 if the answer is right and comes in time, and 1 otherwise, for health checks.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			to.fromEnvironment()
			a, err := to.address()
			if err != nil {
				return err
			}
			t, err := token.read()
			if err != nil {
				return err
			}
			if err := ping(&a, t, timeout); err != nil {
				return fmt.Errorf("%s: %w", to.addr, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	to.register(f)
	token.register(f)
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long connection and answer may take")
	return cmd
}

// ping asks which tube a new connection uses, which is always the same. It authenticates before if there is a token.
func ping(a *bench.Address, token string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	conn, err := a.Dial(timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, 512))
	ask := func(line string) (string, error) {
		if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
			return "", err
		}
		reply, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return strings.TrimSuffix(reply, "\r\n"), err
	}
	if token != "" {
		if reply, err := ask("auth " + token); err != nil || reply != "AUTHENTICATED" {
			return errors.Join(fmt.Errorf("the answer to the token is %q", reply), err)
		}
	}
	reply, err := ask("list-tube-used")
	if err == nil && reply == "UNKNOWN_COMMAND" {
		err = errors.New("it answers, and wants a token: give --token-file")
	} else if err == nil && reply != "USING default" {
		err = fmt.Errorf("not the answer of a beanstalkd server: %q", reply)
	}
	return err
}
