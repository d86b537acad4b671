package main

import (
	"context"
	"errors"
	"fmt"

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
		long: `Make jobs ready, by their ids or the first ones of a tube. Without --state they are buried ones, or, if the tube has
none of these, delayed ones, as the protocol's kick has it.`,
		example: `  trellis kick 17
  trellis kick --tube mail --count all`,
		states: []client.State{client.Buried, client.Delayed}, anyState: true, done: "kicked", missing: "not there, or neither buried nor delayed",
		do: withoutTo(operate.Kick),
	},
	{
		use:   "bury {ID... | --tube TUBE --state STATE --count N}",
		short: "Bury jobs that nobody has reserved",
		long: `Bury jobs, by their ids or the first ones of a tube in a state. They keep their priorities.

The protocol lets a client bury what it has reserved only, so the jobs are reserved and buried in one go: their count of reserves
goes up. A job that somebody else has reserved stays as it is. One that is buried already counts as done.`,
		example: `  trellis bury 17
  trellis bury --tube mail --state ready --count all`,
		states: []client.State{client.Ready, client.Delayed}, done: "buried", missing: elseReserved, do: withoutTo(operate.Bury),
	},
	{
		use:   "delete {ID... | --tube TUBE --state STATE --count N}",
		short: "Delete jobs",
		long: `Delete jobs by their ids, or the first ones of a tube in a state. A job that is reserved cannot be deleted by its id; with
--state reserved it can: who has reserved it hears of it by the NOT_FOUND to its next command. A stock beanstalkd cannot do that.`,
		example: `  trellis delete 17 18
  trellis delete --tube mail --state buried --count 1000`,
		states: client.States, done: "deleted", missing: elseReserved, do: withoutTo(operate.Delete),
	},
	{
		use:   "move {ID... | --tube TUBE --state STATE --count N} --to TUBE",
		short: "Move jobs to another tube",
		long: `Move jobs to another tube, by their ids or the first ones of a tube in a state. They keep their ids, states, priorities,
counters and what is left of their delays, and no crash leaves a job in neither tube or in both.

A job that is reserved is not moved. A stock beanstalkd cannot move jobs; there trellis copy and trellis delete do something like it.`,
		example: `  trellis move 17 18 --to mail.later
  trellis move --tube mail --state buried --count all --to mail.failed`,
		states: []client.State{client.Ready, client.Delayed, client.Buried}, to: "the tube that they come into", done: "moved", missing: elseReserved,
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

A copy is a new job with a new id: it has the body, the priority, the time to run and what is left of the delay, and none of the
counters and keys. It is delayed if the job is, and ready otherwise.

A stock beanstalkd cannot list jobs: there --count is to be 1.`,
		example: `  trellis copy 17 --to mail.test
  trellis copy --tube mail --state buried --count 10 --to mail.test`,
		states: client.States, to: "the tube that the copies come into", done: "copied", missing: "not there", do: operate.Copy,
	},
}

// withoutTo is for what has no use for --to.
func withoutTo(do func(context.Context, *client.Conn, *operate.Jobs) (operate.Outcome, error)) func(context.Context, *client.Conn, *operate.Jobs, string) (operate.Outcome, error) {
	return func(ctx context.Context, c *client.Conn, j *operate.Jobs, _ string) (operate.Outcome, error) {
		return do(ctx, c, j)
	}
}

func (j *jobCommand) command() *cobra.Command {
	var f serverFlags
	var s selection
	var to string
	cmd := &cobra.Command{
		Use: j.use, Short: j.short, Example: j.example,
		Long: fmt.Sprintf("%s\n\nJSON is an object with %s, how many were, and with ids not-found, the ids of the others.\n\n%s", j.long, j.done, exitHelp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if j.to != "" {
				err := client.CheckTube(to)
				if to == "" {
					err = errors.New("--to is missing: the tube that the jobs come into")
				}
				if err != nil {
					return usageError(err)
				}
			}
			if err := s.parse(cmd, args, j.anyState); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := j.do(ctx, c, &s.jobs, to)
				return s.report(p, o, err, j.done, j.missing)
			})
		},
	}
	tubes := []string{"tube"}
	if j.to != "" {
		cmd.Flags().StringVar(&to, "to", "", j.to)
		tubes = append(tubes, "to")
	}
	s.register(cmd, j.states)
	f.register(cmd)
	f.completeTubes(cmd, 0, tubes...)
	return cmd
}
