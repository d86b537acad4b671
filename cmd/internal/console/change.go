package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"trellis/cmd/internal/client"
)

const (
	// maxForm is the largest form or JSON in bytes that is read, but for a put.
	maxForm = 256 << 10
	// maxPut is the largest body in bytes of a job that is put here.
	maxPut = 1 << 20
	// maxIDs is how many jobs one change may name.
	maxIDs = 1000
	// maxPause is how long a tube may be paused here, in seconds.
	maxPause = 10 * 365 * 86400
)

// target says what a change is done to.
type target uint8

const (
	toTube target = iota
	toJob
	toJobs // that the form or JSON names
	toServer
)

// change is something that operators do. Pages and the API have the same ones.
type change struct {
	path string // of its form, and below apiRoot unless apiPath is set
	verb string
	to   target

	apiPath string // below apiRoot
	// asks tells that what it destroys is counted and asked for once more.
	asks bool
	// fields are the names of the values that it takes from the form or JSON.
	fields []string
	do     func(context.Context, *client.Conn, *order) (done string, n uint64, err error)
}

// api is the path of the change below apiRoot.
func (ch *change) api() string {
	if ch.apiPath != "" {
		return ch.apiPath
	}
	return ch.path
}

// order is what somebody wants to have done.
type order struct {
	Tube string   `json:"-"`
	IDs  []uint64 `json:"ids,omitempty"`

	State   client.State `json:"state,omitempty"`
	To      string       `json:"to,omitempty"`
	Count   uint32       `json:"count,omitempty"`
	Seconds uint32       `json:"seconds,omitempty"`

	Pri   uint32 `json:"pri,omitempty"`
	Delay uint32 `json:"delay,omitempty"`
	TTR   uint32 `json:"ttr,omitempty"`
	Key   string `json:"key,omitempty"`
	Body  string `json:"body,omitempty"`

	Attempts uint32 `json:"attempts,omitempty"`
}

// changes are all that there are.
var changes = []*change{
	{path: "/tubes/{tube}/flush", verb: "flush", to: toTube, asks: true, do: doFlush},
	{path: "/tubes/{tube}/kick", verb: "kick", to: toTube, fields: []string{"count"}, do: doKickTube},
	{path: "/tubes/{tube}/move", verb: "move", to: toTube, fields: []string{"state", "to", "count"}, do: doMoveTube},
	{path: "/tubes/{tube}/delete", verb: "delete", to: toTube, asks: true, fields: []string{"state", "count"}, do: doDeleteTube},
	{path: "/tubes/{tube}/pause", verb: "pause", to: toTube, fields: []string{"seconds"}, do: doPause},
	{path: "/tubes/{tube}/dlq", verb: "dlq", to: toTube, fields: []string{"attempts", "to"}, do: doDeadLetters},
	{path: "/jobs/{id}/kick", verb: "kick", to: toJob, do: each(kickOne)},
	{path: "/jobs/{id}/bury", verb: "bury", to: toJob, do: each(buryOne)},
	{path: "/jobs/{id}/delete", verb: "delete", to: toJob, asks: true, do: each(deleteOne)},
	{path: "/jobs/{id}/move", verb: "move", to: toJob, fields: []string{"to"}, do: each(moveOne)},
	{path: "/jobs/{id}/copy", verb: "copy", to: toJob, fields: []string{"to"}, do: doCopy},
	{path: "/jobs/kick", verb: "kick", to: toJobs, fields: []string{"ids"}, do: each(kickOne)},
	{path: "/jobs/bury", verb: "bury", to: toJobs, fields: []string{"ids"}, do: each(buryOne)},
	{path: "/jobs/delete", verb: "delete", to: toJobs, asks: true, fields: []string{"ids"}, do: each(deleteOne)},
	{path: "/jobs/move", verb: "move", to: toJobs, fields: []string{"ids", "to"}, do: each(moveOne)},
	{path: "/put", apiPath: "/jobs", verb: "put", to: toServer, fields: []string{"to", "pri", "delay", "ttr", "key", "body"}, do: doPut},
	{path: "/server/drain", verb: "drain", to: toServer, asks: true, do: doDrain},
	{path: "/server/undrain", verb: "undrain", to: toServer, do: doUndrain},
}

