package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func tubesCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "tubes [GLOB]",
		Short: "List tubes with their jobs and clients",
		Long: `List the server's tubes by name, each with its statistics. In GLOB, * stands for any characters and ? for one.
TOTAL is how many jobs were ever put, PAUSED what is left of a pause, and yes for one until trellis resume.

JSON has the keys of stats-tube.

` + exitHelp,
		Example: `  trellis tubes
  trellis tubes 'mail/*' -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			glob := "*"
			if len(args) > 0 {
				glob = args[0]
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error { return listTubes(ctx, c, p, glob) })
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}

// tubesAtOnce are asked about before any is written. Only a table needs memory for all of them.
const tubesAtOnce = 1000

func listTubes(ctx context.Context, c *client.Conn, p *printer, glob string) error {
	tubes, err := c.Tubes(ctx)
	if err != nil {
		return err
	}
	tubes = matching(tubes, glob)
	l := p.list(columnsOf(operate.List)...)
	for len(tubes) > 0 {
		n := min(len(tubes), tubesAtOnce)
		stats, err := c.StatsTubes(ctx, tubes[:n])
		if err != nil {
			return err
		}
		for _, s := range stats {
			if s == nil { // it has gone since
				continue
			}
			if err := l.add(s); err != nil {
				return err
			}
		}
		tubes = tubes[n:]
	}
	l.end()
	if l.n == 0 {
		return nothingFound(fmt.Errorf("no tube matches %q", glob))
	}
	return nil
}

// matching are the tubes that match a pattern of * and ?, in order.
func matching(tubes []string, glob string) (found []string) {
	pattern := regexp.QuoteMeta(glob)
	pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, `\*`, `.*`), `\?`, `.`)
	matches := regexp.MustCompile(`(?s)\A` + pattern + `\z`)
	for _, tube := range tubes {
		if matches.MatchString(tube) {
			found = append(found, tube)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
