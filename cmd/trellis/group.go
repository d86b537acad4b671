package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func groupCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "group NAME",
		Short: "Show how far a group of jobs is",
		Long: `Show the counts of a group: pending, the jobs that were put with grp:NAME and are still there; buried, how many of them are buried; and
waiting-jobs, those that were put with aft:NAME and wait. Jobs wait until nothing is pending, or with aft:NAME:settled until all that is
pending is buried. A group that has neither is not known: it is done, or never was.

JSON has the keys of stats-group.`,
		Example: `  trellis group import.20261124
  trellis group import.20261124 -o json | jq .pending`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) error { return client.CheckGroup(args[0]) }),
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, args []string) error {
		stats, err := c.StatsGroup(ctx, args[0])
		if errors.Is(err, client.ErrNotFound) {
			err = nothingFound(fmt.Errorf("the group %s has no jobs, and none wait for it", args[0]))
		}
		if err != nil {
			return err
		}
		return p.object(stats)
	})
}
