package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/jobfile"
	"trellis/cmd/trellis/internal/producer"
)

func importJobsCommand() *cobra.Command {
	var f serverFlags
	var j jobFlags
	var tube string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Put exported jobs back, each in its state",
		Long: `Put the jobs that trellis export has written, from a file or standard input.

Each job goes into its tube, or that of --tube, with its body, priority and time to run. A ready or reserved job is ready. A
delayed job has the delay that was left. A buried job is buried: it is put with a delay of an hour, reserved by its id, and
buried, so that an interrupted import, which says so, leaves it to become ready after that hour.

Jobs get new ids and begin a new age, and their counters (reserves, timeouts, releases, buries, kicks) begin at 0. Keys and limits that were
given to a job with put are not in the file. Jobs keep the order that they have in it among those with the same priority.

Importing the same file twice puts its jobs twice. Lines that cannot be put are told, as by trellis put.

` + exitHelp,
		Example: `  trellis export mail | trellis -a other:11300 import
  trellis import --tube mail.old mail.ndjson`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tube != "" {
				if err := client.CheckTube(tube); err != nil {
					return usageError(err)
				}
			}
			in := cmd.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return usageError(err)
				}
				defer file.Close()
				in = file
			}
			otherwise := producer.Job{NewJob: client.NewJob{Pri: j.pri, Delay: j.delay, TTR: j.ttr}}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				return importJobs(ctx, c, p, cmd.ErrOrStderr(), in, tube, otherwise)
			})
		},
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "the tube, in place of those in the file")
	j.register(cmd.Flags(), " of jobs of which the file does not tell")
	f.register(cmd)
	f.completeTubes(cmd, 0, "tube")
	cmd.ValidArgsFunction = nil // a file
	return cmd
}

func importJobs(ctx context.Context, c *client.Conn, p *printer, errs io.Writer, in io.Reader, tube string, otherwise producer.Job) error {
	most, err := maxJobSize(ctx, c)
	if err != nil {
		return err
	}
	return feed(ctx, c, p, errs, most, producer.NewFile(interruptible(ctx, in), most, func(j *jobfile.Job) (producer.Job, error) {
		if tube != "" {
			j.Tube = tube
		}
		if j.Tube == "" {
			return producer.Job{}, fmt.Errorf("there is no tube in it: give --tube")
		}
		return producer.Restore(j, otherwise)
	}))
}