func doFlush(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	n, err := conn.FlushTube(ctx, o.Tube)
	return "deleted", n, err
}

func doKickTube(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	n, err := conn.KickTube(ctx, o.Tube, o.Count)
	return "kicked", n, err
}

func doMoveTube(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	n, err := conn.MoveTube(ctx, o.Tube, o.State, o.To, o.Count)
	return "moved", n, err
}

func doDeleteTube(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	n, err := conn.DeleteTubeJobs(ctx, o.Tube, o.State, o.Count)
	return "deleted", n, err
}

func doPause(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	done := "paused for " + duration(time.Duration(o.Seconds)*time.Second)
	if o.Seconds == 0 {
		done = "resumed"
	}
	return whole(done, conn.Pause(ctx, o.Tube, o.Seconds))
}

func doDeadLetters(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	done := "jobs are buried in " + o.To + " after " + plural(uint64(o.Attempts), "failed attempt")
	if o.Attempts == 0 {
		done = "no job is buried for its failed attempts any more"
	}
	return whole(done, conn.SetDeadLetters(ctx, o.Tube, o.Attempts, o.To))
}

// whole is the outcome of a change that is not done to a number of jobs.
func whole(done string, err error) (string, uint64, error) {
	if err != nil {
		return "", 0, err
	}
	return done, 1, nil
}

func doDrain(ctx context.Context, conn *client.Conn, _ *order) (string, uint64, error) {
	return whole("takes no new jobs", conn.Drain(ctx))
}

func doUndrain(ctx context.Context, conn *client.Conn, _ *order) (string, uint64, error) {
	return whole("takes new jobs again", conn.Undrain(ctx))
}

// oneByOne is something that is done to one job.
type oneByOne struct {
	done string
	do   func(context.Context, *client.Conn, *order, uint64) error
}

// each does something to each of the jobs. Those that have gone are passed over; if all have,
// the error is client.ErrNotFound.
func each(one oneByOne) func(context.Context, *client.Conn, *order) (string, uint64, error) {
	return func(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
		n := uint64(0)
		for _, id := range o.IDs {
			err := one.do(ctx, conn, o, id)
			switch {
			case err == nil:
				n++
			case !isGone(err):
				return one.done, n, err
			}
		}
		if n == 0 && len(o.IDs) > 0 {
			return one.done, 0, client.ErrNotFound
		}
		return one.done, n, nil
	}
}

var (
	kickOne = oneByOne{"kicked", func(ctx context.Context, conn *client.Conn, _ *order, id uint64) error {
		return conn.Kick(ctx, id)
	}}
	deleteOne = oneByOne{"deleted", func(ctx context.Context, conn *client.Conn, _ *order, id uint64) error {
		return conn.Delete(ctx, id)
	}}
	moveOne = oneByOne{"moved", func(ctx context.Context, conn *client.Conn, o *order, id uint64) error {
		return conn.MoveJob(ctx, id, o.To)
	}}
	buryOne = oneByOne{"buried", func(ctx context.Context, conn *client.Conn, _ *order, id uint64) error {
		stats, err := conn.StatsJob(ctx, id)
		if err != nil {
			return err
		}
		if _, err := conn.ReserveJob(ctx, id); err != nil {
			return err
		}
		return conn.Bury(ctx, id, uint32(stats.Uint("pri")))
	}}
)

// doCopy puts a job like another one into a tube. The copy gets what is left of the other's delay.
func doCopy(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	stats, err := conn.StatsJob(ctx, o.IDs[0])
	if err != nil {
		return "", 0, err
	}
	job, err := peek(ctx, conn, o.IDs[0])
	if err != nil {
		return "", 0, err
	}
	delay := uint64(0)
	if stats.Text("state") == string(client.Delayed) {
		delay = stats.Uint("time-left")
	}
	return put(ctx, conn, o.To, &client.NewJob{
		Pri: uint32(stats.Uint("pri")), Delay: uint32(delay), TTR: uint32(stats.Uint("ttr")), Body: job.Body,
	})
}

