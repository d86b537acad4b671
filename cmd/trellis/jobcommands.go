package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// A jobCommand does something to jobs: those with given ids, or the first ones of a tube in a state.
type jobCommand struct {
	use, short, long, example string

	states   []client.State // with --tube
	anyState bool           // --state may be left out
	to       string         // what --to is for; "": there is no such flag
	done     string         // what the jobs are then
	missing  string         // what may be the matter with those that it was not done to
	do       func(ctx context.Context, c *client.Conn, j *operate.Jobs, to string) (operate.Outcome, error)
}

const elseReserved = "not there, or reserved by somebody else"

var jobCommands = []jobCommand{
	{
		use:   "kick {ID... | --tube TUBE [--state STATE] --count N}",
		short: "Make buried or delayed jobs ready",
		long: `Make jobs ready, by their ids or the first ones of a tube. Without --state they are buried ones, or, if the
tube has none of these, delayed ones, as the protocol's kick has it.`,
		example: `  trellis kick 17
  trellis kick --tube mail --count all`,
		states: []client.State{client.Buried, client.Delayed}, anyState: true, done: "kicked",
		missing: "not there, or neither buried nor delayed",
		do:      withoutTo(operate.Kick),
	},
	{
		use:   "bury {ID... | --tube TUBE --state STATE --count N}",
		short: "Bury jobs that nobody has reserved",
		long: `Bury jobs, by their ids or the first ones of a tube in a state. They keep their priorities.

The protocol lets a client bury what it has reserved only, so the jobs are reserved and buried in one go: their count
of reserves goes up. A job that somebody else has reserved stays as it is. One that is buried already counts as done.`,
		example: `  trellis bury 17
  trellis bury --tube mail --state ready --count all`,
		states: []client.State{client.Ready, client.Delayed}, done: "buried", missing: elseReserved,
		do: withoutTo(operate.Bury),
	},
	{
		use:   "delete {ID... | --tube TUBE --state STATE --count N}",
		short: "Delete jobs",
		long: `Delete jobs by their ids, or the first ones of a tube in a state. A job that is reserved cannot be deleted
by its id; with --state reserved it can: who has reserved it hears of it by the NOT_FOUND to its next command. A
stock beanstalkd cannot do that.`,
		example: `  trellis delete 17 18
  trellis delete --tube mail --state buried --count 1000`,
		states: client.States, done: "deleted", missing: elseReserved, do: withoutTo(operate.Delete),
	},
	{
		use:   "move {ID... | --tube TUBE --state STATE --count N} --to TUBE",
		short: "Move jobs to another tube",
		long: `Move jobs to another tube, by their ids or the first ones of a tube in a state. They keep their ids, states,
priorities, counters and what is left of their delays, and no crash leaves a job in neither tube or in both.

A job that is reserved is not moved. A stock beanstalkd cannot move jobs; there trellis copy and trellis delete do
something like it.`,
		example: `  trellis move 17 18 --to mail.later
  trellis move --tube mail --state buried --count all --to mail.failed`,
		states: []client.State{client.Ready, client.Delayed, client.Buried}, to: "the tube that they come into",
		done: "moved", missing: elseReserved,
		do: func(ctx context.Context, c *client.Conn, j *operate.Jobs, to string) (operate.Outcome, error) {
			if j.Tube == to {
				return operate.Outcome{}, usageError(fmt.Errorf("the jobs are in tube %q already", to))
			}
			return operate.Move(ctx, c, j, to)
		},
	},
	{
		use:   "copy {ID... | --tube TUBE --state STATE --count N} --to TUBE",
		short: "Put copies of jobs into a tube",
		long: `Put copies of jobs into a tube. The jobs themselves stay as they are, reserved ones too.

A copy is a new job with a new id: it has the body, the priority, the time to run and what is left of the delay, and
none of the counters and keys. It is delayed if the job is, and ready otherwise.

A stock beanstalkd cannot list jobs: there --count is to be 1.`,
		example: `  trellis copy 17 --to mail.test
  trellis copy --tube mail --state buried --count 10 --to mail.test`,
		states: client.States, to: "the tube that the copies come into", done: "copied", missing: "not there",
		do: operate.Copy,
	},
}

