package console

import (
	_ "embed"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"trellis/cmd/internal/client"
)

// apiRoot is what the paths of the API begin with, behind the base.
const apiRoot = "/api/v1"

// openapi describes the API.
//
//go:embed openapi.json
var openapi []byte

func serveDescription(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi)
}

// apiRead is something that the API tells.
type apiRead struct {
	path string // below apiRoot
	read func(*request) (any, error)
}

// apiReads are all that there are, except for the description itself.
var apiReads = []apiRead{
	{"/stats", readStats},
	{"/tubes", readTubes},
	{"/tubes/{tube}", readTube},
	{"/tubes/{tube}/jobs", readJobs},
	{"/jobs/{id}", readJob},
	{"/connections", readConnections},
	{"/actions", readActions},
}

// apiError is the answer to a request that has failed.
type apiError struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"this cannot be told as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// api is a handler that answers with JSON.
func (c *Console) api(read func(*request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		v, err := read(&request{Request: hr, c: c, w: w})
		if err != nil {
			writeJSON(w, status(err), apiError{line(err.Error(), 400)})
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// call is the handler of a change in the API. It does not ask once more.
func (c *Console) call(ch *change) http.Handler {
	return c.api(func(r *request) (any, error) {
		if err := c.refused(r, ch); err != nil {
			return nil, err
		}
		o, err := orderOfJSON(r, ch)
		if err != nil {
			return nil, err
		}
		_, out, err := c.perform(r, ch, o)
		return out, err
	})
}

func readStats(r *request) (v any, err error) {
	err = r.ask(func(conn *client.Conn) error {
		v, err = conn.Stats(r.Context())
		return err
	})
	return v, err
}

// apiTubes is a page of tubes.
type apiTubes struct {
	Tubes []apiTube `json:"tubes"`
	// Found are those that the filter lets through, Total all that the server has.
	Found int `json:"found"`
	Total int `json:"total"`
	// Age is how many seconds ago the tubes were counted.
	Age float64 `json:"age"`
}

// apiTube is a tube with the keys of stats-tube, as far as a table has them.
type apiTube struct {
	Name     string   `json:"name"`
	Urgent   int64    `json:"current-jobs-urgent"`
	Ready    int64    `json:"current-jobs-ready"`
	Reserved int64    `json:"current-jobs-reserved"`
	Delayed  int64    `json:"current-jobs-delayed"`
	Buried   int64    `json:"current-jobs-buried"`
	Total    uint64   `json:"total-jobs"`
	Using    int64    `json:"current-using"`
	Watching int64    `json:"current-watching"`
	Waiting  int64    `json:"current-waiting"`
	Deletes  uint64   `json:"cmd-delete"`
	Pause    int64    `json:"pause-time-left"`
	Oldest   *float64 `json:"oldest-ready,omitempty"` // seconds
}

func readTubes(r *request) (any, error) {
	q, err := r.tubeQuery()
	if err != nil {
		return nil, err
	}
	list, err := r.c.list(r.Context())
	if err != nil {
		return nil, err
	}
	rows, found := list.find(q)
	v := apiTubes{Tubes: []apiTube{}, Found: found, Total: list.tubes, Age: ageOf(list)}
	for _, t := range rows {
		a := apiTube{
			Name: t.Name, Urgent: t.Urgent, Ready: t.Ready, Reserved: t.Reserved, Delayed: t.Delayed, Buried: t.Buried, Total: t.Puts,
			Using: t.Using, Watching: t.Watching, Waiting: t.Waiting, Deletes: t.Deletes, Pause: int64(math.Ceil(t.PauseLeft.Seconds())),
		}
		if t.Oldest >= 0 {
			s := t.Oldest.Seconds()
			a.Oldest = &s
		}
		v.Tubes = append(v.Tubes, a)
	}
	return v, nil
}

func readTube(r *request) (v any, err error) {
	name, err := r.tube()
	if err != nil {
		return nil, err
	}
	err = r.ask(func(conn *client.Conn) error {
		v, err = conn.StatsTube(r.Context(), name)
		return err
	})
	return v, err
}

// apiJobs is a page of jobs.
type apiJobs struct {
	Jobs []client.Fields `json:"jobs"`
}

func readJobs(r *request) (any, error) {
	name, err := r.tube()
	if err != nil {
		return nil, err
	}
	state, err := r.state()
	if err != nil {
		return nil, err
	}
	rows, err := r.rows(func(conn *client.Conn, limit, after uint64) ([]client.Fields, error) {
		return conn.ListJobs(r.Context(), name, state, uint32(limit), after)
	})
	return apiJobs{rows}, err
}

// rows asks for a page of a list, of which the request says the limit and where it begins.
// A page of none is not nil, and so is a list in JSON.
func (r *request) rows(list func(conn *client.Conn, limit, after uint64) ([]client.Fields, error)) (rows []client.Fields, err error) {
	limit, err := r.bounded("limit", rowsShown, 1, client.MaxListJobs)
	if err != nil {
		return nil, err
	}
	after, err := r.bounded("after", 0, 0, math.MaxUint64)
	if err != nil {
		return nil, err
	}
	err = r.ask(func(conn *client.Conn) error {
		rows, err = list(conn, limit, after)
		return err
	})
	if rows == nil {
		rows = []client.Fields{}
	}
	return rows, err
}

func readJob(r *request) (v any, err error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	err = r.ask(func(conn *client.Conn) error {
		v, err = conn.StatsJob(r.Context(), id)
		return err
	})
	return v, err
}

// apiConnections is a page of connections.
type apiConnections struct {
	Connections []client.Fields `json:"connections"`
}

func readConnections(r *request) (any, error) {
	rows, err := r.rows(func(conn *client.Conn, limit, after uint64) ([]client.Fields, error) {
		return conn.Connections(r.Context(), limit, after)
	})
	return apiConnections{rows}, err
}

// apiActions are the last actions, the newest first.
type apiActions struct {
	Actions []apiAction `json:"actions"`
}

type apiAction struct {
	Number uint64 `json:"number"`
	At     string `json:"at"`
	Who    string `json:"who"`
	From   string `json:"from"`
	What   string `json:"what"`
	On     string `json:"on"`
	Detail string `json:"detail"`
	Result string `json:"result"`
	Failed bool   `json:"failed"`
}

func readActions(r *request) (any, error) {
	v := apiActions{Actions: []apiAction{}}
	for _, a := range r.c.actions.all() {
		v.Actions = append(v.Actions, apiAction{
			a.Number, a.At.UTC().Format("2006-01-02T15:04:05Z"), a.Who, a.From, a.What, a.On, a.Detail, a.Result, a.Failed,
		})
	}
	return v, nil
}

func ageOf(l *tubeList) float64 { return math.Round(time.Since(l.at).Seconds()*10) / 10 }
