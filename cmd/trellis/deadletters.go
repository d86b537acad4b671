package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Say where jobs go that fail again and again",
		Long: `Say where jobs go that fail again and again: a job whose reservations have ended so many times by a release or a time-out is
buried in another tube, its dead-letter queue. A kick there gives it its attempts again.

A stock beanstalkd does not have dead-letter queues.

` + exitHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	mistakesAreUsage(cmd)
	cmd.AddCommand(listDeadLettersCommand(), setDeadLettersCommand(), unsetDeadLettersCommand())
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tubes that have a dead-letter queue",
		Long: `List the tubes that have a dead-letter queue, by name.

JSON has the keys of list-dlq.

` + exitHelp,
		Example: "  trellis dlq list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				settings, err := c.DeadLetters(ctx)
				if err != nil {
					return err
				}
				l := p.list(column{head: "TUBE", key: "tube"}, counted("ATTEMPTS", "max-attempts"), column{head: "DEAD TUBE", key: "dead-tube"})
				for _, s := range settings {
					if err := l.add(s); err != nil {
						return err
					}
				}
				l.end()
				if l.n == 0 {
					return nothingFound(errors.New("no tube has a dead-letter queue"))
				}
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func setDeadLettersCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "set TUBE ATTEMPTS DEAD-TUBE",
		Short: "Give a tube a dead-letter queue",
		Long: `Have jobs of TUBE that have failed ATTEMPTS times buried in DEAD-TUBE, which may be TUBE itself. It counts for jobs that are
there already, from their next failure on.

JSON is an object with the keys of list-dlq.

` + exitHelp,
		Example: "  trellis dlq set mail 5 mail.failed",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			attempts, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || attempts == 0 {
				return usageError(fmt.Errorf("%q is not a number of attempts", args[1]))
			}
			if err := cmp.Or(client.CheckTube(args[0]), client.CheckTube(args[2])); err != nil {
				return usageError(err)
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				if err := c.SetDeadLetters(ctx, args[0], uint32(attempts), args[2]); err != nil {
					return err
				}
				return p.result(
					fmt.Sprintf("jobs of tube %s go to %s after %s", args[0], args[2], operate.Counted(attempts, "attempt")),
					client.Fields{text("tube", args[0]), number("max-attempts", attempts), text("dead-tube", args[2])},
				)
			})
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 3)
	return cmd
}

func unsetDeadLettersCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "unset TUBE",
		Short: "Let jobs of a tube fail as often as they do",
		Long: `Take a tube's dead-letter queue away. Jobs that are there stay there.

JSON is an object with tube and max-attempts, 0.

` + exitHelp,
		Example: "  trellis dlq unset mail",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := client.CheckTube(args[0]); err != nil {
				return usageError(err)
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				if err := c.SetDeadLetters(ctx, args[0], 0, args[0]); err != nil {
					return err
				}
				return p.result(fmt.Sprintf("jobs of tube %s stay there", args[0]), client.Fields{text("tube", args[0]), number("max-attempts", 0)})
			})
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}
