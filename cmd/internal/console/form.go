package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

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
		c.record(action{Who: who, From: r.RemoteAddr, What: ch.verb, On: line(r.URL.Path, nameRunes)}, outcome{}, err)
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
	case ch.to == toConnection:
		return base + "/connections"
	case ch.to == toServer:
		return base + "/server"
	}
	return base + "/actions"
}

// confirm asks once more.
func (c *Console) confirm(r *request, ch *change, o *order) error {
	v := confirmation{
		What: ch.verb, Target: c.target(ch, o), Detail: ch.detail(o), Count: int64(len(o.IDs)),
		Action: r.URL.EscapedPath(), Fields: url.Values{}, Back: c.backTo(r, ch, o), Drain: ch.verb == "drain",
		Whole: ch.to == toTube,
	}
	names := []string{"id", "view", "tube", "of"}
	for _, f := range ch.fields {
		names = append(names, f.name)
	}
	for _, name := range names {
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
			n := operate.CountsOf(stats)
			v.Count = n.Jobs()
			if ch.verb == "delete" {
				v.Count = min(int64(o.Count), n.Of(o.State))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.render("confirm", "Are you sure?", "", v)
}
