package operate

import (
	"context"
	"errors"
	"fmt"

	"trellis/cmd/internal/client"
)

var (
	kicking  = task{want: "KICKED", lines: func(j job) []string { return []string{fmt.Sprint("kick-job ", j.id)} }}
	deleting = task{want: "DELETED", lines: func(j job) []string { return []string{fmt.Sprint("delete ", j.id)} }}
	burying  = task{want: "BURIED", pri: true, lines: func(j job) []string {
		return []string{fmt.Sprint("reserve-job ", j.id), fmt.Sprintf("bury %d %d", j.id, j.pri)}
	}}
)

// Kick makes jobs ready. Without a state, these are the tube's buried ones or, if it has none, delayed ones; j then
// has the state that was chosen.
func Kick(ctx context.Context, c *client.Conn, j *Jobs) (o Outcome, err error) {
	if j.Tube == "" {
		return kicking.byID(ctx, c, j.IDs)
	}
	stats, err := StatsTube(ctx, c, j.Tube)
	if err != nil {
		return o, err
	}
	n := CountsOf(stats)
	switch {
	case j.State == "" && n.Buried > 0:
		j.State = client.Buried
	case j.State == "" && n.Delayed > 0:
		j.State = client.Delayed
	case j.State == client.Delayed, j.State == client.Buried && n.Buried > 0 && n.Delayed > 0:
		// The protocol's kick takes buried ones first, also those that have become so since, and delayed
		// ones as soon as there are none.
		return kicking.byTube(ctx, c, j)
	}
	// Not one more than there are in that state, as the rest would be jobs in the other one.
	most := n.Buried
	if j.State == client.Delayed {
		most = n.Delayed
	}
	return inParts(min(j.Most, uint64(most)), func(bound uint32) (uint64, error) { return c.KickTube(ctx, j.Tube, bound) })
}

// Bury buries jobs that nobody has reserved; they keep their priorities. The protocol lets a client bury only what it
// has reserved: the count of reserves goes up. A job that is buried already stays as it is, and counts as done.
func Bury(ctx context.Context, c *client.Conn, j *Jobs) (o Outcome, err error) {
	if j.Tube != "" {
		return burying.byTube(ctx, c, j)
	}
	stats, err := c.StatsJobs(ctx, j.IDs)
	if err != nil {
		return o, err
	}
	var jobs []job
	for i, f := range stats {
		switch state := client.State(f.Text("state")); {
		case f == nil, state == client.Reserved:
			o.Missing = append(o.Missing, j.IDs[i])
		case state == client.Buried:
			o.Done++
		default:
			jobs = append(jobs, job{j.IDs[i], f.Uint("pri")})
		}
	}
	err = burying.do(ctx, c, jobs, &o)
	return o, err
}

// Delete deletes jobs. Reserved ones can be deleted only by their state, not by their ids.
func Delete(ctx context.Context, c *client.Conn, j *Jobs) (o Outcome, err error) {
	if j.Tube == "" {
		return deleting.byID(ctx, c, j.IDs)
	}
	most, err := j.bound(ctx, c)
	if err != nil {
		return o, err
	}
	has, err := c.Has(ctx, "delete-tube-jobs")
	switch {
	case err != nil:
		return o, err
	case !has && j.State == client.Reserved:
		return o, &client.LacksError{Command: "delete-tube-jobs"}
	case !has:
		return deleting.byTube(ctx, c, j)
	}
	return inParts(most, func(bound uint32) (uint64, error) { return c.DeleteTubeJobs(ctx, j.Tube, j.State, bound) })
}

// Move moves jobs that are not reserved to another tube, with all that they have.
func Move(ctx context.Context, c *client.Conn, j *Jobs, to string) (o Outcome, err error) {
	if j.Tube == "" {
		moving := task{
			want: "MOVED", lines: func(j job) []string { return []string{fmt.Sprintf("move-job %d %s", j.id, to)} },
		}
		return moving.byID(ctx, c, j.IDs)
	}
	most, err := j.bound(ctx, c)
	if err != nil {
		return o, err
	}
	return inParts(most, func(bound uint32) (uint64, error) { return c.MoveTube(ctx, j.Tube, j.State, to, bound) })
}

// Copy puts copies of jobs into a tube: see CopyJob.
func Copy(ctx context.Context, c *client.Conn, j *Jobs, to string) (o Outcome, err error) {
	ids := j.IDs
	if j.Tube != "" {
		if ids, err = j.list(ctx, c); err != nil {
			return o, err
		}
	}
	for _, id := range ids {
		switch _, err := CopyJob(ctx, c, id, to); {
		case errors.Is(err, client.ErrNotFound):
			o.Missing = append(o.Missing, id)
		case err != nil:
			return o, err
		default:
			o.Done++
		}
	}
	return o, nil
}

// list are the ids of the tube's jobs. All are listed before the first one is copied: copies in the same tube, with
// ids of their own, would come into the next page, and what is behind them would be left out.
func (j *Jobs) list(ctx context.Context, c *client.Conn) (ids []uint64, err error) {
	most, err := j.bound(ctx, c)
	if err != nil || most == 0 {
		return nil, err
	}
	has, err := c.Has(ctx, "list-jobs")
	if err != nil {
		return nil, err
	}
	if !has && j.Most == 1 {
		first, err := c.PeekTube(ctx, j.Tube, j.State)
		if err != nil {
			return nil, Gone(err)
		}
		return []uint64{first.ID}, nil
	}
	err = Each(ctx, c, j.Tube, j.State, most, func(page []client.Fields) error {
		for _, f := range page {
			ids = append(ids, f.Uint("id"))
		}
		return nil
	})
	return ids, Gone(err)
}

// CopyJob puts a job like another one into a tube, which is then the used one. The copy has the body, the priority,
// the time to run and what is left of the delay.
func CopyJob(ctx context.Context, c *client.Conn, id uint64, to string) (client.Inserted, error) {
	job, err := c.Peek(ctx, id)
	if err != nil {
		return client.Inserted{}, err
	}
	stats, err := c.StatsJob(ctx, id)
	if err != nil {
		return client.Inserted{}, err
	}
	j := client.NewJob{Pri: uint32(stats.Uint("pri")), TTR: uint32(stats.Uint("ttr")), Body: job.Body}
	if stats.Text("state") == string(client.Delayed) {
		j.Delay = uint32(stats.Uint("time-left"))
	}
	if err := c.Use(ctx, to); err != nil {
		return client.Inserted{}, err
	}
	return c.Put(ctx, &j)
}