func doPut(ctx context.Context, conn *client.Conn, o *order) (string, uint64, error) {
	j := client.NewJob{Pri: o.Pri, Delay: o.Delay, TTR: o.TTR, Body: []byte(o.Body)}
	if o.Key != "" {
		j.Tags = []string{"idp:" + o.Key}
	}
	return put(ctx, conn, o.To, &j)
}

func put(ctx context.Context, conn *client.Conn, tube string, j *client.NewJob) (string, uint64, error) {
	if len(j.Tags) > 0 {
		if has, err := conn.Has(ctx, "idp"); err == nil && !has {
			return "", 0, &client.LacksError{Command: "idp"}
		} else if err != nil {
			return "", 0, err
		}
	}
	if err := conn.Use(ctx, tube); err != nil {
		return "", 0, err
	}
	i, err := conn.Put(ctx, j)
	if _, e := conn.Do(ctx, "use default", nil); err == nil && e != nil {
		err = e
	}
	if err != nil {
		return "", 0, err
	}
	done := fmt.Sprintf("put as job %d", i.ID)
	if i.Duplicate != "" {
		done = fmt.Sprintf("not put: job %d has the key (%s)", i.ID, strings.ToLower(line(i.Duplicate, 20)))
	} else if i.Buried {
		done += ", which is buried, because the server had no memory to queue it"
	}
	return done, i.ID, nil
}

// outcome is what has come of a change.
type outcome struct {
	Done  string `json:"done"`
	Count uint64 `json:"count"`
}

// perform does a change if it is allowed, and records the attempt.
func (c *Console) perform(r *request, ch *change, o *order) (action, outcome, error) {
	a := action{From: r.RemoteAddr, What: ch.verb, On: c.target(ch, o), Detail: detail(ch, o)}
	var out outcome
	var err error
	if a.Who, err = c.allowed(r); err == nil {
		err = c.pool.once(r.Context(), func(conn *client.Conn) (err error) {
			out.Done, out.Count, err = ch.do(r.Context(), conn, o)
			return err
		})
		c.table.changed()
		c.history.changed()
	}
	return c.record(ch, a, out, err), out, err
}

