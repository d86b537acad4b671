package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func jobsCommand() *cobra.Command {
	var j jobList
	var state, grep string
	cmd := &cobra.Command{
		Use:   "jobs TUBE",
		Short: "List the jobs of a tube, without reserving any",
		Long: `List the jobs of a tube by state, each state in the order in which its jobs would be taken. Nothing is
reserved and nothing changes.

--grep shows only jobs whose bodies match a regular expression (RE2), and shows their bodies. It reads the bodies of all
jobs until --limit have been found; --grep '' shows all bodies.

Reserved jobs may be orphans, which linger because their workers have lost their connections (linger of set-tube). Below
the table stands how many of the tube's are; stats --tube tells it too, as current-jobs-orphaned.

JSON has the keys of list-jobs, and state; with --grep also body, or body-base64 for one that is not UTF-8. A stock
beanstalkd cannot list jobs; trellis peek shows its first ones.`,
		Example: `  trellis jobs mail --state buried
  trellis jobs mail --grep '"user": *17\b' -o ndjson`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) (err error) {
			j.tube = args[0]
			j.states, err = oneOrAll(state)
			if err = cmp.Or(client.CheckTube(j.tube), err); err == nil && cmd.Flags().Changed("grep") {
				if j.grep, err = regexp.Compile(grep); err != nil {
					err = fmt.Errorf("--grep: %w", err)
				}
			}
			return err
		}),
	}
	cmd.Flags().StringVarP(&state, "state", "s", "", "only ready, reserved, delayed or buried ones")
	cmd.Flags().Uint64VarP(&j.limit, "limit", "n", 100, "so many at most; 0: all")
	cmd.Flags().StringVar(&grep, "grep", "", "only jobs whose bodies match this regular expression")
	completeStates(cmd, client.States)
	return serverCommand(cmd, 1, j.list)
}

type jobList struct {
	tube   string
	states []client.State
	limit  uint64         // 0: none
	grep   *regexp.Regexp // nil: bodies do not matter
}

// errEnough ends a search.
var errEnough = errors.New("enough was found")

const excerpt = 60 // characters of a body in a table

