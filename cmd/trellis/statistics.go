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
		Long: `List the server's tubes by name, each with its statistics. In GLOB, * stands for any characters and ? for one.
LIMITED is what keeps a tube from handing out jobs: pause, rate or reserved. TOTAL is how many jobs were ever put, PAUSED what is
left of a pause, and yes for one until trellis resume.

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

func connectionsCommand() *cobra.Command {
	var limit uint64
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List who is connected",
		Long: `List the server's connections by their ids: who each of them is, what it uses and holds, and what it has sent and received.
HELD is how many jobs it has reserved, WAITING for how long it has waited for one.

JSON has the keys of list-connections. A stock beanstalkd does not have the command; trellis stats tells how many there are.`,
		Example: "  trellis connections --limit 20",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().Uint64Var(&limit, "limit", 1000, "so many at most; 0: all")
	return serverCommand(cmd, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		return listConnections(ctx, c, p, limit)
	})
}

// connectionsAtOnce are in one reply.
const connectionsAtOnce = 1000

func listConnections(ctx context.Context, c *client.Conn, p *printer, limit uint64) error {
	l := p.list(
		column{head: "ID", key: "id", right: true},
		column{head: "ADDRESS", key: "addr"},
		column{head: "USING", key: "tube"},
		counted("WATCHING", "watching-count"), counted("HELD", "reserved-count"),
		column{head: "WAITING", key: "waiting-time", right: true, show: asWait},
		column{head: "AGE", key: "age", right: true, show: asTime},
		counted("COMMANDS", "commands"),
		column{head: "IN", key: "bytes-in", right: true, show: asSize},
		column{head: "OUT", key: "bytes-out", right: true, show: asSize},
		column{head: "NAME", key: "name"},
	)
	for after := uint64(0); limit == 0 || uint64(l.n) < limit; {
		n := uint64(connectionsAtOnce)
		if limit != 0 {
			n = min(n, limit-uint64(l.n))
		}
		page, err := c.Connections(ctx, n, after)
		if err != nil {
			return err
		}
		for _, conn := range page {
			if err := l.add(conn); err != nil {
				return err
			}
			if id := conn.Uint("id"); id > after {
				after = id
			} else {
				return errors.New("the server's list of connections is not in the order of their ids")
			}
		}
		if uint64(len(page)) < n {
			break
		}
	}
	l.end()
	return nil
}

func asWait(v client.Value) string {
	if v.Text == "0" {
		return "-"
	}
	return asTime(v)
}
