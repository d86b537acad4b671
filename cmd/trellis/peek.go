package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func peekCommand() *cobra.Command {
	var f serverFlags
	var tube, state string
	var raw bool
	cmd := &cobra.Command{
		Use:   "peek {ID | --tube TUBE [--state STATE]}",
		Short: "Show a job and its body, without reserving it",
		Long: `Show a job, or the first one of a tube in a state, with its statistics and its body. Nothing is reserved and nothing changes.

Bodies are shown as text; what is no text, and what could control a terminal, is escaped. --raw writes the body alone, byte for
byte, and refuses to write such a body to a terminal.

JSON has the keys of stats-job, and body, or body-base64 for one that is not UTF-8. A stock beanstalkd cannot show the first
reserved job.

` + exitHelp,
		Example: `  trellis peek 17
  trellis peek --tube mail --state buried
  trellis peek 17 --raw >body`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == cmd.Flags().Changed("tube") {
				return usageError(errors.New("give either the id of a job or --tube"))
			}
			if len(args) == 1 {
				id, err := parseID(args[0])
				if err != nil {
					return usageError(err)
				}
				return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
					job, err := c.Peek(ctx, id)
					if errors.Is(err, client.ErrNotFound) {
						err = noJob(id)
					}
					return showJob(ctx, c, p, job, err, raw)
				})
			}
			s, err := client.ParseState(state)
			if err := cmp.Or(err, client.CheckTube(tube)); err != nil {
				return usageError(err)
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				job, err := c.PeekTube(ctx, tube, s)
				if errors.Is(err, client.ErrNotFound) {
					err = nothingFound(fmt.Errorf("there is no %s job in tube %q", s, tube))
				}
				return showJob(ctx, c, p, job, err, raw)
			})
		},
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "the first job of this tube")
	cmd.Flags().StringVarP(&state, "state", "s", "ready", "with --tube: of the ready, reserved, delayed or buried ones")
	cmd.Flags().BoolVar(&raw, "raw", false, "only the body, byte for byte")
	f.register(cmd)
	f.completeTubes(cmd, 0, "tube")
	completeStates(cmd, client.States)
	return cmd
}

func showJob(ctx context.Context, c *client.Conn, p *printer, job client.Job, err error, raw bool) error {
	if err != nil {
		return err
	}
	if raw {
		if p.terminal && !plain(string(job.Body)) {
			return usageError(fmt.Errorf("the body of job %d could control the terminal: write it to a file, or leave out --raw", job.ID))
		}
		_, _ = p.w.Write(job.Body)
		return nil
	}
	stats, err := c.StatsJob(ctx, job.ID)
	if errors.Is(err, client.ErrNotFound) { // it has gone since
		err = noJob(job.ID)
	}
	if err != nil {
		return err
	}
	if p.format != "table" {
		return p.fields(append(stats, number("size", len(job.Body)), bodyField(job.Body)))
	}
	if err := p.object(append(stats, number("size", len(job.Body)))); err != nil {
		return err
	}
	body := visibleText(string(job.Body))
	fmt.Fprintf(p.w, "\n%s", body)
	if body != "" && body[len(body)-1] != '\n' {
		_, _ = p.w.WriteString("\n")
	}
	return nil
}
