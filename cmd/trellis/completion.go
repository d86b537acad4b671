package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

const (
	completionTimeout = 500 * time.Millisecond // unless --timeout says otherwise: a shell that waits longer feels broken
	completionTubes   = 1000
	completionBytes   = 16 << 20 // of the list of tubes
)

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
func (f *serverFlags) tubes(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx := cmp.Or(cmd.Context(), context.Background())
	timeout := completionTimeout
	if cmd.Flags().Changed("timeout") {
		timeout = f.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := make(chan []string, 1)
	go func() { // a name server may take longer than the context lasts
		answer <- f.beginning(ctx, begun)
	}()
	select {
	case found := <-answer:
		return found, cobra.ShellCompDirectiveNoFileComp
	case <-ctx.Done():
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// beginning are the tubes whose names begin so, as far as the server tells them.
func (f *serverFlags) beginning(ctx context.Context, begun string) (found []string) {
	c, err := f.dial(ctx)
	if err != nil {
		return nil
	}
	defer c.Close()
	c.MaxBody = completionBytes
	all, err := c.Tubes(ctx)
	if err != nil {
		return nil
	}
	for _, tube := range all {
		if strings.HasPrefix(tube, begun) && client.CheckTube(tube) == nil && len(found) < completionTubes {
			found = append(found, tube)
		}
	}
	return found
}

func completeStates(cmd *cobra.Command, states []client.State) {
	complete(cmd, "state", wordsOf(states)...)
}

func wordsOf(states []client.State) (words []string) {
	for _, s := range states {
		words = append(words, string(s))
	}
	return words
}
