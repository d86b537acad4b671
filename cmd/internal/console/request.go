package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"trellis/cmd/internal/client"
)

// request is one that is being answered.
type request struct {
	*http.Request
	c        *Console
	w        http.ResponseWriter
	features client.Capabilities // of the server; set by known
}

// requestError is why a request gets no other answer than a status.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

func inputf(format string, args ...any) error {
	return &requestError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// status is the HTTP status of the answer to a request that has failed with err.
func status(err error) int {
	if e, ok := errors.AsType[*requestError](err); ok {
		return e.status
	}
	switch {
	case errors.Is(err, client.ErrLine):
		return http.StatusBadRequest
	case isGone(err):
		return http.StatusNotFound
	case isLacking(err):
		return http.StatusNotImplemented
	case isRefused(err):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// ask does something with a connection to the server.
func (r *request) ask(do func(*client.Conn) error) error { return r.c.pool.with(r.Context(), do) }

// asked is ask for what has an answer.
func asked[T any](r *request, question func(*client.Conn) (T, error)) (answer T, err error) {
	err = r.ask(func(conn *client.Conn) (err error) {
		answer, err = question(conn)
		return err
	})
	return answer, err
}

// stats are the server's statistics, after it was found out what the server can do.
func (r *request) stats() (client.Fields, error) {
	return asked(r, func(conn *client.Conn) (client.Fields, error) {
		if err := r.known(conn); err != nil {
			return nil, err
		}
		return conn.Stats(r.Context())
	})
}

// known finds out what the server can do.
func (r *request) known(conn *client.Conn) (err error) {
	r.features, err = conn.Capabilities(r.Context())
	return err
}

// refreshes reports whether the script asks for the live parts of a page only. The rest may
// be left empty then.
func (r *request) refreshes() bool { return r.Header.Get("Trellis-Refresh") != "" }

// tube is the tube in the path.
func (r *request) tube() (string, error) {
	name, ok := tubeFromElement(r.PathValue("tube"))
	if !ok {
		return "", inputf("no tube can have that name")
	}
	return name, nil
}

// group is the group of jobs in the path, where its name is escaped as that of a tube, with its counts.
func (r *request) group() (name string, stats client.Fields, err error) {
	name, ok := tubeFromElement(r.PathValue("group"))
	if !ok || client.CheckGroup(name) != nil {
		return "", nil, inputf("no group can have that name")
	}
	stats, err = asked(r, func(conn *client.Conn) (client.Fields, error) { return conn.StatsGroup(r.Context(), name) })
	return name, stats, err
}

// id is the job in the path.
func (r *request) id() (uint64, error) { return parseID(r.PathValue("id")) }

func parseID(s string) (uint64, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, inputf("not an id: %s", line(s, 40))
	}
	return id, nil
}

// bounded is a number of the query, or def if there is none.
func (r *request) bounded(key string, def, least, most uint64) (uint64, error) {
	s := r.URL.Query().Get(key)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, inputf("%s must be a number from %d to %d", key, least, most)
	}
	return n, nil
}

// state is the state in the query, ready if there is none.
func (r *request) state() (client.State, error) {
	s := r.URL.Query().Get("state")
	if s == "" {
		return client.Ready, nil
	}
	state, err := client.ParseState(s)
	if err != nil {
		return "", inputf("%s", line(err.Error(), nameRunes))
	}
	return state, nil
}

type view struct {
	Title   string
	Section string // of the navigation
	Server  string
	Base    string
	Write   bool
	Path    string // of the page, with its query
	Notice  *action
	Servers []serverLink
	LogOut  string // where the form for that goes; may be empty
	// Features are what the server can do, as far as the page has asked.
	Features *client.Capabilities
	Data     any
}

// render answers with a page.
func (r *request) render(name, title, section string, data any) error {
	return r.renderStatus(http.StatusOK, name, title, section, data)
}

func (r *request) renderStatus(status int, name, title, section string, data any) error {
	_, err := r.c.allowed(r)
	v := view{
		Title: title, Section: section, Server: r.c.cfg.Server, Base: r.c.cfg.Base,
		Write: r.c.cfg.Write && !errors.Is(err, errReader),
		Path:  r.URL.RequestURI(), Servers: r.c.cfg.servers, LogOut: r.c.cfg.logOut, Features: &r.features, Data: data,
	}
	if n, err := strconv.ParseUint(r.URL.Query().Get("done"), 10, 64); err == nil {
		v.Notice = r.c.actions.get(n)
	}
	// Into memory first: what fails halfway is no page.
	var b bytes.Buffer
	if err := r.c.pages[name].ExecuteTemplate(&b, "layout", &v); err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	r.w.WriteHeader(status)
	_, _ = r.w.Write(b.Bytes())
	return nil
}

// page is a handler of pages. An error that f returns is shown as one.
func (c *Console) page(f func(*request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r := &request{Request: hr, c: c, w: w}
		if err := f(r); err != nil {
			r.sorry(err)
		}
	})
}

type failure struct {
	Status     int
	Text, Hint string
	Retry      bool // the script asks again, and shows the page when there is one
}

// sorry shows an error.
func (r *request) sorry(err error) {
	f := failure{Status: status(err), Text: line(err.Error(), 400)}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	f.Retry = reads && f.Status != http.StatusBadRequest
	switch {
	case f.Status == http.StatusNotFound:
		f.Text = "There is nothing here."
		f.Hint = "A job may have been deleted since, and a tube is gone when nobody uses it and it has no jobs."
	case f.Status < http.StatusInternalServerError, f.Status == http.StatusNotImplemented:
	case reads:
		f.Hint = "The page tries again by itself."
	case isConnError(err):
		f.Hint = "Whether it was done is not known: look before you try again."
	}
	if err := r.renderStatus(f.Status, "error", http.StatusText(f.Status), "", f); err != nil {
		r.c.log.Error("console", "error", err)
		http.Error(r.w, "this page cannot be shown", http.StatusInternalServerError)
	}
}

// find leads to what somebody looks for: a job by its id, a group as put has it, or a tube.
func (c *Console) find(r *request) error {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	to := c.cfg.Base + "/tubes?" + url.Values{"q": {q}}.Encode()
	if _, err := strconv.ParseUint(q, 10, 64); err == nil {
		to = c.cfg.Base + "/jobs/" + q
	} else if group, ok := strings.CutPrefix(q, "grp:"); ok && client.CheckGroup(group) == nil {
		to = c.cfg.Base + groupPath(group)
	}
	http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
	return nil
}
