package main

import (
	"context"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

const elseReserved = "not there, or reserved by somebody else"

func deleteCommand() *cobra.Command {
	var f serverFlags
	var s selection
	cmd := &cobra.Command{
		Use:   "delete {ID... | --tube TUBE --state STATE --count N}",
		Short: "Delete jobs",
		Long: `Delete jobs by their ids, or the first ones of a tube in a state. A job that is reserved cannot be deleted by its id; with
--state reserved it can: who has reserved it hears of it by the NOT_FOUND to its next command. A stock beanstalkd cannot do that.

JSON is an object with deleted, how many were, and with ids not-found, the ids of the others.

` + exitHelp,
		Example: `  trellis delete 17 18
  trellis delete --tube mail --state buried --count 1000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.parse(cmd, args, false); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := deleteJobs(ctx, c, &s)
				return s.report(p, o, err, "deleted", elseReserved)
			})
		},
	}
	s.register(cmd, &f, client.States...)
	f.register(cmd)
	return cmd
}

var deleting = action{lines: idLine("delete"), want: "DELETED"}

func deleteJobs(ctx context.Context, c *client.Conn, s *selection) (o outcome, err error) {
	if s.tube == "" {
		return deleting.onIDs(ctx, c, s.ids)
	}
	most, err := s.bound(ctx, c)
	if err != nil {
		return o, err
	}
	has, err := c.Has(ctx, "delete-tube-jobs")
	switch {
	case err != nil:
		return o, err
	case !has && s.of == client.Reserved:
		return o, &client.LacksError{Command: "delete-tube-jobs"}
	case !has:
		return deleting.onTube(ctx, c, s)
	}
	o.done, err = inParts(most, func(bound uint32) (uint64, error) { return c.DeleteTubeJobs(ctx, s.tube, s.of, bound) })
	return o, gone(err)
}