func (j *jobList) list(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
	columns := []column{
		{head: "ID", key: "id", right: true},
		{head: "STATE", key: "state", style: func(v client.Value) style {
			if v.Text == string(client.Buried) {
				return red
			}
			return ""
		}},
		{head: "PRI", key: "pri", right: true},
		{head: "AGE", key: "age", right: true, show: asTime},
		{head: "LEFT", key: "time-left", right: true, show: asTime},
		{head: "SIZE", key: "size", right: true, show: asSize},
	}
	if j.grep != nil {
		columns = append(columns,
			column{head: "BODY", key: "body", show: func(v client.Value) string { return cut(v.Text, excerpt) }})
	}
	l := p.list(columns...)
	show := func(job client.Fields) error {
		if err := l.add(job); err != nil {
			return err
		}
		if uint64(l.n) == j.limit {
			return errEnough
		}
		return nil
	}
	for _, s := range j.states {
		err := operate.Each(ctx, c, j.tube, s, j.limitOfState(), func(page []client.Fields) error {
			for i := range page {
				page[i] = slices.Insert(page[i], min(1, len(page[i])), text("state", string(s)))
			}
			if j.grep != nil {
				return j.search(ctx, c, page, p.format == "table", show)
			}
			for _, job := range page {
				if err := show(job); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			break
		}
		if errors.Is(err, client.ErrNotFound) {
			if l.n > 0 { // the tube has gone since
				break
			}
			return &operate.NoTubeError{Tube: j.tube}
		}
		if err != nil {
			return err
		}
	}
	l.end()
	if l.n == 0 {
		return nothingFound(fmt.Errorf("there is no such job in tube %q", j.tube))
	}
	if p.format != "table" || !slices.Contains(j.states, client.Reserved) {
		return nil
	}
	return j.tellOrphans(ctx, c, p)
}

// tellOrphans says how many of the tube's reserved jobs linger. No list says which.
func (j *jobList) tellOrphans(ctx context.Context, c *client.Conn, p *printer) error {
	if has, err := c.Has(ctx, "stats-tube-x"); err != nil || !has {
		return err
	}
	f, err := c.StatsTubeX(ctx, j.tube)
	if err != nil {
		return operate.Gone(err)
	}
	if n := f.Uint("current-jobs-orphaned"); n > 0 {
		orphans := operate.Counted(n, "orphan")
		return p.result("of the tube's reserved jobs, "+orphans+": the workers have lost their connections", nil)
	}
	return nil
}

// limitOfState is how many jobs of each state may be wanted; 0: all.
func (j *jobList) limitOfState() uint64 {
	if j.grep != nil {
		return 0
	}
	return j.limit
}

// search shows those jobs of a page whose bodies match.
func (j *jobList) search(
	ctx context.Context, c *client.Conn, page []client.Fields, table bool, show func(client.Fields) error,
) error {
	return c.Pipeline(ctx, len(page), func(i int) client.Command {
		return client.Command{Line: fmt.Sprintf("peek %d", page[i].Uint("id"))}
	}, func(i int, r client.Reply) error {
		switch err := r.Check("peek", "FOUND"); {
		case errors.Is(err, client.ErrNotFound): // it has gone since
			return nil
		case err != nil:
			return err
		case !j.grep.Match(r.Body):
			return nil
		}
		field := bodyField(r.Body)
		if table {
			field = text("body", string(r.Body[:min(len(r.Body), 4*excerpt)]))
		}
		return show(append(page[i], field))
	})
}

// bodyField is a body as JSON has it.
func bodyField(body []byte) client.Field {
	if utf8.Valid(body) {
		return text("body", string(body))
	}
	return text("body-base64", base64.StdEncoding.EncodeToString(body))
}

func peekCommand() *cobra.Command {
	var id uint64
	var tube, state string
	var raw bool
	cmd := &cobra.Command{
		Use:   "peek {ID | --tube TUBE [--state STATE]}",
		Short: "Show a job and its body, without reserving it",
		Long: `Show a job, or the first one of a tube in a state, with its statistics and its body. Nothing is reserved and
nothing changes.

Bodies are shown as text; what is no text, and what could control a terminal, is escaped. --raw writes the body
alone, byte for byte, and refuses to write such a body to a terminal.

JSON has the keys of stats-job, and body, or body-base64 for one that is not UTF-8. A stock beanstalkd cannot show
the first reserved job.`,
		Example: `  trellis peek 17
  trellis peek --tube mail --state buried
  trellis peek 17 --raw >body`,
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) (err error) {
			if (len(args) == 1) == cmd.Flags().Changed("tube") {
				return errors.New("give either the id of a job or --tube")
			}
			if len(args) == 1 {
				id, err = parseID(args[0])
				return err
			}
			_, err = client.ParseState(state)
			return cmp.Or(err, client.CheckTube(tube))
		}),
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "the first job of this tube")
	cmd.Flags().StringVarP(&state, "state", "s", "ready", "with --tube: of the ready, reserved, delayed or buried ones")
	cmd.Flags().BoolVar(&raw, "raw", false, "only the body, byte for byte")
	completeStates(cmd, client.States)
	return serverCommand(cmd, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		job, err := peekAt(ctx, c, id, tube, client.State(state))
		if err != nil {
			return err
		}
		return showJob(ctx, c, p, &job, raw)
	}, "tube")
}

// peekAt is the job with an id, or without one the first job of a tube in a state.
func peekAt(ctx context.Context, c *client.Conn, id uint64, tube string, state client.State) (client.Job, error) {
	if id != 0 {
		job, err := c.Peek(ctx, id)
		if errors.Is(err, client.ErrNotFound) {
			err = noJob(id)
		}
		return job, err
	}
	job, err := c.PeekTube(ctx, tube, state)
	if errors.Is(err, client.ErrNotFound) {
		err = nothingFound(fmt.Errorf("there is no %s job in tube %q", state, tube))
	}
	return job, err
}

func showJob(ctx context.Context, c *client.Conn, p *printer, job *client.Job, raw bool) error {
	if raw {
		if p.terminal && !plain(string(job.Body)) {
			return usageError(fmt.Errorf("the body of job %d could control the terminal: write it to a file, or leave out --raw",
				job.ID))
		}
		_, _ = p.w.Write(job.Body)
		return nil
	}
	stats, err := c.StatsJob(ctx, job.ID)
	if errors.Is(err, client.ErrNotFound) { // it has gone since
		err = noJob(job.ID)
	}
	if err != nil {
		return err
	}
	if p.format != "table" {
		return p.fields(append(stats, number("size", len(job.Body)), bodyField(job.Body)))
	}
	if err := p.object(append(stats, number("size", len(job.Body)))); err != nil {
		return err
	}
	body := visibleText(string(job.Body))
	fmt.Fprintf(p.w, "\n%s", body)
	if body != "" && body[len(body)-1] != '\n' {
		_, _ = p.w.WriteString("\n")
	}
	return nil
}
