package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

const (
	completionPatience = 500 * time.Millisecond // a shell that waits longer feels broken
	completionTubes    = 1000
)

// complete has the shell offer words for a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag
	}
}

// completeTubes has the shell offer tubes for flags, and for arguments if args is above 0:
// for so many of them.
func (f *serverFlags) completeTubes(cmd *cobra.Command, args int, flags ...string) {
	for _, flag := range flags {
		if err := cmd.RegisterFlagCompletionFunc(flag, f.tubes); err != nil {
			panic(err) // there is no such flag
		}
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(given) >= args {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.tubes(cmd, given, begun)
	}
}

// tubes asks the server for tubes whose names begin so. What goes wrong completes nothing.
func (f *serverFlags) tubes(cmd *cobra.Command, _ []string, begun string) (found []string, _ cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	c, err := f.dial(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	c.MaxBody = 16 << 20
	all, err := c.Tubes(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, tube := range all {
		if strings.HasPrefix(tube, begun) && client.CheckTube(tube) == nil && len(found) < completionTubes {
			found = append(found, tube)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeStates has the shell offer states for the flag --state.
func completeStates(cmd *cobra.Command) {
	var words []string
	for _, s := range client.States {
		words = append(words, string(s))
	}
	complete(cmd, "state", words...)
}
