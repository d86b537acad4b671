package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"trellis/cmd/trellis/internal/assistant"
)

func mcpCommand() *cobra.Command {
	var f serverFlags
	var servers []string
	var write bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let an assistant or an editor look at servers, over the Model Context Protocol",
		Long: `Serve the Model Context Protocol on standard input and output, for an assistant or an editor that starts it.

Its tools tell of servers, tubes, settings, why a tube is held back, jobs, bodies, groups and connections. With --write
there are kick, bury, delete, move and pause too, for jobs with given ids, or of a tube, a state and a count. All jobs
of a tube need a confirmation, for which the assistant is told to ask. A token's rights hold.

Bodies are cut to 16384 bytes and marked as data that strangers wrote. An assistant may take them for orders
nevertheless: give --write only where somebody looks at what it does.`,
		Example: `  trellis mcp -a queue.example:11300 --tls --token-file reader.token
  trellis mcp --server 127.0.0.1 --server unix:/run/trellis.sock --write`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfgs, err := f.consoles(servers, write, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			var all []assistant.Server
			for _, c := range cfgs {
				all = append(all, assistant.Server{Name: c.Server, Dial: c.Dial})
			}
			if err = assistant.Serve(cmd.Context(), all, write, &mcp.StdioTransport{}); errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	f.registerServers(cmd.Flags(), &servers)
	cmd.Flags().BoolVar(&write, "write", false, "offer the tools that change jobs and tubes")
	mistakesAreUsage(cmd)
	return cmd
}
