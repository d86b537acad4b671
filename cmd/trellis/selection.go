package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// A selection is the flags and arguments that say which jobs a command is for.
type selection struct {
	jobs         operate.Jobs // what they say, after parse
	state, count string
	states       []client.State // those that the command takes
}

// all is a count of jobs that no tube reaches.
const all = ^uint64(0)

func (s *selection) register(cmd *cobra.Command, states []client.State) {
	s.states = states
	cmd.Flags().StringVarP(&s.jobs.Tube, "tube", "t", "", "in place of ids: jobs of this tube")
	cmd.Flags().StringVarP(&s.state, "state", "s", "", "with --tube: "+s.choices())
	cmd.Flags().StringVarP(&s.count, "count", "n", "", "with --tube: at most so many, the first ones first; or all that are there now")
	completeStates(cmd, states)
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
	if s.jobs.Tube == "" && !cmd.Flags().Changed("tube") {
		if len(args) == 0 || s.state != "" || s.count != "" {
			return usageError(errors.New("give the ids of jobs, or --tube with --state and --count"))
		}
		for _, arg := range args {
			id, err := parseID(arg)
			if err != nil {
				return usageError(err)
			}
			s.jobs.IDs = append(s.jobs.IDs, id)
		}
		return nil
	}
	if err := client.CheckTube(s.jobs.Tube); err != nil {
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
		s.jobs.State = of
	}
	if s.jobs.Most = all; s.count != "all" {
		n, err := strconv.ParseUint(s.count, 10, 64)
		if err != nil || n == 0 {
			return usageError(fmt.Errorf("--count is a number above 0, or all, and not %q", s.count))
		}
		s.jobs.Most = n
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

// report writes an outcome. Done is what the jobs are now, such as "deleted"; missing says
// what may be the matter with those that it was not done to. Err is why the rest was left.
func (s *selection) report(p *printer, o operate.Outcome, err error, done, missing string) error {
	if err != nil {
		if o.Done > 0 {
			err = &partialError{err, fmt.Sprintf(" (at least %s %s before)", jobsIn(o.Done, s.jobs.State), done)}
		}
		return err
	}
	fields := client.Fields{number(done, o.Done)}
	if s.jobs.Tube != "" {
		if o.Done == 0 && p.format == "table" {
			return s.nothing()
		}
		err = p.result(fmt.Sprintf("%s of tube %s %s", jobsIn(o.Done, s.jobs.State), s.jobs.Tube, done), fields)
		if o.Done == 0 {
			err = errors.Join(err, s.nothing())
		}
		return err
	}
	err = p.result(jobsIn(o.Done, "")+" "+done, append(fields, numbers("not-found", o.Missing)))
	if len(o.Missing) > 0 {
		var ids []string
		for _, id := range o.Missing {
			ids = append(ids, strconv.FormatUint(id, 10))
		}
		err = errors.Join(err, nothingFound(fmt.Errorf("%s: %s", missing, strings.Join(ids, ", "))))
	}
	return err
}

// nothing tells that no job was selected.
func (s *selection) nothing() error {
	what := string(s.jobs.State)
	if what == "" {
		what = s.choices()
	}
	return nothingFound(fmt.Errorf("there is no %s job in tube %q", what, s.jobs.Tube))
}

// jobsIn is a number of jobs in a state, or in any.
func jobsIn(n uint64, of client.State) string {
	if of == "" {
		return operate.Counted(n, "job")
	}
	return operate.Counted(n, string(of)+" job")
}
