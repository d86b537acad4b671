package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"trellis/binlog/inspect"
	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/cmd/trellis/internal/jobfile"
)

func exportJobsCommand() *cobra.Command {
	var f serverFlags
	var states []string
	cmd := &cobra.Command{
		Use:   "export TUBE",
		Short: "Write the jobs of a tube, and leave them there",
		Long: `Write all jobs of a tube as JSON, an object a line: what stats-job says of the job, and its body in "body"
or, if it is not UTF-8, in "body-base64". Nothing is reserved and nothing changes. trellis import puts them back.

The jobs are written by state, each state in the order in which its jobs would be taken. A job is written once at
most. While others work on the tube, it is written in the state that it has when it is read, and a job that changes
its state at the right moment is left out: pause the tube, and wait until none is reserved, to get exactly what is
there.

The server needs the extension list-jobs: a stock beanstalkd shows only the first job of each state, so its tubes
cannot be exported.

` + exitHelp,
		Example: `  trellis export mail >mail.ndjson
  trellis export mail --state buried | jq -r .body`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := parseStates(states)
			if err := errors.Join(client.CheckTube(args[0]), err); err != nil {
				return usageError(err)
			}
			e := export{tube: args[0], states: of, out: bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)}
			ctx := cmd.Context()
			c, err := f.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return f.explain(c.Addr(), e.run(ctx, c, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringSliceVarP(&states, "state", "s", nil,
		"only ready, reserved, delayed or buried ones; several with commas")
	f.registerServer(cmd)
	f.completeTubes(cmd, 1)
	completeStates(cmd, client.States)
	return cmd
}

type export struct {
	tube       string
	states     []client.State
	writtenIDs inspect.IDSet // the ids of jobs written
	out        *bufio.Writer
	n          uint64 // jobs written
}

func (e *export) run(ctx context.Context, c *client.Conn, errs io.Writer) error {
	progress := &progressLine{}
	if !isTerminal(os.Stdout) {
		progress = newProgressLine(errs)
	}
	defer progress.clear()
	if _, err := operate.StatsTube(ctx, c, e.tube); err != nil { // before a server that lacks list-jobs is told so
		return err
	}
	for _, s := range e.states {
		err := operate.Each(ctx, c, e.tube, s, 0, func(page []client.Fields) error {
			err := e.page(ctx, c, page)
			progress.write(jobsIn(e.n, "") + " written")
			return err
		})
		if errors.Is(err, client.ErrNotFound) { // the tube has gone since
			break
		}
		if err != nil {
			if flushed := e.out.Flush(); !errors.Is(err, flushed) { // which is its error again
				err = errors.Join(err, flushed)
			}
			return err
		}
	}
	if err := e.out.Flush(); err != nil {
		return fmt.Errorf("writing the jobs: %w", err)
	}
	if e.n == 0 {
		return nothingFound(fmt.Errorf("there is no such job in tube %q", e.tube))
	}
	return nil
}

// page writes the jobs of a page that have not been written yet and are still there.
func (e *export) page(ctx context.Context, c *client.Conn, page []client.Fields) error {
	page = slices.DeleteFunc(page, func(f client.Fields) bool {
		id := f.Uint("id")
		again := e.writtenIDs.Has(id)
		e.writtenIDs.Add(id)
		return again
	})
	var job *jobfile.Job // whose body comes next; nil: it has gone
	var line []byte
	return c.Pipeline(ctx, 2*len(page), func(i int) client.Command {
		return client.Command{Line: fmt.Sprintf("%s %d", []string{"stats-job", "peek"}[i%2], page[i/2].Uint("id"))}
	}, func(i int, r client.Reply) (err error) {
		if i%2 == 0 {
			stats, err := c.FieldsOf("stats-job", r)
			job = exported(stats)
			return err
		}
		peeked, err := c.Peeked(r)
		if errors.Is(err, client.ErrNotFound) || err == nil && job == nil {
			return nil
		}
		if err != nil {
			return err
		}
		job.Body = peeked.Body
		if line, err = job.AppendLine(line[:0]); err != nil {
			return err
		}
		if _, err = e.out.Write(visibleJSON(line)); err != nil {
			return fmt.Errorf("writing the jobs: %w", err)
		}
		e.n++
		return nil
	})
}

// exported is a job as stats-job tells of it, nil if there are no statistics.
func exported(stats client.Fields) *jobfile.Job {
	if stats == nil {
		return nil
	}
	number := func(key string) *uint32 {
		n := uint32(min(stats.Uint(key), math.MaxUint32))
		return &n
	}
	j := &jobfile.Job{
		ID: stats.Uint("id"), Tube: stats.Text("tube"), State: stats.Text("state"),
		Pri: number("pri"), Age: stats.Uint("age"), Delay: number("delay"), TTR: number("ttr"),
		Reserves: stats.Uint("reserves"), Timeouts: stats.Uint("timeouts"), Releases: stats.Uint("releases"),
		Buries: stats.Uint("buries"), Kicks: stats.Uint("kicks"),
	}
	if s := client.State(j.State); s == client.Delayed || s == client.Reserved {
		j.TimeLeft = number("time-left")
	}
	return j
}
