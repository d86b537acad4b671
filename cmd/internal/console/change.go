package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// target says what a change is done to.
type target uint8

const (
	toTube target = iota
	toJob
	toJobs // that the form or JSON names
	toConnection
	toServer
)

// change is something that operators do. Pages and the API have the same ones.
type change struct {
	path  string // of its form, and below apiRoot unless apiPath is set
	verb  string
	id    string // in the API's description
	about string // for the same
	to    target

	apiPath string // below apiRoot
	// asks tells that what it destroys is counted and asked for once more.
	asks bool
	// fields are what it takes from the form or JSON.
	fields []*field
	do     func(context.Context, *client.Conn, *order) (outcome, error)
}

// api is the path of the change below apiRoot.
func (ch *change) api() string {
	if ch.apiPath != "" {
		return ch.apiPath
	}
	return ch.path
}

// outcome is what has come of a change.
type outcome struct {
	Done  string `json:"done" about:"In words"`
	Count uint64 `json:"count" about:"Jobs that were changed; of a put and a copy, the id of the job"`
	jobs  bool   // Done is said of so many jobs
}

// changes are all that there are.
var changes = []*change{
	{
		path: "/tubes/{tube}/flush", verb: "flush", id: "flush", to: toTube, asks: true, do: doFlush,
		about: "Delete all jobs of a tube. Needs flush-tube.",
	},
	{
		path: "/tubes/{tube}/kick", verb: "kick", id: "kickTube", to: toTube, fields: []*field{countField}, do: doKickTube,
		about: "Make buried jobs ready or, if there are none, delayed ones",
	},
	{
		path: "/tubes/{tube}/move", verb: "move", id: "moveTube", to: toTube,
		fields: []*field{stateField, toField, countField}, do: doMoveTube,
		about: "Move the first jobs in a state, which is not reserved, to another tube. Needs move-tube.",
	},
	{
		path: "/tubes/{tube}/delete", verb: "delete", id: "deleteTube", to: toTube, asks: true,
		fields: []*field{stateField, countField}, do: doDeleteTube,
		about: "Delete the first jobs in a state. Needs delete-tube-jobs.",
	},
	{
		path: "/tubes/{tube}/pause", verb: "pause", id: "pause", to: toTube, fields: []*field{secondsField}, do: doPause,
		about: "Hand out no jobs of a tube for a time",
	},
	{
		path: "/tubes/{tube}/dlq", verb: "dlq", id: "setDeadLetters", to: toTube, fields: []*field{attemptsField, toField},
		do:    doDeadLetters,
		about: "Bury a job of a tube in another one when its reservations have failed so many times",
	},
	{
		path: "/tubes/{tube}/settings", verb: "set", id: "setTube", to: toTube, fields: []*field{settingsField},
		do:    doSetTube,
		about: "Change keys of a tube's setting; others stay as they are. Needs set-tube.",
	},
	{
		path: "/jobs/{id}/kick", verb: "kick", id: "kick", to: toJob, do: doKick, about: "Make a buried or delayed job ready",
	},
	{path: "/jobs/{id}/bury", verb: "bury", id: "bury", to: toJob, do: doBury, about: "Bury a ready or delayed job"},
	{
		path: "/jobs/{id}/delete", verb: "delete", id: "delete", to: toJob, asks: true, do: doDelete,
		about: "Delete a job that nobody holds",
	},
	{
		path: "/jobs/{id}/move", verb: "move", id: "move", to: toJob, fields: []*field{toField}, do: doMove,
		about: "Move a job that nobody holds to another tube. Needs move-job.",
	},
	{
		path: "/jobs/{id}/copy", verb: "copy", id: "copy", to: toJob, fields: []*field{toField}, do: doCopy,
		about: "Put a job with the same body, priority and time to run into a tube",
	},
	{
		path: "/jobs/kick", verb: "kick", id: "kickJobs", to: toJobs, fields: []*field{idsField}, do: doKick,
		about: "Make buried or delayed jobs ready",
	},
	{
		path: "/jobs/bury", verb: "bury", id: "buryJobs", to: toJobs, fields: []*field{idsField}, do: doBury,
		about: "Bury ready or delayed jobs",
	},
	{
		path: "/jobs/delete", verb: "delete", id: "deleteJobs", to: toJobs, asks: true, fields: []*field{idsField},
		do:    doDelete,
		about: "Delete jobs that nobody holds",
	},
	{
		path: "/jobs/move", verb: "move", id: "moveJobs", to: toJobs, fields: []*field{idsField, toField}, do: doMove,
		about: "Move jobs that nobody holds to another tube. Needs move-job.",
	},
	{
		path: "/put", apiPath: "/jobs", verb: "put", id: "put", to: toServer, do: doPut, about: "Put a job",
		fields: []*field{toField, priField, delayField, ttrField, keyField, bodyField},
	},
	{
		path: "/connections/{connection}/kick", verb: "kick", id: "kickConnection", to: toConnection, do: doKickConnection,
		about: "End a connection. What it had reserved is ready again. Needs kick-connection.",
	},
	{
		path: "/server/drain", verb: "drain", id: "drain", to: toServer, asks: true, do: doDrain,
		about: "Refuse new jobs. Needs drain.",
	},
	{
		path: "/server/undrain", verb: "undrain", id: "undrain", to: toServer, do: doUndrain,
		about: "Take new jobs again. Needs undrain.",
	},
}

