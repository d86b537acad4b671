package assistant

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/cmd/internal/quantity"
)

// changeIn says which jobs are meant.
type changeIn struct {
	at
	IDs     []uint64     `json:"ids,omitempty" jsonschema:"ids of jobs, at most 1000; or give tube, state and count"`
	Tube    string       `json:"tube,omitempty" jsonschema:"in place of ids: the first jobs of this tube"`
	State   client.State `json:"state,omitempty" jsonschema:"with tube: the state that the jobs are in"`
	Count   uint64       `json:"count,omitempty" jsonschema:"with tube: so many at most"`
	Confirm bool         `json:"confirm,omitempty" jsonschema:"the user agrees to all jobs of the tube in the state"`
	To      string       `json:"to,omitempty" jsonschema:"of move: the tube that the jobs go to"`
}

func (in changeIn) check() error {
	switch {
	case (len(in.IDs) > 0) == (in.Tube != ""), len(in.IDs) > maxList, in.Tube != "" && in.Count == 0:
		return fmt.Errorf("give either up to %d ids, or a tube with a state and a count", maxList)
	case in.Tube == "":
		return checkID(slices.Max(in.IDs))
	}
	return client.CheckTube(in.Tube)
}

// jobs are those that are meant. To mean all of a tube's, in one of the states, needs the confirmation.
func (in changeIn) jobs(ctx context.Context, c *client.Conn, states []client.State) (*operate.Jobs, error) {
	if in.Tube == "" {
		return &operate.Jobs{IDs: in.IDs}, nil
	}
	if !slices.Contains(states, in.State) {
		return nil, fmt.Errorf("a tube needs a state, one of %v", states)
	}
	stats, err := operate.StatsTube(ctx, c, in.Tube)
	n := operate.CountsOf(stats)
	if there := uint64(n.Of(in.State)); err == nil && 0 < there && there <= in.Count && !in.Confirm {
		err = fmt.Errorf("these are all %d %s jobs of the tube: ask the user, then call again with confirm", there, in.State)
	}
	return &operate.Jobs{Tube: in.Tube, State: in.State, Most: in.Count}, err
}

type pauseIn struct {
	ofTube
	Time string `json:"time" jsonschema:"for how long, such as 10m; 0 ends a pause"`
}

// addWriting adds the tools that change jobs and tubes.
func (s tools) addWriting() {
	const ready, delayed, buried = client.Ready, client.Delayed, client.Buried
	s.addChange("kick", "Make jobs ready", here(operate.Kick), buried, delayed)
	s.addChange("bury", "Keep jobs from workers until they are kicked", here(operate.Bury), ready, delayed)
	s.addChange("delete", "Delete jobs for ever", here(operate.Delete), client.States...)
	s.addChange("move", "Move jobs to another tube", operate.Move, ready, delayed, buried)
	add(s, &mcp.Tool{Name: "pause", Description: "Have a tube hand out no jobs for a time"},
		func(ctx context.Context, c *client.Conn, in pauseIn) (answer, error) {
			n, err := quantity.Seconds.Parse(in.Time)
			if err != nil {
				return nil, err
			}
			n = min(n, math.MaxUint32)
			return answer{"tube": in.Tube, "paused-seconds": n}, c.Pause(ctx, in.Tube, uint32(n))
		})
}

// A doing is something that is done to jobs.
type doing func(ctx context.Context, c *client.Conn, j *operate.Jobs, to string) (operate.Outcome, error)

// here is a doing that takes jobs nowhere.
func here(do func(context.Context, *client.Conn, *operate.Jobs) (operate.Outcome, error)) doing {
	return func(ctx context.Context, c *client.Conn, j *operate.Jobs, _ string) (operate.Outcome, error) {
		return do(ctx, c, j)
	}
}

// addChange adds a tool for jobs of a tube that are in one of the states.
func (s tools) addChange(name, about string, do doing, states ...client.State) {
	destroys := name == "delete"
	t := &mcp.Tool{Name: name, Description: about, Annotations: &mcp.ToolAnnotations{DestructiveHint: &destroys}}
	add(s, t, func(ctx context.Context, c *client.Conn, in changeIn) (answer, error) {
		j, err := in.jobs(ctx, c, states)
		if name == "move" && err == nil {
			err = client.CheckTube(in.To)
		}
		if err != nil {
			return nil, err
		}
		o, err := do(ctx, c, j, in.To)
		if err != nil && o.Done > 0 {
			err = fmt.Errorf("%w (after it was done to %d jobs)", err, o.Done)
		}
		return answer{"done": o.Done, "missing": o.Missing}, err
	})
}
