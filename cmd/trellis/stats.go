package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func statsCommand() *cobra.Command {
	var f serverFlags
	var tube string
	var job uint64
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show statistics of the server, of a tube or of a job",
		Long: `Show statistics of the server, or with --tube of a tube, or with --job of a job.

JSON has the keys of stats, stats-tube and stats-job. Tables show times and sizes with their units.

` + exitHelp,
		Example: `  trellis stats
  trellis stats --tube mail -o json
  trellis stats --job 17`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tube") && cmd.Flags().Changed("job") {
				return usageError(errors.New("give either --tube or --job"))
			}
			if cmd.Flags().Changed("tube") {
				if err := client.CheckTube(tube); err != nil {
					return usageError(err)
				}
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				stats, err := statsOf(ctx, c, cmd, tube, job)
				if err != nil {
					return err
				}
				return p.object(stats)
			})
		},
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "of this tube")
	cmd.Flags().Uint64Var(&job, "job", 0, "of the job with this id")
	f.register(cmd)
	f.completeTubes(cmd, 0, "tube")
	return cmd
}

func statsOf(ctx context.Context, c *client.Conn, cmd *cobra.Command, tube string, job uint64) (client.Fields, error) {
	switch {
	case cmd.Flags().Changed("tube"):
		return operate.StatsTube(ctx, c, tube)
	case cmd.Flags().Changed("job"):
		stats, err := c.StatsJob(ctx, job)
		if errors.Is(err, client.ErrNotFound) {
			err = noJob(job)
		}
		return stats, err
	}
	return c.Stats(ctx)
}

func noJob(id uint64) error { return nothingFound(fmt.Errorf("there is no job %d", id)) }
