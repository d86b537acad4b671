package main

import (
	"context"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func drainCommand() *cobra.Command {
	return drainingCommand("drain", "Have the server take no new jobs", `Have the server answer every put with DRAINING, until trellis undrain or its end. All else goes on.

JSON is an object with draining, true. A stock beanstalkd does not have the command, and drains on SIGUSR1.`, true)
}

func undrainCommand() *cobra.Command {
	return drainingCommand("undrain", "Have the server take new jobs again", `Have the server take new jobs again, also if it drains because of SIGUSR1.

JSON is an object with draining, false. A stock beanstalkd cannot do that.`, false)
}

func drainingCommand(name, short, long string, on bool) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long + "\n\n" + exitHelp,
		Example: "  trellis " + name,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				do, sentence, value := c.Undrain, "it takes new jobs", "false"
				if on {
					do, sentence, value = c.Drain, "it drains: it takes no new jobs", "true"
				}
				if err := do(ctx); err != nil {
					return err
				}
				return p.result(sentence, client.Fields{{Key: "draining", Value: client.Value{Kind: client.Bool, Text: value}}})
			})
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}
