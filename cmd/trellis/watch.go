package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/watch"
)

func watchCommand() *cobra.Command {
	var v watchView
	var states []string
	cmd := &cobra.Command{
		Use:   "watch TUBE",
		Short: "Show the new jobs of a tube as they come, without reserving any",
		Long: `List a tube again and again, and show the jobs that were not there before, until SIGINT or SIGTERM. Nothing
is reserved and nothing changes, so that workers do not notice; a job that comes and goes between two looks is not
seen. In a queue of more than 1000 jobs one that stands neither near its head nor at its end is shown later. New are
jobs that were put after the start: a job that was there is not shown when it changes its state.

JSON has the keys of list-jobs, state, and body or, if it is not UTF-8, body-base64.

The server needs the extension list-jobs, which a stock beanstalkd does not have.`,
		Example: `  trellis watch mail
  trellis watch mail --state ready,delayed -o ndjson | jq -r .body`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) (err error) {
			v.tube = args[0]
			v.states, err = parseStates(states)
			err = errors.Join(client.CheckTube(v.tube), err)
			if v.interval < time.Second/10 {
				err = errors.Join(err, errors.New("--interval is at least 0.1 s"))
			}
			return err
		}),
	}
	cmd.Flags().StringSliceVarP(&states, "state", "s", nil,
		"look only among ready, reserved, delayed or buried ones; several with commas")
	cmd.Flags().DurationVarP(&v.interval, "interval", "i", time.Second, "time between two looks")
	completeStates(cmd, client.States)
	return serverCommand(cmd, 1, v.run)
}

type watchView struct {
	tube     string
	states   []client.State
	interval time.Duration
}

func (v *watchView) run(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
	w, err := watch.Start(ctx, c, v.tube, v.states)
	if err != nil {
		return err
	}
	const layout = "%10s  %-8s  %10s  %8s  %s\n"
	if p.format == "table" && p.headers {
		fmt.Fprintf(p.w, layout, "ID", "STATE", "PRI", "SIZE", "BODY")
	}
	l := p.list()
	if err := p.err(); err != nil {
		return err
	}
	for {
		found, err := w.Look(ctx)
		if err == nil {
			err = withBodies(ctx, c, found, func(job client.Fields, body []byte) error {
				if p.format != "table" {
					return l.add(append(job, bodyField(body)))
				}
				size, _ := job.Get("size")
				fmt.Fprintf(p.w, layout, visible(job.Text("id")), job.Text("state"), visible(job.Text("pri")),
					visible(asSize(size)), visible(cut(string(body[:min(len(body), 4*excerpt)]), excerpt)))
				return nil
			})
		}
		if said := p.err(); err == nil {
			err = said
		}
		if err == nil {
			select {
			case <-time.After(v.interval):
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil { // as it is meant to end
			err = nil
			if p.format != "table" {
				l.end()
			}
		}
		return err
	}
}

// withBodies hands over jobs with their bodies. One that has gone meanwhile is left out.
func withBodies(
	ctx context.Context, c *client.Conn, jobs []watch.Job, show func(job client.Fields, body []byte) error,
) error {
	return c.Pipeline(ctx, len(jobs), func(i int) client.Command {
		return client.Command{Line: fmt.Sprintf("peek %d", jobs[i].ID)}
	}, func(i int, r client.Reply) error {
		job, err := c.Peeked(r)
		if errors.Is(err, client.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return show(slices.Insert(jobs[i].Listing, 1, text("state", string(jobs[i].State))), job.Body)
	})
}
