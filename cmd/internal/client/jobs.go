package client

import (
	"context"
	"fmt"
	"strings"
)

// A State is that of a job, as the protocol names it.
type State string

// The states.
const (
	Ready    State = "ready"
	Reserved State = "reserved"
	Delayed  State = "delayed"
	Buried   State = "buried"
)

// States are all states, in the order in which statistics have them.
var States = []State{Ready, Reserved, Delayed, Buried}

// ParseState returns the state with that name.
func ParseState(name string) (State, error) {
	for _, s := range States {
		if name == string(s) {
			return s, nil
		}
	}
	return "", fmt.Errorf("%q is no state: give ready, reserved, delayed or buried", name)
}

// A Job is a job as peek and reserve show it.
type Job struct {
	ID   uint64
	Body []byte
}

// job does a command whose good reply has a job.
func (c *Conn) job(ctx context.Context, want, line string) (Job, error) {
	r, err := c.call(ctx, want, line)
	if err != nil {
		return Job{}, err
	}
	return c.jobOf(&r)
}

func (c *Conn) jobOf(r *Reply) (Job, error) {
	id, err := c.number(r, 0)
	return Job{id, r.Body}, err
}

// Peek is a job with its body.
func (c *Conn) Peek(ctx context.Context, id uint64) (Job, error) {
	return c.job(ctx, "FOUND", fmt.Sprintf("peek %d", id))
}

// Peeked understands the reply to a peek of any kind.
func (c *Conn) Peeked(r Reply) (Job, error) {
	if err := r.Check("peek", "FOUND"); err != nil {
		return Job{}, err
	}
	return c.jobOf(&r)
}

// StatsJob are statistics of a job.
func (c *Conn) StatsJob(ctx context.Context, id uint64) (Fields, error) {
	return fetch(c, ctx, fmt.Sprintf("stats-job %d", id), parseFields)
}

// StatsJobs are statistics of many jobs, in the order of the ids. Those of a job that does
// not exist (any more) are nil.
func (c *Conn) StatsJobs(ctx context.Context, ids []uint64) ([]Fields, error) {
	return statsEach(ctx, c, "stats-job", ids)
}

// Delete deletes a job that is not reserved by somebody else.
func (c *Conn) Delete(ctx context.Context, id uint64) error {
	_, err := c.call(ctx, "DELETED", fmt.Sprintf("delete %d", id))
	return err
}

// Bury buries a job that this connection has reserved.
func (c *Conn) Bury(ctx context.Context, id uint64, pri uint32) error {
	_, err := c.call(ctx, "BURIED", fmt.Sprintf("bury %d %d", id, pri))
	return err
}

// Release gives back a job that this connection has reserved. It is ready after delay
// seconds.
func (c *Conn) Release(ctx context.Context, id uint64, pri, delay uint32) error {
	_, err := c.call(ctx, "RELEASED", fmt.Sprintf("release %d %d %d", id, pri, delay))
	return err
}

// Touch gives this connection the job's whole time to run again.
func (c *Conn) Touch(ctx context.Context, id uint64) error {
	_, err := c.call(ctx, "TOUCHED", fmt.Sprintf("touch %d", id))
	return err
}

// MoveJob moves a job to another tube, with all that it has. Needs the extension move-job.
func (c *Conn) MoveJob(ctx context.Context, id uint64, tube string) error {
	_, err := c.call(ctx, "MOVED", fmt.Sprintf("move-job %d %s", id, tube))
	return err
}

// ReserveJob reserves a job that is not reserved.
func (c *Conn) ReserveJob(ctx context.Context, id uint64) (Job, error) {
	return c.job(ctx, "RESERVED", fmt.Sprintf("reserve-job %d", id))
}

// Reserve reserves a job of the watched tubes, for which it waits at most so many seconds.
// The error is ErrNotFound if none came, and ErrDeadlineSoon if one that this connection
// holds is about to time out.
func (c *Conn) Reserve(ctx context.Context, timeout uint32) (Job, error) {
	r, err := c.Do(ctx, fmt.Sprintf("reserve-with-timeout %d", timeout), nil)
	switch {
	case err != nil:
		return Job{}, err
	case r.Word == "TIMED_OUT":
		return Job{}, ErrNotFound
	case r.Word == "DEADLINE_SOON":
		return Job{}, ErrDeadlineSoon
	}
	if err := r.Check("reserve-with-timeout", "RESERVED"); err != nil {
		return Job{}, err
	}
	return c.jobOf(&r)
}

// Watch has later reserves take jobs of a tube too.
func (c *Conn) Watch(ctx context.Context, tube string) error {
	_, err := c.call(ctx, "WATCHING", "watch "+tube)
	return err
}

// WatchWeight is Watch of a tube that has a weight in a weighted mode. Needs the extension
// watch-weight.
func (c *Conn) WatchWeight(ctx context.Context, tube string, weight uint32) error {
	_, err := c.call(ctx, "WATCHING", fmt.Sprintf("watch %s %d", tube, weight))
	return err
}

// ReserveMode has later reserves choose by fifo, weighted or weighted-fair. Needs the extension
// reserve-mode.
func (c *Conn) ReserveMode(ctx context.Context, mode string) error {
	_, err := c.call(ctx, "USING", "reserve-mode "+mode)
	return err
}

// Ignore undoes Watch. A server refuses it for the last tube.
func (c *Conn) Ignore(ctx context.Context, tube string) error {
	_, err := c.call(ctx, "WATCHING", "ignore "+tube)
	return err
}

// NewJob is a job to be put into the used tube.
type NewJob struct {
	Pri, Delay, TTR uint32 // delay and time to run in seconds

	// Tags are what stands behind the size, such as "idp:KEY:SECONDS". Needs the
	// extensions of their names.
	Tags []string
	Body []byte
}

// Command is the put of the job.
func (j *NewJob) Command() Command {
	line := fmt.Sprintf("put %d %d %d %d", j.Pri, j.Delay, j.TTR, len(j.Body))
	if len(j.Tags) > 0 {
		line += " " + strings.Join(j.Tags, " ")
	}
	body := j.Body
	if body == nil {
		body = []byte{}
	}
	return Command{line, body}
}

// Check fails if the line of the put is longer than a server takes, as long keys in its tags can
// make it. A server would take a part of such a line, or the body, for commands.
func (j *NewJob) Check() error {
	if n := len(j.Command().Line); n > MaxLine {
		return fmt.Errorf("the line of the put would have %d bytes with its tags, and a server takes %d: give shorter keys",
			n+len(crlf), MaxLine+len(crlf))
	}
	return nil
}

// Inserted is the outcome of a put.
type Inserted struct {
	ID uint64

	// Buried tells that the server had no memory to queue the job, which is buried.
	Buried bool

	// Duplicate is the state of the job that had the same key before, upper case, or
	// DELETED. Empty for a new job.
	Duplicate string
}

// Put puts a job into the used tube.
func (c *Conn) Put(ctx context.Context, j *NewJob) (Inserted, error) {
	put := j.Command()
	r, err := c.Do(ctx, put.Line, put.Body)
	if err != nil {
		return Inserted{}, err
	}
	return c.Inserted(r)
}

// Inserted understands the reply to a put.
func (c *Conn) Inserted(r Reply) (i Inserted, err error) {
	if i.Buried = r.Word == "BURIED"; !i.Buried {
		if err := r.Check("put", "INSERTED"); err != nil {
			return i, err
		}
	}
	if len(r.Args) > 1 {
		i.Duplicate = r.Args[1]
	}
	i.ID, err = c.number(&r, 0)
	return i, err
}
