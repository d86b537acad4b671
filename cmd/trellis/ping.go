package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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
it waits for the others, or for a leader. Where its metrics are served with TLS, give
https://host:port: the certificate may be of the system's authorities, or of those of --ca, which
is then allowed without --tls, as are --cert and --key. --timeout is for both questions together.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			to.fromEnvironment()
			to.elsewhere = strings.HasPrefix(standby, "https://")
			a, err := to.address()
			if err != nil {
				return err
			}
			t, err := token.readFor(&a)
			if err != nil {
				return err
			}
			deadline := time.Now().Add(timeout)
			err = ping(&a, t, deadline)
			if err == nil {
				return nil
			}
			err = fmt.Errorf("%s: %w", to.addr, err)
			if standby == "" {
				return err
			}
			if e := to.standsBy(standby, deadline); e != nil {
				return fmt.Errorf("%w; %s: %w", err, standby, e)
			}
			return nil
		},
	}
	f := cmd.Flags()
	to.register(f)
	token.register(f)
	f.StringVar(&standby, "standby", "",
		"host:port of the server's metrics (trellisd --http), or https://host:port: "+
			"a member of a cluster that waits for others is well, too")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long connections and answers may take")
	return cmd
}

// ping asks which tube a new connection uses, which is always the same. It authenticates before if there is a token.
func ping(a *bench.Address, token string, deadline time.Time) error {
	conn, err := a.Dial(time.Until(deadline))
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

// standbyStates are the beginnings of the reasons that a member gives for not being ready
// when that is as it should be.
var standbyStates = []string{
	"standby", "waiting for the other members", "no leader is known", "attaching", "catching up",
}

// standsBy asks a server for the reason why it does not serve clients. The error is nil if it is a member of a cluster.
// addr is host:port, or https://host:port.
func (t *target) standsBy(addr string, deadline time.Time) error {
	url := "http://" + addr
	transport := &http.Transport{DisableKeepAlives: true}
	if t.elsewhere {
		url = addr
		var err error
		if transport.TLSClientConfig, err = t.webConfig(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	c := http.Client{Transport: transport}
	resp, err := c.Do(req)
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

// webConfig is what TLS needs for the server's metrics. Their certificate may come from other authorities than the one
// for clients, so the system's are accepted, too.
func (t *target) webConfig() (*tls.Config, error) {
	config, err := t.config()
	if err != nil || t.ca == "" {
		return config, err
	}
	if config.RootCAs, err = x509.SystemCertPool(); err != nil {
		return nil, fmt.Errorf("the system's authorities: %w", err)
	}
	return config, addAuthorities(config.RootCAs, t.ca)
}
