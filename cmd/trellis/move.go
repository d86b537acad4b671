package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func moveCommand() *cobra.Command {
	var f serverFlags
	var s selection
	var to string
	cmd := &cobra.Command{
		Use:   "move {ID... | --tube TUBE --state STATE --count N} --to TUBE",
		Short: "Move jobs to another tube",
		Long: `Move jobs to another tube, by their ids or the first ones of a tube in a state. They keep their ids, states, priorities,
counters and what is left of their delays, and no crash leaves a job in neither tube or in both.

A job that is reserved is not moved. A stock beanstalkd cannot move jobs; there trellis copy and trellis delete do something like it.

JSON is an object with moved, how many were, and with ids not-found, the ids of the others.

` + exitHelp,
		Example: `  trellis move 17 18 --to mail.later
  trellis move --tube mail --state buried --count all --to mail.failed`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := parseTo(to); err != nil {
				return err
			}
			if err := s.parse(cmd, args, false); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := moveJobs(ctx, c, &s, to)
				return s.report(p, o, err, "moved", elseReserved)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the tube that they come into")
	s.register(cmd, &f, client.Ready, client.Delayed, client.Buried)
	f.register(cmd)
	f.completeTubes(cmd, 0, "to")
	return cmd
}

func parseTo(to string) error {
	if to == "" {
		return usageError(errors.New("--to is missing: the tube that the jobs come into"))
	}
	return usageError(client.CheckTube(to))
}

func moveJobs(ctx context.Context, c *client.Conn, s *selection, to string) (o outcome, err error) {
	if s.tube == "" {
		moving := action{want: "MOVED", lines: func(job client.Fields) []string {
			return []string{fmt.Sprintf("move-job %d %s", job.Uint("id"), to)}
		}}
		return moving.onIDs(ctx, c, s.ids)
	}
	if s.tube == to {
		return o, usageError(fmt.Errorf("the jobs are in tube %q already", to))
	}
	most, err := s.bound(ctx, c)
	if err != nil {
		return o, err
	}
	o.done, err = inParts(most, func(bound uint32) (uint64, error) { return c.MoveTube(ctx, s.tube, s.of, to, bound) })
	return o, gone(err)
}
