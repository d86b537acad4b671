package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func clearCommand() *cobra.Command {
	var cl clearing
	var state string
	cmd := &cobra.Command{
		Use:   "clear TUBE",
		Short: "Delete all jobs of a tube",
		Long: `Delete all jobs of a tube, or all in a state. Reserved ones are deleted too: who has reserved a job hears of
it by the NOT_FOUND to its next command. What is put meanwhile may stay.

On a terminal it shows what would be deleted, and asks; elsewhere it wants --yes.

A stock beanstalkd cannot delete reserved jobs: they stay, and the exit status is 4.

JSON is an object with deleted, how many were; with --dry-run it has ready, reserved, delayed and buried instead, how
many would be.`,
		Example: `  trellis clear mail --dry-run
  trellis clear mail --state buried --yes`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) (err error) {
			cl.tube = args[0]
			cl.states, err = oneOrAll(state)
			return cmp.Or(client.CheckTube(cl.tube), err)
		}),
	}
	cmd.Flags().StringVarP(&state, "state", "s", "", "only ready, reserved, delayed or buried ones")
	cmd.Flags().BoolVarP(&cl.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&cl.dry, "dry-run", false, "only tell what would be deleted")
	completeStates(cmd, client.States)
	return serverCommand(cmd, 1, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		return cl.run(ctx, cmd, c, p)
	})
}

type clearing struct {
	tube     string
	states   []client.State
	yes, dry bool
}

func (cl *clearing) run(ctx context.Context, cmd *cobra.Command, c *client.Conn, p *printer) error {
	stats, err := operate.StatsTube(ctx, c, cl.tube)
	if err != nil {
		return err
	}
	found := uint64(0)
	var parts []string
	var fields client.Fields
	for _, s := range cl.states {
		n := stats.Uint("current-jobs-" + string(s))
		found += n
		parts = append(parts, operate.Count(n)+" "+string(s))
		fields = append(fields, number(string(s), n))
	}
	what := strings.Join(parts, ", ")
	switch {
	case cl.dry:
		return p.result(fmt.Sprintf("would delete the jobs of tube %s: %s", cl.tube, what), fields)
	case found == 0:
		return nothingFound(fmt.Errorf("there is nothing to delete in tube %q: %s", cl.tube, what))
	}
	if !cl.yes {
		question := fmt.Sprintf("Delete the jobs of tube %s at %s: %s? [y/N] ", cl.tube, c.Addr(), what)
		if err := confirm(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question); err != nil {
			return err
		}
	}
	n, err := cl.delete(ctx, c, found)
	if err != nil && n > 0 {
		err = &partialError{err, fmt.Sprintf(" (%s deleted before)", jobsIn(n, ""))}
	}
	if err != nil {
		return err
	}
	return p.result(fmt.Sprintf("%s of tube %s deleted", jobsIn(n, ""), cl.tube), client.Fields{number("deleted", n)})
}

// delete deletes all jobs; where it has to go from state to state, at most as many as were found.
func (cl *clearing) delete(ctx context.Context, c *client.Conn, found uint64) (n uint64, err error) {
	has, err := c.Has(ctx, "flush-tube")
	if err != nil {
		return 0, err
	}
	if has && len(cl.states) > 1 {
		n, err = c.FlushTube(ctx, cl.tube)
		return n, operate.Gone(err)
	}
	var lacking error
	// Another round finds the jobs that have changed their states meanwhile. The bound ends it while others put.
	for more := true; more && n < found; {
		more = false
		for _, s := range cl.states {
			o, err := operate.Delete(ctx, c, &operate.Jobs{Tube: cl.tube, State: s, Most: found - n})
			n += o.Done
			more = more || o.Done > 0 && len(cl.states) > 1
			lacks := (*client.LacksError)(nil)
			switch {
			case err == nil:
			case errors.Is(err, client.ErrNotFound): // the tube has gone with its last job
				return n, nil
			case errors.As(err, &lacks):
				lacking = fmt.Errorf("the reserved jobs stay: %w", lacks)
			default:
				return n, err
			}
		}
	}
	if lacking != nil {
		stats, err := c.StatsTube(ctx, cl.tube)
		if errors.Is(err, client.ErrNotFound) || err == nil && stats.Uint("current-jobs-reserved") == 0 {
			return n, nil
		}
	}
	return n, lacking
}

// confirm asks on a terminal. Elsewhere nobody could answer.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if !isTerminal(in) || !isTerminal(out) {
		return usageError(errors.New("this is not a terminal, where it could ask: give --yes, or --dry-run"))
	}
	fmt.Fprint(out, visible(question))
	answer, err := bufio.NewReader(interruptible(ctx, in)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nothingFound(errors.New("nothing was deleted"))
}