// counted is the outcome of a change that the server does to a number of jobs.
func counted(done string) func(uint64, error) (outcome, error) {
	return func(n uint64, err error) (outcome, error) { return outcome{done, n, true}, err }
}

func doFlush(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return counted("deleted")(conn.FlushTube(ctx, o.Tube))
}

func doKickTube(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return counted("kicked")(conn.KickTube(ctx, o.Tube, o.Count))
}

func doMoveTube(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return counted("moved")(conn.MoveTube(ctx, o.Tube, o.State, o.To, o.Count))
}

func doDeleteTube(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return counted("deleted")(conn.DeleteTubeJobs(ctx, o.Tube, o.State, o.Count))
}

// byID is the outcome of a change to jobs with ids. Those that have gone are passed over; if all have, the error is
// client.ErrNotFound.
func byID(done string) func(operate.Outcome, error) (outcome, error) {
	return func(o operate.Outcome, err error) (outcome, error) {
		if err == nil && o.Done == 0 {
			err = client.ErrNotFound
		}
		return outcome{done, o.Done, true}, err
	}
}

func doKick(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return byID("kicked")(operate.Kick(ctx, conn, &operate.Jobs{IDs: o.IDs}))
}

func doBury(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return byID("buried")(operate.Bury(ctx, conn, &operate.Jobs{IDs: o.IDs}))
}

func doDelete(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return byID("deleted")(operate.Delete(ctx, conn, &operate.Jobs{IDs: o.IDs}))
}

func doMove(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return byID("moved")(operate.Move(ctx, conn, &operate.Jobs{IDs: o.IDs}, o.To))
}

func doPause(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	done := "paused for " + operate.Seconds(uint64(o.Seconds))
	if o.Seconds == 0 {
		done = "resumed"
	}
	return whole(done, conn.Pause(ctx, o.Tube, o.Seconds))
}

func doDeadLetters(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	done := "jobs are buried in " + o.To + " after " + operate.Counted(o.Attempts, "failed attempt")
	if o.Attempts == 0 {
		done = "no job is buried for its failed attempts any more"
	}
	return whole(done, conn.SetDeadLetters(ctx, o.Tube, o.Attempts, o.To))
}

func doSetTube(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return whole("settings changed", conn.SetTube(ctx, o.Tube, o.Settings...))
}

func doKickConnection(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return whole("ended", conn.KickConnection(ctx, o.IDs[0]))
}

func doDrain(ctx context.Context, conn *client.Conn, _ *order) (outcome, error) {
	return whole("takes no new jobs", conn.Drain(ctx))
}

func doUndrain(ctx context.Context, conn *client.Conn, _ *order) (outcome, error) {
	return whole("takes new jobs again", conn.Undrain(ctx))
}

// whole is the outcome of a change that is not done to a number of jobs.
func whole(done string, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	return outcome{Done: done, Count: 1}, nil
}

func doCopy(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	return inserted(within(conn, func() (client.Inserted, error) { return operate.CopyJob(ctx, conn, o.IDs[0], o.To) }))
}

func doPut(ctx context.Context, conn *client.Conn, o *order) (outcome, error) {
	j := client.NewJob{Pri: o.Pri, Delay: o.Delay, TTR: o.TTR, Body: []byte(o.Body)}
	if o.Key != "" {
		j.Tags = []string{"idp:" + o.Key}
		if has, err := conn.Has(ctx, "idp"); err != nil || !has {
			return outcome{}, cmp.Or[error](err, &client.LacksError{Command: "idp"}) // before the tube is used, and made
		}
	}
	if err := conn.Use(ctx, o.To); err != nil {
		return outcome{}, err
	}
	return inserted(conn.Put(ctx, &j))
}

