package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func connectionsCommand() *cobra.Command {
	var f serverFlags
	var limit uint64
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List who is connected",
		Long: `List the server's connections by their ids: who each of them is, what it uses and holds, and what it has sent and received.
HELD is how many jobs it has reserved, WAITING for how long it has waited for one.

JSON has the keys of list-connections. A stock beanstalkd does not have the command; trellis stats tells how many there are.

` + exitHelp,
		Example: "  trellis connections --limit 20",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error { return listConnections(ctx, c, p, limit) })
		},
	}
	cmd.Flags().Uint64Var(&limit, "limit", 1000, "so many at most; 0: all")
	f.register(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// connectionsAtOnce are in one reply.
const connectionsAtOnce = 1000

func listConnections(ctx context.Context, c *client.Conn, p *printer, limit uint64) error {
	l := p.list(
		column{head: "ID", key: "id", right: true},
		column{head: "ADDRESS", key: "addr"},
		column{head: "USING", key: "tube"},
		counted("WATCHING", "watching-count"), counted("HELD", "reserved-count"),
		column{head: "WAITING", key: "waiting-time", right: true, show: asWait},
		column{head: "AGE", key: "age", right: true, show: asTime},
		counted("COMMANDS", "commands"),
		column{head: "IN", key: "bytes-in", right: true, show: asSize},
		column{head: "OUT", key: "bytes-out", right: true, show: asSize},
		column{head: "NAME", key: "name"},
	)
	for after := uint64(0); limit == 0 || uint64(l.n) < limit; {
		n := uint64(connectionsAtOnce)
		if limit != 0 {
			n = min(n, limit-uint64(l.n))
		}
		page, err := c.Connections(ctx, n, after)
		if err != nil {
			return err
		}
		for _, conn := range page {
			if err := l.add(conn); err != nil {
				return err
			}
			if id := conn.Uint("id"); id > after {
				after = id
			} else {
				return errors.New("the server's list of connections is not in the order of their ids")
			}
		}
		if uint64(len(page)) < n {
			break
		}
	}
	l.end()
	return nil
}

// asWait shows for how long a connection has waited.
func asWait(v client.Value) string {
	if v.Text == "0" {
		return "-"
	}
	return asTime(v)
}