// record logs an attempt at a change, and remembers it.
func (c *Console) record(ch *change, a action, out outcome, err error) action {
	a.At, a.Failed = time.Now(), err != nil
	switch {
	case err == nil && (ch.to == toServer || ch.verb == "pause" || ch.verb == "dlq" || ch.verb == "copy"):
		a.Result = out.Done
	case err == nil:
		a.Result = plural(out.Count, "job") + " " + out.Done
	case out.Count > 0:
		a.Result = plural(out.Count, "job") + " " + out.Done + ", then: " + line(err.Error(), nameRunes)
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

// allowed tells who wants a change, and whether there may be any.
func (c *Console) allowed(r *request) (who string, err error) {
	if !c.cfg.Write {
		return "", errReadOnly
	}
	who, ok := c.cfg.Who(r.Request)
	if !ok {
		err = errNobody
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

// detail tells the rest of an order.
func detail(ch *change, o *order) string {
	var parts []string
	for _, f := range ch.fields {
		switch f {
		case "state":
			parts = append(parts, string(o.State))
		case "to":
			parts = append(parts, "to tube "+o.To)
		case "count":
			parts = append(parts, "at most "+number(o.Count))
		case "seconds":
			parts = append(parts, fmt.Sprintf("%d s", o.Seconds))
		case "attempts":
			parts = append(parts, plural(uint64(o.Attempts), "attempt"))
		case "body":
			parts = append(parts, plural(uint64(len(o.Body)), "byte"))
		case "key":
			if o.Key != "" {
				parts = append(parts, "key "+o.Key)
			}
		}
	}
	return strings.Join(parts, ", ")
}

func plural(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// check completes an order by the path, and checks it.
func (o *order) check(r *request, ch *change) (err error) {
	switch ch.to {
	case toTube:
		if o.Tube, err = r.tube(); err != nil {
			return err
		}
	case toJob:
		id, err := r.id()
		if err != nil {
			return err
		}
		o.IDs = []uint64{id}
	case toJobs:
		if len(o.IDs) == 0 {
			return inputf("no job was chosen")
		}
		if len(o.IDs) > maxIDs {
			return inputf("more than %d jobs", maxIDs)
		}
	}
	for _, f := range ch.fields {
		switch f {
		case "to":
			if client.CheckTube(o.To) != nil {
				return inputf("no tube can have the name %q", line(o.To, 40))
			}
		case "state":
			if _, err := client.ParseState(string(o.State)); err != nil || o.State == client.Reserved && ch.verb == "move" {
				return inputf("state must be ready, delayed or buried, or, to delete, reserved")
			}
		case "count":
			if o.Count == 0 {
				return inputf("count must be at least 1")
			}
		case "seconds":
			if o.Seconds > maxPause {
				return inputf("seconds must be at most %d", maxPause)
			}
		case "key":
			if o.Key != "" && (client.CheckTube(o.Key) != nil || len(o.Key) > 64) {
				return inputf("a key has 1 to 64 of the characters that names of tubes have")
			}
		case "body":
			if len(o.Body) > maxPut {
				return inputf("a body has at most %s here, and this one %s: trellis put takes larger ones", plural(maxPut, "byte"), number(len(o.Body)))
			}
		}
	}
	return nil
}

// orderOfForm reads an order from a form.
func orderOfForm(r *request, ch *change) (*order, error) {
	o := new(order)
	r.Body = http.MaxBytesReader(r.w, r.Body, limitOf(ch))
	if err := r.ParseForm(); err != nil {
		return nil, inputf("the form cannot be read, or is too large")
	}
	f := r.PostForm
	for _, name := range ch.fields {
		var err error
		switch name {
		case "ids":
			err = o.addIDs(f["id"])
		case "state":
			o.State = client.State(f.Get("state"))
		case "to":
			o.To = strings.TrimSpace(f.Get("to"))
		case "key":
			o.Key = strings.TrimSpace(f.Get("key"))
		case "body":
			// A form has CR LF for each line break of a text field.
			o.Body = strings.ReplaceAll(f.Get("body"), "\r\n", "\n")
		case "count":
			err = formNumber(f, name, &o.Count)
		case "seconds":
			err = formNumber(f, name, &o.Seconds)
		case "attempts":
			err = formNumber(f, name, &o.Attempts)
		case "pri":
			err = formNumber(f, name, &o.Pri)
		case "delay":
			err = formNumber(f, name, &o.Delay)
		case "ttr":
			err = formNumber(f, name, &o.TTR)
		}
		if err != nil {
			return nil, err
		}
	}
	return o, o.check(r, ch)
}

func (o *order) addIDs(texts []string) error {
	if len(texts) > maxIDs {
		return inputf("more than %d jobs", maxIDs)
	}
	for _, s := range texts {
		id, err := parseID(s)
		if err != nil {
			return err
		}
		o.IDs = append(o.IDs, id)
	}
	return nil
}

func formNumber(f url.Values, name string, to *uint32) error {
	n, err := strconv.ParseUint(strings.TrimSpace(f.Get(name)), 10, 32)
	if err != nil {
		return inputf("%s must be a whole number from 0 to 4294967295", name)
	}
	*to = uint32(n)
	return nil
}

// orderOfJSON reads an order from JSON.
func orderOfJSON(r *request, ch *change) (*order, error) {
	// A page of another site can send JSON only with permission, which it does not get.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, inputf("the content type must be application/json")
	}
	o := new(order)
	d := json.NewDecoder(http.MaxBytesReader(r.w, r.Body, limitOf(ch)))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil && !errors.Is(err, io.EOF) {
		return nil, inputf("not the JSON that is wanted: %s", line(err.Error(), nameRunes))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, inputf("something follows the JSON")
	}
	if ch.to != toJobs && o.IDs != nil {
		return nil, inputf("ids are not wanted here")
	}
	return o, o.check(r, ch)
}

func limitOf(ch *change) int64 {
	if ch.verb == "put" {
		return 6*maxPut + maxForm // a byte of a body can take six: as \u0000 in JSON, and as %0D%0A in a form
	}
	return maxForm
}

// confirmation is what the page that asks once more shows.
type confirmation struct {
	What, Target, Detail string
	Count                int64 // jobs
	Whole                bool  // Target is the tube that has the jobs, not the jobs themselves
	Drain                bool
	Action               string // where the form goes
	Fields               url.Values
	Back                 string
}

// form is the handler of a change's form. It leads to a page that shows what has come of
// it.
func (c *Console) form(ch *change) http.Handler {
	return c.page(func(r *request) error {
		// Before anything else: whoever may not change anything is told nothing more.
		if err := c.refused(r, ch); err != nil {
			return err
		}
		o, err := orderOfForm(r, ch)
		if err != nil {
			return err
		}
		if ch.asks && r.PostForm.Get("confirmed") != "yes" {
			return c.confirm(r, ch, o)
		}
		done, _, err := c.perform(r, ch, o)
		if err != nil {
			return err
		}
		to, err := url.Parse(c.backTo(r, ch, o))
		if err != nil {
			return err
		}
		q := to.Query()
		q.Set("done", strconv.FormatUint(done.Number, 10))
		to.RawQuery = q.Encode()
		http.Redirect(r.w, r.Request, to.String(), http.StatusSeeOther)
		return nil
	})
}

// refused records a request for a change that is not allowed, and returns why it is not.
func (c *Console) refused(r *request, ch *change) error {
	who, err := c.allowed(r)
	if err != nil {
		c.record(ch, action{Who: who, From: r.RemoteAddr, What: ch.verb, On: line(r.URL.Path, nameRunes)}, outcome{}, err)
	}
	return err
}

// backTo is the page that a change leads to.
func (c *Console) backTo(r *request, ch *change, o *order) string {
	base := c.cfg.Base
	tube := base + "/tubes/" + tubeElement(o.Tube)
	switch view := r.PostForm.Get("view"); {
	case view == "failed":
		return base + "/failed"
	case view == "tubes":
		return base + "/tubes"
	case view == "jobs" && client.CheckTube(r.PostForm.Get("tube")) == nil:
		back := base + "/tubes/" + tubeElement(r.PostForm.Get("tube")) + "/jobs"
		if s, err := client.ParseState(r.PostForm.Get("of")); err == nil {
			back += "?state=" + string(s)
		}
		return back
	}
	switch {
	case ch.to == toTube:
		return tube
	case ch.to == toJob && ch.verb != "delete":
		return fmt.Sprintf("%s/jobs/%d", base, o.IDs[0])
	case ch.verb == "put":
		return base + "/put"
	case ch.to == toServer:
		return base + "/server"
	}
	return base + "/actions"
}

// confirm asks once more.
func (c *Console) confirm(r *request, ch *change, o *order) error {
	v := confirmation{
		What: ch.verb, Target: c.target(ch, o), Detail: detail(ch, o), Count: int64(len(o.IDs)),
		Action: r.URL.EscapedPath(), Fields: url.Values{}, Back: c.backTo(r, ch, o), Drain: ch.verb == "drain",
		Whole: ch.to == toTube,
	}
	for _, name := range append([]string{"id", "view", "tube", "of"}, ch.fields...) {
		if values := r.PostForm[name]; values != nil {
			v.Fields[name] = values
		}
	}
	if ch.to == toTube {
		err := r.ask(func(conn *client.Conn) error {
			stats, err := conn.StatsTube(r.Context(), o.Tube)
			if err != nil {
				return err
			}
			n := stateCounts(stats)
			v.Count = n.Ready + n.Reserved + n.Delayed + n.Buried
			if ch.verb == "delete" {
				v.Count = min(int64(o.Count), count(stats, "current-jobs-"+string(o.State)))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.render("confirm", "Are you sure?", "", v)
}

// peek is a job with its body, if that is not too large.
func peek(ctx context.Context, conn *client.Conn, id uint64) (client.Job, error) {
	return within(conn, func() (client.Job, error) { return conn.Peek(ctx, id) })
}

// within asks for a job whose body has at most maxBody bytes. Otherwise the error is
// errTooBig, and the connection is useless.
func within(conn *client.Conn, ask func() (client.Job, error)) (client.Job, error) {
	conn.MaxBody = maxBody
	defer func() { conn.MaxBody = maxReply }()
	j, err := ask()
	if errors.Is(err, client.ErrTooLarge) {
		err = fmt.Errorf("%w (%w)", errTooBig, err)
	}
	return j, err
}