// withoutTo is for what has no use for --to.
func withoutTo(
	do func(context.Context, *client.Conn, *operate.Jobs) (operate.Outcome, error),
) func(context.Context, *client.Conn, *operate.Jobs, string) (operate.Outcome, error) {
	return func(ctx context.Context, c *client.Conn, j *operate.Jobs, _ string) (operate.Outcome, error) {
		return do(ctx, c, j)
	}
}

func (j *jobCommand) command() *cobra.Command {
	var s selection
	var to string
	cmd := &cobra.Command{
		Use: j.use, Short: j.short, Example: j.example,
		Long: fmt.Sprintf("%s\n\nJSON is an object with %s, how many were, and with ids not-found, the ids of the others.",
			j.long, j.done),
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case j.to != "" && to == "":
				return errors.New("--to is missing: the tube that the jobs come into")
			case j.to != "" && client.CheckTube(to) != nil:
				return client.CheckTube(to)
			}
			return s.parse(cmd, args, j.anyState)
		},
	}
	tubes := []string{"tube"}
	if j.to != "" {
		cmd.Flags().StringVar(&to, "to", "", j.to)
		tubes = append(tubes, "to")
	}
	s.register(cmd, j.states)
	return serverCommand(cmd, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		o, err := j.do(ctx, c, &s.jobs, to)
		return s.report(p, o, err, j.done, j.missing)
	}, tubes...)
}

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
	cmd.Flags().StringVarP(&s.count, "count", "n", "",
		"with --tube: at most so many, the first ones first; or all that are there now")
	completeStates(cmd, states)
	complete(cmd, "count", "all")
}

func (s *selection) choices() string {
	words := wordsOf(s.states)
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
			return errors.New("give the ids of jobs, or --tube with --state and --count")
		}
		for _, arg := range args {
			id, err := parseID(arg)
			if err != nil {
				return err
			}
			s.jobs.IDs = append(s.jobs.IDs, id)
		}
		return nil
	}
	if err := client.CheckTube(s.jobs.Tube); err != nil {
		return err
	}
	switch {
	case len(args) > 0:
		return errors.New("give either the ids of jobs or --tube")
	case s.state == "" && !canChoose:
		return fmt.Errorf("--tube needs --state: %s", s.choices())
	case s.count == "":
		return errors.New("--tube needs --count: a number, or all")
	}
	if s.state != "" {
		of, err := client.ParseState(s.state)
		if err == nil && !slices.Contains(s.states, of) {
			err = fmt.Errorf("this cannot be done to %s jobs: give %s", of, s.choices())
		}
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		s.jobs.State = of
	}
	if s.jobs.Most = all; s.count != "all" {
		n, err := strconv.ParseUint(s.count, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("--count is a number above 0, or all, and not %q", s.count)
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

// parseStates are the states with these names, or all without any.
func parseStates(names []string) (states []client.State, err error) {
	for _, name := range names {
		s, wrong := client.ParseState(name)
		err = errors.Join(err, wrong)
		states = append(states, s)
	}
	if states == nil {
		states = client.States
	}
	return states, err
}

// oneOrAll is the state that --state says, or all states.
func oneOrAll(state string) ([]client.State, error) {
	if state == "" {
		return client.States, nil
	}
	s, err := client.ParseState(state)
	if err != nil {
		err = fmt.Errorf("--state: %w", err)
	}
	return []client.State{s}, err
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
	what := cmp.Or(string(s.jobs.State), s.choices())
	return nothingFound(fmt.Errorf("there is no %s job in tube %q", what, s.jobs.Tube))
}

func jobsIn(n uint64, of client.State) string {
	if of == "" {
		return operate.Counted(n, "job")
	}
	return operate.Counted(n, string(of)+" job")
}
