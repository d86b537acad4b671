package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

// A selection is the jobs that a command is for: those with given ids, or the first ones of
// a tube in a state.
type selection struct {
	tube, state, count string

	states []client.State // those that the command takes

	// What the flags and arguments say, after parse.
	ids  []uint64
	of   client.State // "": the command chooses
	most uint64       // jobs
}

// all is a count of jobs that no tube reaches.
const all = ^uint64(0)

func (s *selection) register(cmd *cobra.Command, f *serverFlags, states ...client.State) {
	s.states = states
	cmd.Flags().StringVarP(&s.tube, "tube", "t", "", "in place of ids: jobs of this tube")
	cmd.Flags().StringVarP(&s.state, "state", "s", "", "with --tube: "+s.choices())
	cmd.Flags().StringVarP(&s.count, "count", "n", "", "with --tube: at most so many, the first ones first; or all that are there now")
	f.completeTubes(cmd, 0, "tube")
	var words []string
	for _, s := range states {
		words = append(words, string(s))
	}
	complete(cmd, "state", words...)
	complete(cmd, "count", "all")
}

func (s *selection) choices() string {
	var words []string
	for _, s := range s.states {
		words = append(words, string(s))
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// parse checks what was given. A state is needed unless the command can choose.
func (s *selection) parse(cmd *cobra.Command, args []string, canChoose bool) error {
	if s.tube == "" && !cmd.Flags().Changed("tube") {
		if len(args) == 0 || s.state != "" || s.count != "" {
			return usageError(errors.New("give the ids of jobs, or --tube with --state and --count"))
		}
		for _, arg := range args {
			id, err := parseID(arg)
			if err != nil {
				return usageError(err)
			}
			s.ids = append(s.ids, id)
		}
		return nil
	}
	if err := client.CheckTube(s.tube); err != nil {
		return usageError(err)
	}
	switch {
	case len(args) > 0:
		return usageError(errors.New("give either the ids of jobs or --tube"))
	case s.state == "" && !canChoose:
		return usageError(fmt.Errorf("--tube needs --state: %s", s.choices()))
	case s.count == "":
		return usageError(errors.New("--tube needs --count: a number, or all"))
	}
	if s.state != "" {
		of, err := client.ParseState(s.state)
		if err == nil && !slices.Contains(s.states, of) {
			err = fmt.Errorf("this cannot be done to %s jobs: give %s", of, s.choices())
		}
		if err != nil {
			return usageError(fmt.Errorf("--state: %w", err))
		}
		s.of = of
	}
	if s.most = all; s.count != "all" {
		n, err := strconv.ParseUint(s.count, 10, 64)
		if err != nil || n == 0 {
			return usageError(fmt.Errorf("--count is a number above 0, or all, and not %q", s.count))
		}
		s.most = n
	}
	return nil
}

func parseID(s string) (uint64, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%q is not the id of a job", s)
	}
	return id, nil
}

// bound is how many jobs are meant: never more than are there at the start, so that it ends
// while others put.
func (s *selection) bound(ctx context.Context, c *client.Conn) (uint64, error) {
	stats, err := statsOfTube(ctx, c, s.tube)
	if err != nil {
		return 0, err
	}
	return min(s.most, stats.Uint("current-jobs-"+string(s.of))), nil
}

// An outcome is what has become of the selected jobs.
type outcome struct {
	done    uint64
	missing []uint64 // ids for which the server has said NOT_FOUND
}

// report writes an outcome. Done is what the jobs are now, such as "deleted"; missing says
// what may be the matter with those that it was not done to. Err is why the rest was left.
func (s *selection) report(p *printer, o outcome, err error, done, missing string) error {
	if err != nil {
		if o.done > 0 {
			err = &partialError{err, fmt.Sprintf(" (at least %s %s before)", jobsIn(o.done, s.of), done)}
		}
		return err
	}
	fields := client.Fields{number(done, o.done)}
	if s.tube != "" {
		if o.done == 0 && p.format == "table" {
			return s.nothing()
		}
		err = p.result(fmt.Sprintf("%s of tube %s %s", jobsIn(o.done, s.of), s.tube, done), fields)
		if o.done == 0 {
			err = errors.Join(err, s.nothing())
		}
		return err
	}
	err = p.result(jobsIn(o.done, "")+" "+done, append(fields, numbers("not-found", o.missing)))
	if len(o.missing) > 0 {
		var ids []string
		for _, id := range o.missing {
			ids = append(ids, strconv.FormatUint(id, 10))
		}
		err = errors.Join(err, nothingFound(fmt.Errorf("%s: %s", missing, strings.Join(ids, ", "))))
	}
	return err
}

// nothing tells that no job was selected.
func (s *selection) nothing() error {
	what := string(s.of)
	if what == "" {
		what = s.choices()
	}
	return nothingFound(fmt.Errorf("there is no %s job in tube %q", what, s.tube))
}

// jobsIn is a number of jobs in a state, or in any.
func jobsIn(n uint64, of client.State) string {
	words := grouped(n)
	if of != "" {
		words += " " + string(of)
	}
	if n == 1 {
		return words + " job"
	}
	return words + " jobs"
}
