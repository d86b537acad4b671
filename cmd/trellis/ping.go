package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/bench"
)

func pingCommand() *cobra.Command {
	var to target
	var timeout time.Duration
	var token tokenFlag
	var standby string
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask a server whether it answers",
		Long: `Connect to a server and ask it a question that costs it nothing.

The exit status is 0 if the answer is right and comes in time, and 1 otherwise, for health checks.
With --standby it is 0 as well if the server is a member of a cluster that serves no clients because
another one leads, or because it waits for the others.`,
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
			err = ping(&a, t, timeout)
			if err == nil {
				return nil
			}
			err = fmt.Errorf("%s: %w", to.addr, err)
			if standby == "" {
				return err
			}
			if e := standsBy(standby, timeout); e != nil {
				return fmt.Errorf("%w; %s: %w", err, standby, e)
			}
			return nil
		},
	}
	f := cmd.Flags()
	to.register(f)
	token.register(f)
	f.StringVar(&standby, "standby", "", "host:port of the server's metrics (trellisd --http): a member of a cluster that stands by is well, too")
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

// standbyStates are how the reason begins for which a member of a cluster is not ready, if
// that is as it should be.
var standbyStates = []string{"standby", "waiting for the other members"}

// standsBy asks a server for the reason why it does not serve clients. The error is nil if it is a member of a cluster.
func standsBy(addr string, timeout time.Duration) error {
	c := http.Client{Timeout: timeout}
	resp, err := c.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if err != nil {
		return err
	}
	reason, _, _ := strings.Cut(string(b), "\n")
	for _, s := range standbyStates {
		if strings.HasPrefix(reason, s) {
			return nil
		}
	}
	return fmt.Errorf("it does not stand by: %s, %q", resp.Status, reason)
}
