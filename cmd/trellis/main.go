// Command trellis is the operator's tool: `trellis bench` measures any server that speaks the beanstalkd protocol, and
// checks that it keeps its promises; `trellis binlog` checks and reads what a server has on disk; `trellis cluster` looks
// after servers that are one; `trellis ping` asks whether one answers; `trellis token` makes tokens for its clients.
//
// The exit status is 0 when all went well, 2 when a binlog is damaged, and 1 otherwise, also when a server that was
// measured lost, duplicated or corrupted a job or answered with an error. `trellis cluster` has more: see its help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"trellis/binlog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "trellis:", err)
		os.Exit(exitStatus(err))
	}
}

func exitStatus(err error) int {
	if cluster := (*clusterError)(nil); errors.As(err, &cluster) {
		return cluster.status
	}
	if damage := (*binlog.DamageError)(nil); errors.As(err, &damage) {
		return 2
	}
	return 1
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "trellis",
		Short:         "Measure, check and operate servers that speak the beanstalkd protocol, and what they have on disk",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(benchCommand(), binlogCommand(), clusterCommand(), pingCommand(), tokenCommand(), workCommand(), minderCommand())
	root.AddCommand(buildCommands...)
	return root
}

// buildCommands are those that only the build has use for.
var buildCommands []*cobra.Command
