// Command trellis is the operator's tool: it looks at a server's tubes, jobs and connections and does things to them;
// `trellis bench` measures any server that speaks the beanstalkd protocol, and checks that it keeps its promises; `trellis
// binlog` checks and reads what a server has on disk; `trellis cluster` looks after servers that are one; `trellis ping` asks
// whether one answers; `trellis token` makes tokens for its clients.
//
// The exit status of a command that speaks to a server or to a cluster is 0 when it is done, 1 when nothing was found, 2 when the
// command line is wrong, 3 when nobody was reached, and 4 when it was refused; 130 when it was interrupted. That of binlog is 2
// when a binlog is damaged, and 1 for any other trouble; that of bench is 1, also when a server that was measured lost,
// duplicated or corrupted a job or answered with an error; those of ping and token are 1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "trellis:", visible(err.Error()))
		os.Exit(exitStatus(err))
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "trellis",
		Short: "Operate, measure and check servers that speak the beanstalkd protocol, and what they have on disk",
		Long: `Operate, measure and check servers that speak the beanstalkd protocol, and what they have on disk.

What asks a server takes its address from -a, TRELLIS_ADDR or BEANSTALKD_URL. It works with trellisd and with a stock beanstalkd, and
says which command the server lacks for the rest.

` + exitHelp + `

For bench, binlog, ping and token it is 1 after any trouble, and for binlog 2 when a log is damaged.`,
		Args:          cobra.NoArgs, // so that a mistyped command is an error
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	mistakesAreUsage(root)
	root.AddCommand(benchCommand(), binlogCommand(), clusterCommand(), pingCommand(), tokenCommand())
	root.AddCommand(tubesCommand(), statsCommand(), connectionsCommand(), consoleCommand(), jobsCommand(), peekCommand())
	root.AddCommand(kickCommand(), buryCommand(), deleteCommand(), moveCommand(), copyCommand(), clearCommand())
	root.AddCommand(pauseCommand(), resumeCommand(), drainCommand(), undrainCommand(), deadLettersCommand())
	root.AddCommand(putCommand(), exportJobsCommand(), importJobsCommand(), topCommand(), watchCommand(), workCommand(), minderCommand())
	root.AddCommand(buildCommands...)
	return root
}

// buildCommands are those that only the build has use for.
var buildCommands []*cobra.Command
