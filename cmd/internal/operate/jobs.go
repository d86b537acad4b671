package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"trellis/cmd/internal/client"
)

// Jobs are the jobs that an operation is for: those with the given ids or, with a tube, its first ones in a state.
type Jobs struct {
	IDs   []uint64
	Tube  string
	State client.State
	Most  uint64 // of the tube's jobs; never more are taken than there are at the start
}

// An Outcome is what has become of the jobs.
type Outcome struct {
	Done    uint64
	Missing []uint64 // ids of jobs that have gone, or are not in a state in which it can be done
}

// A NoTubeError tells that there is no tube with a name. It is a [client.ErrNotFound].
type NoTubeError struct{ Tube string }

func (e *NoTubeError) Error() string { return fmt.Sprintf("there is no tube %q", e.Tube) }

// Unwrap returns [client.ErrNotFound].
func (e *NoTubeError) Unwrap() error { return client.ErrNotFound }

// StatsTube are a tube's statistics. The error is a *NoTubeError if there is no such tube.
func StatsTube(ctx context.Context, c *client.Conn, tube string) (client.Fields, error) {
	stats, err := c.StatsTube(ctx, tube)
	if errors.Is(err, client.ErrNotFound) {
		err = &NoTubeError{tube}
	}
	return stats, err
}

// bound is how many jobs of the tube are meant.
func (j *Jobs) bound(ctx context.Context, c *client.Conn) (uint64, error) {
	stats, err := StatsTube(ctx, c, j.Tube)
	n := CountsOf(stats)
	return min(j.Most, uint64(n.Of(j.State))), err
}

// Each hands over the jobs of a tube in a state as lists have them, in pages, at most limit of them; 0: all. It
// needs the extension list-jobs. What do does to the jobs of a page does not disturb the next one, unless it
// lists others over c: the server remembers where c's last list ended. The error is client.ErrNotFound if there
// is no such tube, or no more.
func Each(
	ctx context.Context, c *client.Conn, tube string, s client.State, limit uint64, do func(page []client.Fields) error,
) error {
	for seen, after := uint64(0), uint64(0); limit == 0 || seen < limit; {
		n := uint64(client.MaxListJobs) // a server looks at all jobs of the tube's shard for each page
		if limit != 0 {
			n = min(n, limit-seen)
		}
		page, err := c.ListJobs(ctx, tube, s, uint32(n), after)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].Uint("id")
		seen += uint64(len(page))
		if err := do(page); err != nil {
			return err
		}
		if uint64(len(page)) < n {
			break
		}
	}
	return nil
}

// A task is what is done to one job after the other.
type task struct {
	// lines are the commands for a job, as many for each. The reply to the last one reports whether it is done.
	lines func(j job) []string
	want  string // the first word of that reply, when it is done
	pri   bool   // lines needs the priority
}

type job struct {
	id  uint64
	pri uint64
}

// do does a task to jobs, pipelined.
func (t *task) do(ctx context.Context, c *client.Conn, jobs []job, o *Outcome) error {
	if len(jobs) == 0 {
		return nil
	}
	if _, err := c.Capabilities(ctx); err != nil {
		return err
	}
	each := len(t.lines(jobs[0]))
	return c.Pipeline(ctx, each*len(jobs), func(i int) client.Command {
		return client.Command{Line: t.lines(jobs[i/each])[i%each]}
	}, func(i int, r client.Reply) error {
		if i%each < each-1 {
			return nil
		}
		return t.count(jobs[i/each], r, o)
	})
}

// count notes what the last reply says.
func (t *task) count(j job, r client.Reply, o *Outcome) error {
	lines := t.lines(j)
	command, _, _ := strings.Cut(lines[len(lines)-1], " ")
	err := r.Check(command, t.want)
	switch {
	case errors.Is(err, client.ErrNotFound):
		o.Missing = append(o.Missing, j.id)
		return nil
	case err == nil:
		o.Done++
	}
	return err
}

// byID does a task to the jobs with these ids.
func (t *task) byID(ctx context.Context, c *client.Conn, ids []uint64) (o Outcome, err error) {
	jobs := make([]job, len(ids))
	for i, id := range ids {
		jobs[i].id = id
	}
	err = t.do(ctx, c, jobs, &o)
	return o, err
}

// byTube does a task, which must take a job out of its state, to the first jobs of a tube. A stock server cannot list
// jobs; it is asked for the first one again and again.
func (t *task) byTube(ctx context.Context, c *client.Conn, j *Jobs) (o Outcome, err error) {
	most, err := j.bound(ctx, c)
	if err != nil || most == 0 {
		return o, err
	}
	has, err := c.Has(ctx, "list-jobs")
	if err != nil {
		return o, err
	}
	if has {
		err = Each(ctx, c, j.Tube, j.State, most, func(page []client.Fields) error {
			jobs := make([]job, len(page))
			for i, f := range page {
				jobs[i] = job{f.Uint("id"), f.Uint("pri")}
			}
			return t.do(ctx, c, jobs, &o)
		})
		return o, Gone(err)
	}
	if j.State == client.Reserved {
		return o, &client.LacksError{Command: "list-jobs"}
	}
	return o, Gone(t.toFirst(ctx, c, j, most, &o))
}

// maxLost is how many times in a row others may take a job before toFirst, until it gives up.
const maxLost = 1000

// toFirst is byTube for a stock server. The commands for a job are sent together with the question for the next one.
// When somebody else has been faster, it goes on with the job that is the first one then, which may be the same.
func (t *task) toFirst(ctx context.Context, c *client.Conn, j *Jobs, most uint64, o *Outcome) error {
	if err := c.Use(ctx, j.Tube); err != nil {
		return err
	}
	next, err := c.PeekTube(ctx, j.Tube, j.State)
	for lost := 0; err == nil && o.Done < most; {
		done, first := o.Done, job{id: next.ID}
		if t.pri {
			var stats client.Fields
			stats, err = c.StatsJob(ctx, first.id)
			first.pri = stats.Uint("pri")
		}
		switch {
		case errors.Is(err, client.ErrNotFound):
			next, err = c.PeekTube(ctx, j.Tube, j.State)
		case err == nil:
			next, err = t.doAndPeek(ctx, c, first, j.State, o)
		}
		if lost++; o.Done > done {
			lost = 0
		}
		if lost == maxLost && err == nil {
			return fmt.Errorf("others have been faster with the %s jobs of tube %q, %d times in a row", j.State, j.Tube, maxLost)
		}
	}
	return err
}

func (t *task) doAndPeek(
	ctx context.Context, c *client.Conn, j job, s client.State, o *Outcome,
) (next client.Job, err error) {
	lines := append(t.lines(j), "peek-"+string(s))
	err = c.Pipeline(ctx, len(lines), func(i int) client.Command { return client.Command{Line: lines[i]} },
		func(i int, r client.Reply) (err error) {
			switch len(lines) - i {
			case 1:
				next, err = c.Peeked(r)
			case 2:
				err = t.count(j, r, o)
			}
			return err
		})
	return next, err
}

// inParts has do work on at most n jobs, in parts that do not keep a server busy for long. do returns how many jobs it
// found. A part that finds fewer than its bound is the last one.
func inParts(n uint64, do func(bound uint32) (uint64, error)) (o Outcome, err error) {
	const part = 10_000
	for o.Done < n && err == nil {
		bound := min(n-o.Done, part)
		var found uint64
		found, err = do(uint32(bound))
		o.Done += min(found, bound) // or the server lies
		if found < bound {
			break
		}
	}
	return o, Gone(err)
}

// Gone forgives that a tube has gone while its jobs were worked on.
func Gone(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return err
}
