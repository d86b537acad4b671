package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// apiRoot is what the paths of the API begin with, behind the base.
const apiRoot = "/api/v1"

type apiRead struct {
	path   string // below apiRoot
	read   func(*request) (any, error)
	id     string // in the description, as are the others below
	about  string
	answer string // the name of its schema
	query  []schema
}

var (
	stateParam = param("state", "string", "The state", schema{"enum": client.States, "default": client.Ready})
	limitParam = param("limit", "integer", "How many at most", between(1, client.MaxListJobs, rowsShown))
	afterParam = param("after", "integer", "The last id of the page before", between(0, math.MaxUint64, 0))
)

// apiReads are all that there are, except for the description itself.
var apiReads = []apiRead{
	{
		path: "/stats", read: readStats, id: "stats", answer: "Statistics",
		about: "Statistics of the server, with the keys of the command stats",
	},
	{
		path: "/tubes", read: readTubes, id: "tubes", answer: "Tubes",
		about: "Tubes, as they were counted at most some seconds ago",
		query: []schema{
			param("q", "string", "Only those with this text in their names, in either case", schema{"maxLength": nameRunes}),
			param("sort", "string", "By what; numbers have the greatest first", schema{"enum": sortKeys(), "default": "jobs"}),
			param("reverse", "string", "1: the other way round", schema{"enum": []string{"1"}}),
			param("offset", "integer", "How many to leave out", between(0, maxRows, 0)),
			param("limit", "integer", "How many at most", between(1, maxTubesRead, rowsShown)),
		},
	},
	{
		path: "/tubes/{tube}", read: ofTube(statsTube), id: "tube", answer: "Statistics",
		about: "Statistics of a tube, with the keys of the commands stats-tube and, where the server has it, stats-tube-x. " +
			"jobs-to-do, for autoscalers, are its reserved jobs and, unless something holds them back, its ready ones.",
	},
	{
		path: "/tubes/{tube}/settings", read: ofTube(operate.SettingOfTube), id: "settings", answer: "Statistics",
		about: "The setting of a tube, with the keys of the command list-settings, which it needs",
	},
	{
		path: "/tubes/{tube}/jobs", read: readJobs, id: "jobs", answer: "Jobs",
		query: []schema{stateParam, limitParam, afterParam},
		about: "Jobs of a tube in a state, in the order in which they would be taken. Needs list-jobs.",
	},
	{
		path: "/jobs/{id}", read: readJob, id: "job", answer: "Statistics",
		about: "Statistics of a job, with the keys of the command stats-job",
	},
	{
		path: "/groups/{group}", read: readGroup, id: "group", answer: "Statistics",
		about: "The counts of a group of jobs, with the keys of the command stats-group, which it needs; " +
			"404 if no job is in it and none waits for it",
	},
	{
		path: "/connections", read: readConnections, id: "connections", answer: "Connections",
		query: []schema{limitParam, afterParam},
		about: "Connections by id, with the keys of list-connections. Needs list-connections.",
	},
	{
		path: "/actions", read: readActions, id: "actions", answer: "Actions",
		about: "The last 200 changes that were tried here, the newest first",
	},
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

func readStats(r *request) (any, error) {
	return asked(r, func(conn *client.Conn) (client.Fields, error) { return conn.Stats(r.Context()) })
}

type apiTubes struct {
	Tubes []client.Fields `json:"tubes" each:"Tube"`
	Found int             `json:"found" about:"Tubes that the filter lets through"`
	Total int             `json:"total" about:"Tubes of the server"`
	Age   float64         `json:"age" about:"How many seconds ago they were counted"`
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
	age := math.Round(time.Since(list.at).Seconds()*10) / 10
	v := apiTubes{Tubes: []client.Fields{}, Found: found, Total: list.tubes, Age: age}
	for _, t := range rows {
		v.Tubes = append(v.Tubes, t.Fields(operate.API))
	}
	return v, nil
}

// ofTube reads what question asks the server about the tube in the path.
func ofTube(question func(context.Context, *client.Conn, string) (client.Fields, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		name, err := r.tube()
		if err != nil {
			return nil, err
		}
		return asked(r, func(conn *client.Conn) (client.Fields, error) { return question(r.Context(), conn, name) })
	}
}

func statsTube(ctx context.Context, conn *client.Conn, name string) (client.Fields, error) {
	stats, err := operate.AllStatsTube(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	return append(stats, operate.JobsToDo(stats)), nil
}

type apiJobs struct {
	Jobs []client.Fields `json:"jobs" each:"Job"`
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
func (r *request) rows(
	list func(conn *client.Conn, limit, after uint64) ([]client.Fields, error),
) (rows []client.Fields, err error) {
	limit, err := r.bounded("limit", rowsShown, 1, client.MaxListJobs)
	if err != nil {
		return nil, err
	}
	after, err := r.bounded("after", 0, 0, math.MaxUint64)
	if err != nil {
		return nil, err
	}
	rows, err = asked(r, func(conn *client.Conn) ([]client.Fields, error) { return list(conn, limit, after) })
	if rows == nil {
		rows = []client.Fields{}
	}
	return rows, err
}

func readJob(r *request) (any, error) {
	id, err := r.id()
	if err != nil {
		return nil, err
	}
	return asked(r, func(conn *client.Conn) (client.Fields, error) { return conn.StatsJob(r.Context(), id) })
}

func readGroup(r *request) (any, error) {
	_, stats, err := r.group()
	return stats, err
}

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
	Actions []action `json:"actions"`
}

func readActions(r *request) (any, error) { return apiActions{r.c.actions.all()}, nil }
