package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func kickConnectionCommand() *cobra.Command {
	var id uint64
	return serverCommand(&cobra.Command{
		Use:   "kick-connection ID",
		Short: "End a client's connection",
		Long: `End a client's connection, by its id in trellis connections. The jobs that it has reserved are ready again
at once. Most clients connect again. Where the server has an authentication file, it needs the right admin.

JSON is an object with kicked, the id. A stock beanstalkd does not have the command.`,
		Example: "  trellis kick-connection 17",
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) (err error) {
			if id, err = strconv.ParseUint(args[0], 10, 64); err != nil {
				err = fmt.Errorf("%q is not the id of a connection", args[0])
			}
			return err
		}),
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		err := c.KickConnection(ctx, id)
		if errors.Is(err, client.ErrNotFound) {
			return nothingFound(fmt.Errorf("there is no connection %d", id))
		}
		if err != nil {
			return err
		}
		return p.result(fmt.Sprintf("connection %d ended", id), client.Fields{number("kicked", id)})
	})
}

func connectionsCommand() *cobra.Command {
	var limit uint64
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List who is connected",
		Long: `List the server's connections by their ids: who each of them is, what it uses and holds, and what it has
sent and received. HELD is how many jobs it has reserved, WAITING for how long it has waited for one.

JSON has the keys of list-connections. A stock beanstalkd does not have the command; trellis stats tells how many
there are.`,
		Example: "  trellis connections --limit 20",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().Uint64Var(&limit, "limit", 1000, "so many at most; 0: all")
	return serverCommand(cmd, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		return listConnections(ctx, c, p, limit)
	})
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

func asWait(v client.Value) string {
	if v.Text == "0" {
		return "-"
	}
	return asTime(v)
}
