package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/top"
)

func topCommand() *cobra.Command {
	var f serverFlags
	var v topView
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a server's tubes live",
		Long: `Show the tubes of a server with their jobs, rates and clients, again and again, until q is pressed; ? shows the other keys.

A server may have very many tubes: each time, --limit of them are asked about, the first ones by name that have --filter in
their names, and the view says so. Sorted by name, all can be seen: then only those on the screen are asked about.

IN/S and OUT/S are jobs put and deleted in a second. AGE is that of the job that would be taken next: of the oldest ready one,
if all have one priority. A stock beanstalkd does not tell it.

With --once, or when the output is no terminal, one table is printed, with rates over --interval. JSON has the keys of stats-tube
that the table has, total-jobs and cmd-delete, and rate-in, rate-out and age.

` + exitHelp,
		Example: `  trellis top
  trellis top --filter mail/ --sort buried
  trellis top --once -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.query.Sort = strings.ToUpper(v.query.Sort)
			known := false
			for _, c := range top.Columns {
				known = known || c.Title == v.query.Sort
			}
			if !known || v.interval < time.Second/10 || v.collector.Limit < 1 {
				return usageError(errors.New("--sort is the heading of a column, --interval at least 0.1 s, and --limit at least 1"))
			}
			return v.run(cmd, &f)
		},
	}
	var titles []string
	for _, c := range top.Columns {
		titles = append(titles, strings.ToLower(c.Title))
	}
	cmd.Flags().DurationVarP(&v.interval, "interval", "i", 2*time.Second, "time between two looks")
	cmd.Flags().StringVar(&v.query.Sort, "sort", "ready", "the column to sort by: its heading")
	cmd.Flags().BoolVarP(&v.query.Reverse, "reverse", "r", false, "sort the other way round")
	cmd.Flags().StringVar(&v.query.Filter, "filter", "", "only tubes with this in their names")
	cmd.Flags().IntVarP(&v.collector.Limit, "limit", "n", 500, "ask about so many tubes at most")
	cmd.Flags().BoolVar(&v.once, "once", false, "print one table")
	complete(cmd, "sort", titles...)
	f.register(cmd)
	f.completeTubes(cmd, 0)
	return cmd
}

// maxTopReply bounds the list of tubes that a server may answer with: 300,000 of the longest names.
const maxTopReply = 64 << 20

// topView is what to show, and how.
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
	l := p.list(
		column{head: "TUBE", key: "name"},
		counted("READY", "current-jobs-ready"), counted("RESERVED", "current-jobs-reserved"), counted("DELAYED", "current-jobs-delayed"),
		alarming("BURIED", "current-jobs-buried"),
		column{head: "IN/S", key: "rate-in", right: true}, column{head: "OUT/S", key: "rate-out", right: true},
		counted("WAITING", "current-waiting"), counted("WATCHING", "current-watching"),
		column{head: "AGE", key: "age", right: true, show: asTime},
		column{head: "PAUSED", key: "pause-time-left", right: true, show: asPause, style: ifAny(yellow)},
	)
	for i := range s.Tubes {
		if err := l.add(tubeFields(&s.Tubes[i])); err != nil {
			return err
		}
	}
	l.end()
	if n := s.Matched - len(s.Tubes); n > 0 {
		fmt.Fprintf(errs, "these are the first %s tubes by name; %s more are left out: see --limit and --filter\n",
			grouped(uint64(len(s.Tubes))), grouped(uint64(n)))
	}
	if s.Matched == 0 {
		return nothingFound(fmt.Errorf("no tube has %q in its name", v.query.Filter))
	}
	return nil
}

// tubeFields is a tube with the keys of the protocol, and others for what the protocol does not tell.
func tubeFields(t *top.Tube) client.Fields {
	f := client.Fields{
		text("name", t.Name), number("current-jobs-ready", t.Ready), number("current-jobs-reserved", t.Reserved),
		number("current-jobs-delayed", t.Delayed), number("current-jobs-buried", t.Buried),
		number("current-waiting", t.Waiting), number("current-watching", t.Watching),
		number("total-jobs", t.Total), number("cmd-delete", t.Deleted), number("pause-time-left", t.Pause),
	}
	f = append(f, rateFields("rate-in", t.In)...)
	f = append(f, rateFields("rate-out", t.Out)...)
	if t.Age != top.Unknown {
		f = append(f, number("age", uint64(t.Age)))
	}
	return f
}

// rateFields is a field with a rate, none if it is not known.
func rateFields(key string, rate float64) client.Fields {
	if rate == top.Unknown {
		return nil
	}
	return client.Fields{{Key: key, Value: client.Value{Kind: client.Number, Text: strconv.FormatFloat(rate, 'f', 1, 64)}}}
}
