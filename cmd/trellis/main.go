package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(runUntilSignalled(newCommand())) }

// runUntilSignalled returns the exit status.
func runUntilSignalled(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	return run(ctx, cmd)
}

// run returns the exit status.
func run(ctx context.Context, cmd *cobra.Command) int {
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "trellis:", visible(err.Error()))
	return exitStatus(err)
}

func newCommand() *cobra.Command {
	root := commands(&cobra.Command{
		Use:   "trellis",
		Short: "Operate, measure and check servers that speak the beanstalkd protocol, and what they have on disk",
		Long: `Operate, measure and check servers that speak the beanstalkd protocol, and what they have on disk.

What asks a server takes its address from -a, TRELLIS_ADDR or BEANSTALKD_URL; other flags that have a variable name
it in their help. It works with trellisd and with a stock beanstalkd, and says which command the server lacks for the
rest.

Tables are for people and may change. With -o json, ndjson or yaml the output has the keys of the protocol, and
numbers without units. What comes from a job or a server cannot control a terminal: it is escaped, and peek --raw
refuses to write such a body there. "trellis completion" makes completions for shells, which also complete the
server's tubes.

` + exitHelp + `

For bench, binlog, ping and token it is 1 after any trouble, and for binlog 2 when a log is damaged.`,
		Example:       examples,
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	mistakesAreUsage(root)
	root.AddCommand(benchCommand(), binlogCommand(), clusterCommand(), pingCommand(), tokenCommand())
	root.AddCommand(tubesCommand(), statsCommand(), connectionsCommand(), kickConnectionCommand(), accountsCommand(),
		groupCommand(), consoleCommand(), jobsCommand(), peekCommand())
	for i := range jobCommands {
		root.AddCommand(jobCommands[i].command())
	}
	root.AddCommand(clearCommand())
	root.AddCommand(pauseCommand(), resumeCommand(), drainCommand(), undrainCommand(), reloadCommand(),
		deadLettersCommand(), settingsCommand())
	root.AddCommand(putCommand(), exportJobsCommand(), importJobsCommand(), topCommand(), watchCommand(), workCommand(),
		cronCommand(), mcpCommand(), minderCommand())
	root.AddCommand(buildCommands...)
	return root
}

// commands completes a command that only has others below it: by itself it shows its help.
func commands(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs // so that a mistyped command is an error
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// buildCommands are those that only the build has use for.
var buildCommands []*cobra.Command