func inserted(i client.Inserted, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	done := fmt.Sprintf("put as job %d", i.ID)
	if i.Duplicate != "" {
		done = fmt.Sprintf("not put: job %d has the key (%s)", i.ID, strings.ToLower(line(i.Duplicate, 20)))
	} else if i.Buried {
		done += ", which is buried, because the server had no memory to queue it"
	}
	return outcome{Done: done, Count: i.ID}, nil
}

// perform does a change if it is allowed, and records the attempt.
func (c *Console) perform(r *request, ch *change, o *order) (action, outcome, error) {
	a := action{From: r.RemoteAddr, What: ch.verb, On: c.target(ch, o), Detail: ch.detail(o)}
	var out outcome
	var err error
	if a.Who, err = c.allowed(r); err == nil {
		err = c.pool.once(r.Context(), func(conn *client.Conn) (err error) {
			if out, err = ch.do(r.Context(), conn, o); err == nil {
				err = conn.Use(r.Context(), "default") // the connection is used again, and its tube is to be gone if it has no jobs
			}
			return err
		})
		c.table.changed()
		c.history.changed()
	}
	return c.record(a, out, err), out, err
}

// record logs an attempt at a change, and remembers it.
func (c *Console) record(a action, out outcome, err error) action {
	a.At, a.Failed = time.Now().UTC().Truncate(time.Second), err != nil
	switch {
	case err == nil && out.jobs:
		a.Result = operate.Counted(out.Count, "job") + " " + out.Done
	case err == nil:
		a.Result = out.Done
	case out.Count > 0:
		a.Result = operate.Counted(out.Count, "job") + " " + out.Done + ", then: " + line(err.Error(), nameRunes)
	default:
		a.Result = line(err.Error(), nameRunes)
	}
	attrs := []any{"who", a.Who, "from", a.From, "what", a.What, "on", a.On, "detail", a.Detail, "result", a.Result}
	switch {
	case errors.Is(err, errReadOnly): // anybody can try, again and again
		c.log.Info("console: refused", attrs...)
	case err != nil:
		c.log.Warn("console: change failed", attrs...)
	default: // a warning, so that it is in the log whatever -V says
		c.log.Warn("console: change", attrs...)
	}
	return c.actions.add(a)
}

// allowed tells who wants a change, and whether that user may have one.
func (c *Console) allowed(r *request) (who string, err error) {
	if !c.cfg.Write {
		return "", errReadOnly
	}
	who, ok := c.cfg.Who(r.Request)
	switch {
	case !ok:
		err = errNobody
	case c.cfg.Writes != nil && !c.cfg.Writes(who):
		err = errReader
	}
	return line(who, 80), err
}

// target names what an order is about.
func (c *Console) target(ch *change, o *order) string {
	switch {
	case ch.to == toTube:
		return "tube " + o.Tube
	case ch.to == toServer:
		return line(c.cfg.Server, nameRunes)
	case ch.to == toConnection:
		return fmt.Sprintf("connection %d", o.IDs[0])
	case len(o.IDs) == 1:
		return fmt.Sprintf("job %d", o.IDs[0])
	}
	s := fmt.Sprintf("jobs %d", o.IDs[0])
	for _, id := range o.IDs[1:min(len(o.IDs), 5)] {
		s += fmt.Sprintf(", %d", id)
	}
	if len(o.IDs) > 5 {
		s += fmt.Sprintf(" and %d more", len(o.IDs)-5)
	}
	return s
}

// peek is a job with its body, if that is not too large.
func peek(ctx context.Context, conn *client.Conn, id uint64) (client.Job, error) {
	return within(conn, func() (client.Job, error) { return conn.Peek(ctx, id) })
}

// within asks for a job whose body has at most maxBody bytes. Otherwise the error is
// errTooBig, and the connection is useless.
func within[T any](conn *client.Conn, ask func() (T, error)) (T, error) {
	conn.MaxBody = maxBody
	defer func() { conn.MaxBody = maxReply }()
	j, err := ask()
	if errors.Is(err, client.ErrTooLarge) {
		err = fmt.Errorf("%w (%w)", errTooBig, err)
	}
	return j, err
}
