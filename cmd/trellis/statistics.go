package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func statsCommand() *cobra.Command {
	var tube string
	var job uint64
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show statistics of the server, of a tube or of a job",
		Long: `Show statistics of the server, or with --tube of a tube, or with --job of a job.

JSON has the keys of stats, stats-tube and stats-job. Tables show times and sizes with their units.`,
		Example: `  trellis stats
  trellis stats --tube mail -o json
  trellis stats --job 17`,
		Args: cobra.MatchAll(cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("tube") && cmd.Flags().Changed("job"):
				return errors.New("give either --tube or --job")
			case cmd.Flags().Changed("tube"):
				return client.CheckTube(tube)
			}
			return nil
		}),
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "of this tube")
	cmd.Flags().Uint64Var(&job, "job", 0, "of the job with this id")
	return serverCommand(cmd, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		stats, err := statsOf(ctx, c, cmd, tube, job)
		if err != nil {
			return err
		}
		return p.object(stats)
	}, "tube")
}

func statsOf(ctx context.Context, c *client.Conn, cmd *cobra.Command, tube string, job uint64) (client.Fields, error) {
	switch {
	case cmd.Flags().Changed("tube"):
		return operate.StatsTube(ctx, c, tube)
	case cmd.Flags().Changed("job"):
		stats, err := c.StatsJob(ctx, job)
		if errors.Is(err, client.ErrNotFound) {
			err = noJob(job)
		}
		return stats, err
	}
	return c.Stats(ctx)
}

func noJob(id uint64) error { return nothingFound(fmt.Errorf("there is no job %d", id)) }

func tubesCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "tubes [GLOB]",
		Short: "List tubes with their jobs and clients",
		Long: `List the server's tubes by name, each with its statistics. In GLOB, * stands for any characters and ? for
one. LIMITED is what keeps a tube from handing out jobs: pause, rate or reserved. TOTAL is how many jobs were ever
put, PAUSED what is left of a pause, and yes for one until trellis resume.

JSON has the keys of stats-tube. trellis top -o json has what limits a tube, too.`,
		Example: `  trellis tubes
  trellis tubes 'mail/*' -o json`,
		Args: cobra.MaximumNArgs(1),
	}, 1, listTubes)
}

// tubesAtOnce are asked about before any is written. Only a table needs memory for all of them.
const tubesAtOnce = 1000

func listTubes(ctx context.Context, c *client.Conn, p *printer, args []string) error {
	tubes, err := c.Tubes(ctx)
	if err != nil {
		return err
	}
	matches, glob := globOf(args)
	tubes = slices.DeleteFunc(tubes, func(tube string) bool { return !matches(tube) })
	slices.Sort(tubes)
	tubes = slices.Compact(tubes)
	l := p.list(columnsOf(operate.List)...)
	for len(tubes) > 0 {
		n := min(len(tubes), tubesAtOnce)
		var stats []client.Fields
		if p.format == "table" {
			stats, err = operate.AllStatsTubes(ctx, c, tubes[:n])
		} else {
			stats, err = c.StatsTubes(ctx, tubes[:n])
		}
		if err != nil {
			return err
		}
		for i, s := range stats {
			if s == nil { // it has gone since
				continue
			}
			if p.format == "table" {
				s = append(s, text("limited-by", operate.TubeOf(tubes[i], s).Limited)) // also where the server does not tell
			}
			if err := l.add(s); err != nil {
				return err
			}
		}
		tubes = tubes[n:]
	}
	return l.all(nil, "no tube matches %q", glob)
}

// globOf is the pattern of * and ? that is the first argument, or that of everything, and tells what matches it.
func globOf(args []string) (matches func(string) bool, glob string) {
	glob = "*"
	if len(args) > 0 {
		glob = args[0]
	}
	pattern := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(glob))
	return regexp.MustCompile(`(?s)\A` + pattern + `\z`).MatchString, glob
}

func accountsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "accounts",
		Short: "List what each account holds, and may hold",
		Long: `List the accounts of the server's authentication file: what each of them holds, and behind it how much it
may. WAITS is how often one of its clients had to wait because of the rate. A client without the right admin sees its
own account.

JSON has the keys of list-accounts, which also tells which tubes are an account's and what was refused. A limit of 0
is none.`,
		Example: "  trellis accounts\n  trellis accounts -o json | jq '.[] | select(.[\"refused-jobs\"] > 0).name'",
		Args:    cobra.NoArgs,
	}, 0, listAccounts)
}

func listAccounts(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
	accounts, err := c.Accounts(ctx)
	if err != nil {
		return err
	}
	limit := func(head, key string, show func(client.Value) string) column {
		return column{head: head, key: key, right: true, show: func(v client.Value) string {
			if v.Text == "0" {
				return "-"
			}
			return show(v)
		}}
	}
	return p.list(
		column{head: "ACCOUNT", key: "name"},
		counted("JOBS", "jobs"), limit("MAX", "max-jobs", asCount),
		column{head: "MEMORY", key: "memory", right: true, show: asSize}, limit("MAX", "max-memory", asSize),
		counted("TUBES", "tubes"), limit("MAX", "max-tubes", asCount),
		counted("KEYS", "keys"), limit("MAX", "max-keys", asCount),
		counted("CONNECTIONS", "connections"), limit("MAX", "max-connections", asCount),
		limit("RATE", "rate", asCount), counted("WAITS", "rate-waits"),
	).all(accounts, "the server has no accounts")
}

func groupCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "group NAME",
		Short: "Show how far a group of jobs is",
		Long: `Show the counts of a group: pending, the jobs that were put with grp:NAME and are still there; buried, how
many of them are buried; and waiting-jobs, those that were put with aft:NAME and wait. Jobs wait until nothing is
pending, or with aft:NAME:settled until all that is pending is buried. A group that has neither is not known: it is
done, or never was.

JSON has the keys of stats-group.`,
		Example: `  trellis group import.20261124
  trellis group import.20261124 -o json | jq .pending`,
		Args: cobra.MatchAll(cobra.ExactArgs(1),
			func(_ *cobra.Command, args []string) error { return client.CheckGroup(args[0]) }),
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, args []string) error {
		stats, err := c.StatsGroup(ctx, args[0])
		if errors.Is(err, client.ErrNotFound) {
			err = nothingFound(fmt.Errorf("the group %s has no jobs, and none wait for it", args[0]))
		}
		if err != nil {
			return err
		}
		return p.object(stats)
	})
}
