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
		Long: `End a client's connection, by its id in trellis connections. The jobs that it has reserved are ready again at once. Most clients
connect again. Where the server has an authentication file, it needs the right admin.

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
