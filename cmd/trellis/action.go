package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"trellis/cmd/internal/client"
)

// An action is what is done to one job after the other.
type action struct {
	// lines are the commands for one job, as many for each. The reply to the last one tells
	// whether it is done. The job has its id, and what else it was listed with.
	lines func(job client.Fields) []string
	want  string // the first word of the last reply, when it is done
	pri   bool   // lines needs the priority
}

// onIDs does an action to jobs, pipelined.
func (a *action) onIDs(ctx context.Context, c *client.Conn, ids []uint64) (o outcome, err error) {
	jobs := make([]client.Fields, len(ids))
	for i, id := range ids {
		jobs[i] = client.Fields{number("id", id)}
	}
	err = a.onJobs(ctx, c, jobs, &o)
	return o, err
}

func (a *action) onJobs(ctx context.Context, c *client.Conn, jobs []client.Fields, o *outcome) error {
	if len(jobs) == 0 {
		return nil
	}
	each := len(a.lines(jobs[0]))
	if _, err := c.Capabilities(ctx); err != nil {
		return err
	}
	return c.Pipeline(ctx, each*len(jobs), func(i int) client.Command {
		return client.Command{Line: a.lines(jobs[i/each])[i%each]}
	}, func(i int, r client.Reply) error {
		if i%each < each-1 {
			return nil
		}
		job := jobs[i/each]
		return a.judge(a.lines(job)[each-1], job, r, o)
	})
}

// onTube does an action, which must take a job out of its state, to the first jobs of a tube.
// A stock server cannot list jobs; it is asked for the first one again and again.
func (a *action) onTube(ctx context.Context, c *client.Conn, s *selection) (o outcome, err error) {
	most, err := s.bound(ctx, c)
	if err != nil || most == 0 {
		return o, err
	}
	has, err := c.Has(ctx, "list-jobs")
	if err != nil {
		return o, err
	}
	if has {
		err = eachJob(ctx, c, s.tube, s.of, most, func(page []client.Fields) error { return a.onJobs(ctx, c, page, &o) })
		return o, gone(err)
	}
	if s.of == client.Reserved {
		return o, &client.LacksError{Command: "list-jobs"}
	}
	return o, a.onFirst(ctx, c, s, most, &o)
}

// maxLost is how many times in a row others may take a job before onFirst, until it gives up.
const maxLost = 1000

// onFirst is onTube for a stock server. The commands for a job are sent together with the question for the next one. When
// somebody else has been faster, it goes on with the job that is the first one then, which may be the same.
func (a *action) onFirst(ctx context.Context, c *client.Conn, s *selection, most uint64, o *outcome) error {
	if err := c.Use(ctx, s.tube); err != nil {
		return err
	}
	first, err := c.PeekTube(ctx, s.tube, s.of)
	for lost := 0; err == nil && o.done < most; {
		done := o.done
		job := client.Fields{number("id", first.ID)}
		if a.pri {
			job, err = c.StatsJob(ctx, first.ID)
		}
		switch {
		case errors.Is(err, client.ErrNotFound):
			first, err = c.PeekTube(ctx, s.tube, s.of)
		case err == nil:
			first, err = a.onJobAndPeek(ctx, c, job, "peek-"+string(s.of), o)
		}
		if lost++; o.done > done {
			lost = 0
		}
		if lost == maxLost && err == nil {
			return fmt.Errorf("others have been faster with the %s jobs of tube %q, %d times in a row", s.of, s.tube, maxLost)
		}
	}
	return gone(err)
}

func (a *action) onJobAndPeek(ctx context.Context, c *client.Conn, job client.Fields, peek string, o *outcome) (next client.Job, err error) {
	lines := append(a.lines(job), peek)
	err = c.Pipeline(ctx, len(lines), func(i int) client.Command { return client.Command{Line: lines[i]} }, func(i int, r client.Reply) (err error) {
		switch len(lines) - i {
		case 1:
			next, err = c.Peeked(r)
		case 2:
			err = a.judge(lines[i], job, r, o)
		}
		return err
	})
	return next, err
}

// judge counts what the last reply says.
func (a *action) judge(line string, job client.Fields, r client.Reply, o *outcome) error {
	command, _, _ := strings.Cut(line, " ")
	err := r.Check(command, a.want)
	switch {
	case errors.Is(err, client.ErrNotFound):
		o.missing = append(o.missing, job.Uint("id"))
		return nil
	case err == nil:
		o.done++
	}
	return err
}

// inParts has do work on at most n jobs, in parts that do not keep a server busy for long. do
// returns how many jobs it found. A part that finds fewer than its bound is the last one.
func inParts(n uint64, do func(bound uint32) (uint64, error)) (done uint64, err error) {
	const part = 10_000
	for done < n && err == nil {
		bound := min(n-done, part)
		var found uint64
		found, err = do(uint32(bound))
		done += min(found, bound) // or the server lies
		if found < bound {
			break
		}
	}
	return done, err
}

// idLine is a command with the job's id behind it.
func idLine(command string) func(client.Fields) []string {
	return func(job client.Fields) []string { return []string{fmt.Sprintf("%s %d", command, job.Uint("id"))} }
}
