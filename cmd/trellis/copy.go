package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func copyCommand() *cobra.Command {
	var f serverFlags
	var s selection
	var to string
	cmd := &cobra.Command{
		Use:   "copy {ID... | --tube TUBE --state STATE --count N} --to TUBE",
		Short: "Put copies of jobs into a tube",
		Long: `Put copies of jobs into a tube. The jobs themselves stay as they are, reserved ones too.

A copy is a new job with a new id: it has the body, the priority, the time to run and what is left of the delay, and none of the
counters and keys. It is delayed if the job is, and ready otherwise.

A stock beanstalkd cannot list jobs: there --count is to be 1.

JSON is an object with copied, how many were, and with ids not-found, the ids of the others.

` + exitHelp,
		Example: `  trellis copy 17 --to mail.test
  trellis copy --tube mail --state buried --count 10 --to mail.test`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := parseTo(to); err != nil {
				return err
			}
			if err := s.parse(cmd, args, false); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := copyJobs(ctx, c, &s, to)
				return s.report(p, o, err, "copied", "not there")
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the tube that the copies come into")
	s.register(cmd, &f, client.States...)
	f.register(cmd)
	f.completeTubes(cmd, 0, "to")
	return cmd
}

func copyJobs(ctx context.Context, c *client.Conn, s *selection, to string) (o outcome, err error) {
	if s.tube == "" {
		err = copyIDs(ctx, c, s.ids, to, &o)
		return o, err
	}
	most, err := s.bound(ctx, c)
	if err != nil || most == 0 {
		return o, err
	}
	has, err := c.Has(ctx, "list-jobs")
	if err != nil {
		return o, err
	}
	if !has && s.most == 1 {
		first, err := c.PeekTube(ctx, s.tube, s.of)
		if err != nil {
			return o, gone(err)
		}
		return o, copyJob(ctx, c, first.ID, to, &o)
	}
	// All of the list before the first copy: copies in the same tube, with ids of their own, would come into the next page, and
	// what is behind them would be left out.
	var ids []uint64
	err = eachJob(ctx, c, s.tube, s.of, most, func(page []client.Fields) error {
		for _, job := range page {
			ids = append(ids, job.Uint("id"))
		}
		return nil
	})
	if err = gone(err); err == nil {
		err = copyIDs(ctx, c, ids, to, &o)
	}
	return o, err
}

func copyIDs(ctx context.Context, c *client.Conn, ids []uint64, to string, o *outcome) error {
	for _, id := range ids {
		if err := copyJob(ctx, c, id, to, o); err != nil {
			return err
		}
	}
	return nil
}

// copyJob copies one job. Its body is in memory only while it is copied.
func copyJob(ctx context.Context, c *client.Conn, id uint64, to string, o *outcome) error {
	job, err := c.Peek(ctx, id)
	if err == nil {
		var stats client.Fields
		if stats, err = c.StatsJob(ctx, id); err == nil {
			if err = c.Use(ctx, to); err == nil {
				_, err = c.Put(ctx, copyOf(stats, job.Body))
			}
		}
	}
	switch {
	case errors.Is(err, client.ErrNotFound):
		o.missing = append(o.missing, id)
		return nil
	case err == nil:
		o.done++
	}
	return err
}

func copyOf(stats client.Fields, body []byte) *client.NewJob {
	n := &client.NewJob{Pri: uint32(stats.Uint("pri")), TTR: uint32(stats.Uint("ttr")), Body: body}
	if stats.Text("state") == string(client.Delayed) {
		n.Delay = uint32(stats.Uint("time-left"))
	}
	return n
}
