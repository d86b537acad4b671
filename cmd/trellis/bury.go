package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func buryCommand() *cobra.Command {
	var f serverFlags
	var s selection
	cmd := &cobra.Command{
		Use:   "bury {ID... | --tube TUBE --state STATE --count N}",
		Short: "Bury jobs that nobody has reserved",
		Long: `Bury jobs, by their ids or the first ones of a tube in a state. They keep their priorities.

The protocol lets a client bury what it has reserved only, so the jobs are reserved and buried in one go: their count of reserves
goes up. A job that somebody else has reserved stays as it is. One that is buried already counts as done.

JSON is an object with buried, how many are, and with ids not-found, the ids of the others.

` + exitHelp,
		Example: `  trellis bury 17
  trellis bury --tube mail --state ready --count all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.parse(cmd, args, false); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := buryJobs(ctx, c, &s)
				return s.report(p, o, err, "buried", elseReserved)
			})
		},
	}
	s.register(cmd, &f, client.Ready, client.Delayed)
	f.register(cmd)
	return cmd
}

var burying = action{want: "BURIED", pri: true, lines: func(job client.Fields) []string {
	id := job.Uint("id")
	return []string{fmt.Sprintf("reserve-job %d", id), fmt.Sprintf("bury %d %d", id, job.Uint("pri"))}
}}

func buryJobs(ctx context.Context, c *client.Conn, s *selection) (o outcome, err error) {
	if s.tube != "" {
		return burying.onTube(ctx, c, s)
	}
	stats, err := c.StatsJobs(ctx, s.ids)
	if err != nil {
		return o, err
	}
	var jobs []client.Fields
	for i, job := range stats {
		switch {
		case job == nil, job.Text("state") == string(client.Reserved):
			o.missing = append(o.missing, s.ids[i])
		case job.Text("state") == string(client.Buried):
			o.done++
		default:
			jobs = append(jobs, job)
		}
	}
	err = burying.onJobs(ctx, c, jobs, &o)
	return o, err
}
