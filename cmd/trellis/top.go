package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/cmd/trellis/internal/top"
)

func topCommand() *cobra.Command {
	var f serverFlags
	var v topView
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a server's tubes live",
		Long: `Show the tubes of a server with their jobs, rates and clients, again and again, until q is pressed; ? shows
the other keys.

A server may have very many tubes: each time, --limit of them are asked about, the first ones by name that have
--filter in their names, and the view says so. Sorted by name, all can be seen: then only those on the screen are
asked about.

IN/S and OUT/S are jobs put and deleted in a second. AGE is for how long the oldest ready job has been ready. WAIT is
for how long the jobs that were reserved since the last look had been ready, on average, and BUSY how many were
reserved at once, on average: how many workers the tube keeps busy. LIMITED is what keeps the tube from handing out
jobs: a pause, its rate, or as many reserved jobs as its setting lets be. A stock beanstalkd does not tell AGE, WAIT
and BUSY.

With --once, or when the output is no terminal, one table is printed, with rates over --interval. JSON has the keys
of stats-tube and stats-tube-x that the table has, total-jobs and cmd-delete, and rate-in, rate-out, age, wait and
busy. Cmd-delete leaves out what flush-tube has deleted.

` + exitHelp,
		Example: `  trellis top
  trellis top --filter mail/ --sort buried
  trellis top --once -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.query.Sort = strings.ToUpper(v.query.Sort)
			if !slices.Contains(top.Titles(), v.query.Sort) || v.interval < time.Second/10 || v.collector.Limit < 1 {
				return usageError(errors.New(
					"--sort is the heading of a column, --interval at least 0.1 s, and --limit at least 1"))
			}
			return v.run(cmd, &f)
		},
	}
	cmd.Flags().DurationVarP(&v.interval, "interval", "i", 2*time.Second, "time between two looks")
	cmd.Flags().StringVar(&v.query.Sort, "sort", "ready", "the column to sort by: its heading")
	cmd.Flags().BoolVarP(&v.query.Reverse, "reverse", "r", false, "sort the other way round")
	cmd.Flags().StringVar(&v.query.Filter, "filter", "", "only tubes with this in their names")
	cmd.Flags().IntVarP(&v.collector.Limit, "limit", "n", client.MaxStatsTubes, "ask about so many tubes at most")
	cmd.Flags().BoolVar(&v.once, "once", false, "print one table")
	complete(cmd, "sort", strings.Fields(strings.ToLower(strings.Join(top.Titles(), " ")))...)
	f.register(cmd)
	f.completeTubes(cmd, 0)
	return cmd
}

// maxTopReply bounds the list of tubes that a server may answer with: 300,000 of the longest names.
const maxTopReply = 64 << 20

type topView struct {
	collector top.Collector
	query     top.Query
	interval  time.Duration
	once      bool
}

func (v *topView) run(cmd *cobra.Command, f *serverFlags) error {
	p, err := f.output.printer(cmd.OutOrStdout())
	if err != nil {
		return usageError(err)
	}
	a, _, err := f.server()
	if err != nil {
		return err
	}
	v.collector.Now = time.Now
	v.collector.Dial = func(ctx context.Context) (*client.Conn, error) {
		c, err := f.dial(ctx)
		if err == nil {
			c.MaxBody = maxTopReply
		}
		return c, err
	}
	defer v.collector.Close()
	ctx := cmd.Context()
	if v.once || !p.terminal || p.format != "table" || !isTerminal(cmd.InOrStdin()) {
		return f.explain(a.String(), errors.Join(v.table(ctx, p, cmd.ErrOrStderr()), p.err()))
	}
	first, err := v.collector.Look(ctx, v.query) // its error is that of the command
	if err != nil {
		return f.explain(a.String(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looks := &looker{&v.collector, make(chan struct{}, 1)}
	m := top.NewModel(ctx, looks, first, v.query, v.interval, a.String(), visible)
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler(),
		tea.WithInput(os.Stdin), tea.WithOutput(os.Stdout)).Run()
	if cmd.Context().Err() != nil { // a signal
		err = nil
	}
	cancel()
	looks.end() // the collector is to be closed
	return err
}

// A looker is a collector whose end can be waited for: bubbletea does not wait for what it has begun.
type looker struct {
	*top.Collector
	busy chan struct{} // has room for one look
}

// Look implements top.Looker.
func (l *looker) Look(ctx context.Context, q top.Query) (*top.Sample, error) {
	l.busy <- struct{}{}
	defer func() { <-l.busy }()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.Collector.Look(ctx, q)
}

// end returns when no look is under way. The looks' context must have ended, so that none begins.
func (l *looker) end() { l.busy <- struct{}{} }

// table prints one table. Rates need two looks.
func (v *topView) table(ctx context.Context, p *printer, errs io.Writer) error {
	v.query.Rows = v.collector.Limit
	if _, err := v.collector.Look(ctx, v.query); err != nil {
		return err
	}
	select {
	case <-time.After(v.interval):
	case <-ctx.Done():
		return ctx.Err()
	}
	s, err := v.collector.Look(ctx, v.query)
	if err != nil {
		return err
	}
	l := p.list(columnsOf(operate.Top)...)
	for i := range s.Tubes {
		if err := l.add(s.Tubes[i].Fields(operate.TopJSON)); err != nil {
			return err
		}
	}
	l.end()
	if n := s.Matched - len(s.Tubes); n > 0 {
		fmt.Fprintf(errs, "these are the first %s tubes by name; %s more are left out: see --limit and --filter\n",
			operate.Count(len(s.Tubes)), operate.Count(n))
	}
	if s.Matched == 0 {
		return nothingFound(fmt.Errorf("no tube has %q in its name", v.query.Filter))
	}
	return nil
}
