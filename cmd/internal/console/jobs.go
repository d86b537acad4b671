package console

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

const (
	// searchedJobs is how many bodies one search reads, and searchedBytes how much of
	// them in all.
	searchedJobs  = 2000
	searchedBytes = 16 << 20
	// hitsShown is how many hits one search shows.
	hitsShown = 100

	// failedTubes is how many tubes the page of failed jobs lists jobs of at most, and
	// failedEach how many jobs of each.
	failedTubes = 40
	failedEach  = 25
	// failedTime is after how long it begins no further list: a list of a tube costs the
	// server a look at all jobs of the tube's shard.
	failedTime = 50 * time.Millisecond
)

type jobRow struct {
	ID             uint64
	Tube           string
	Pri, Age, Size uint64
	Left           string // time left; empty if there is none
	Preview        string
	blocked
}

// blocked is what a job blocks because it is buried, as far as that is known.
type blocked struct {
	Group   string // empty if there is none
	Waiting int    // jobs that wait for the group
}

func (c *Console) blockedBy(job uint64) (b blocked) {
	if c.cfg.Local != nil {
		b.Group, b.Waiting = c.cfg.Local.Blocks(job)
	}
	return b
}

func rowOf(tube string, f client.Fields) jobRow {
	j := jobRow{ID: f.Uint("id"), Tube: tube, Pri: f.Uint("pri"), Age: f.Uint("age"), Size: f.Uint("size")}
	if v, ok := f.Get("time-left"); ok && v.Text != "" {
		j.Left = operate.Seconds(f.Uint("time-left"))
	}
	return j
}

// firstRow is the first job of a tube in a state that has so many, for a server without lists.
func firstRow(ctx context.Context, conn *client.Conn, tube string, state client.State, n int64) ([]jobRow, error) {
	next := nextJob{State: state, Count: n}
	if err := next.find(ctx, conn, tube); err != nil || next.ID == 0 {
		return nil, err
	}
	row := rowOf(tube, next.Stats)
	row.ID, row.Preview = next.ID, next.Preview
	return []jobRow{row}, nil
}

type stateTab struct {
	State client.State
	Count int64
	Here  bool
	Link  string
}

// jobs is the page of the jobs of a tube in a state.
func (c *Console) jobs(r *request) error {
	name, err := r.tube()
	if err != nil {
		return err
	}
	state, err := r.state()
	if err != nil {
		return err
	}
	after, err := r.bounded("after", 0, 0, math.MaxUint64)
	if err != nil {
		return err
	}
	search := r.URL.Query().Get("q")
	if len(search) > 1000 {
		return inputf("a search has at most 1000 bytes")
	}
	data := struct {
		Name     string
		State    client.State
		Tabs     []stateTab
		Search   string
		Rows     []jobRow
		Lacks    bool
		After    uint64
		Restart  bool
		Next     string
		Searched int
		All      int64
	}{Name: name, State: state, Search: search, After: after}
	here := c.cfg.Base + "/tubes/" + tubeElement(name) + "/jobs?"
	ctx := r.Context()
	var last uint64
	var more bool
	err = r.ask(func(conn *client.Conn) error {
		if err := r.known(conn); err != nil {
			return err
		}
		stats, err := conn.StatsTube(ctx, name)
		if err != nil {
			return err
		}
		data.Tabs, data.Rows, more = nil, nil, false
		counts := operate.CountsOf(stats)
		for _, s := range client.States {
			n := counts.Of(s)
			data.Tabs = append(data.Tabs, stateTab{s, n, s == state, here + url.Values{"state": {string(s)}}.Encode()})
			if s == state {
				data.All = n
			}
		}
		if !r.features.Has("list-jobs") {
			data.Lacks = true
			data.Rows, err = firstRow(ctx, conn, name, state, data.All)
			return err
		}
		limit := rowsShown
		if search != "" {
			limit = searchedJobs
		}
		list, err := conn.ListJobs(ctx, name, state, uint32(limit+1), after)
		if isGone(err) && after != 0 {
			data.Restart = true
			return nil
		}
		if err != nil {
			return err
		}
		if more = len(list) > limit; more {
			list = list[:limit]
		}
		if search == "" {
			for _, f := range list {
				data.Rows = append(data.Rows, rowOf(name, f))
			}
			last = lastID(list)
			return previews(ctx, conn, data.Rows)
		}
		var hits []jobRow
		hits, data.Searched, err = grep(ctx, conn, name, list, search)
		data.Rows = hits
		if data.Searched < len(list) {
			more = true
		}
		last = lastID(list[:data.Searched])
		return err
	})
	if err != nil {
		return err
	}
	if more && last != 0 {
		v := url.Values{"state": {string(state)}, "after": {strconv.FormatUint(last, 10)}}
		if search != "" {
			v.Set("q", search)
		}
		data.Next = here + v.Encode()
	}
	return r.render("jobs", name, "tubes", data)
}

func lastID(list []client.Fields) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Uint("id")
}

// smallBody is the largest body of which lists show the beginning: the protocol gives
// bodies only as a whole.
const smallBody = 4 << 10

// previews fills in the beginnings of small bodies.
func previews(ctx context.Context, conn *client.Conn, rows []jobRow) error {
	var small []int
	for i := range rows {
		if rows[i].Size <= smallBody {
			small = append(small, i)
		}
	}
	return conn.Pipeline(ctx, len(small), func(i int) client.Command {
		return client.Command{Line: "peek " + strconv.FormatUint(rows[small[i]].ID, 10)}
	}, func(i int, reply client.Reply) error {
		rows[small[i]].Preview = preview(reply.Body)
		return nil
	})
}

// grep looks for a text in the bodies of jobs, except those that are too large. It returns
// how many jobs it has looked at: not all if there are many hits, or much to read.
func grep(
	ctx context.Context, conn *client.Conn, tube string, list []client.Fields, text string,
) (hits []jobRow, searched int, err error) {
	var read []int // indexes of list
	end, total := 0, uint64(0)
	for ; end < len(list); end++ {
		size := list[end].Uint("size")
		if size > searchedBytes {
			continue
		}
		if total += size; total > searchedBytes {
			break
		}
		read = append(read, end)
	}
	enough := errors.New("enough")
	err = conn.Pipeline(ctx, len(read), func(i int) client.Command {
		return client.Command{Line: "peek " + strconv.FormatUint(list[read[i]].Uint("id"), 10)}
	}, func(i int, reply client.Reply) error {
		searched = read[i] + 1
		if strings.Contains(string(reply.Body), text) {
			row := rowOf(tube, list[read[i]])
			at := strings.Index(string(reply.Body), text)
			row.Preview = preview(reply.Body[max(0, at-previewRunes/3):])
			hits = append(hits, row)
			if len(hits) == hitsShown {
				return enough
			}
		}
		return nil
	})
	if errors.Is(err, enough) {
		return hits, searched, nil
	}
	return hits, end, err
}

// job is the page of one job.
func (c *Console) job(r *request) error {
	id, err := r.id()
	if err != nil {
		return err
	}
	data := struct {
		ID     uint64
		Tube   string
		State  client.State
		Stats  client.Fields
		Body   shownBody
		TooBig bool
		Holder client.Fields
		blocked
	}{ID: id}
	ctx := r.Context()
	var body []byte
	err = r.ask(func(conn *client.Conn) error {
		if err := r.known(conn); err != nil {
			return err
		}
		if data.Stats, err = conn.StatsJob(ctx, id); err != nil {
			return err
		}
		data.Tube = data.Stats.Text("tube")
		if data.State, err = client.ParseState(data.Stats.Text("state")); err != nil {
			data.State = "unknown"
		}
		if data.State == client.Reserved && r.features.Has("list-connections") {
			if data.Holder, err = holder(ctx, conn, id); err != nil {
				return err
			}
		}
		if r.refreshes() {
			return nil
		}
		j, err := peek(ctx, conn, id)
		body, data.TooBig = j.Body, errors.Is(err, errTooBig)
		return err
	})
	if err != nil && !data.TooBig {
		return err
	}
	data.blocked = c.blockedBy(id)
	data.Body = show(body, r.URL.Query().Get("view"))
	return r.render("job", "Job "+strconv.FormatUint(id, 10), "tubes", data)
}

// holder finds who holds a job, among the first thousands of connections and the first
// jobs that each holds; nil if that does not tell.
func holder(ctx context.Context, conn *client.Conn, id uint64) (client.Fields, error) {
	all, err := conn.Connections(ctx, 2000, 0)
	if isRefused(err) {
		return nil, nil
	}
	text := strconv.FormatUint(id, 10)
	for _, f := range all {
		held, _ := f.Get("reserved-jobs")
		if slices.ContainsFunc(held.List, func(v client.Value) bool { return v.Text == text }) {
			return f, nil
		}
	}
	return nil, err
}

// failed is the page of buried jobs.
func (c *Console) failed(r *request) error {
	list, err := c.list(r.Context())
	if err != nil {
		return err
	}
	rows, _ := list.find(&tubeQuery{by: sortable["buried"], limit: failedTubes})
	rows = slices.DeleteFunc(rows, func(t *operate.Tube) bool { return t.Buried == 0 || client.CheckTube(t.Name) != nil })
	data := struct {
		Tubes   []*operate.Tube
		Rows    []jobRow
		Jobs    int64
		InTubes int
		Listed  int // tubes of which some jobs are in Rows
		Lacks   bool
		Blocks  bool // some of Rows block groups
		// Dead are the first of the settings of dead letters.
		Dead     []client.Fields
		Settings int
	}{Tubes: rows, Jobs: list.sum.Buried, InTubes: list.buried}
	ctx := r.Context()
	tooBig := make(map[string]bool) // tubes of which not even the first job can be seen
	look := func(conn *client.Conn) error {
		if err := r.known(conn); err != nil {
			return err
		}
		data.Rows = nil
		data.Lacks = !r.features.Has("list-jobs")
		if r.refreshes() {
			return nil
		}
		began := time.Now()
		for data.Listed = 0; data.Listed < len(rows) && (data.Listed == 0 || time.Since(began) < failedTime); data.Listed++ {
			tube := rows[data.Listed].Name
			if tooBig[tube] {
				continue
			}
			jobs, err := buried(ctx, conn, tube, data.Lacks)
			if err != nil {
				tooBig[tube] = errors.Is(err, errTooBig)
				return err
			}
			data.Rows = append(data.Rows, jobs...)
		}
		slices.SortStableFunc(data.Rows, func(a, b jobRow) int { return cmp.Compare(b.Age, a.Age) })
		data.Rows = data.Rows[:min(len(data.Rows), rowsShown)]
		if r.features.Has("list-dlq") {
			var err error
			if data.Dead, err = conn.DeadLetters(ctx); err != nil && !isRefused(err) {
				return err
			}
			data.Settings = len(data.Dead)
			data.Dead = data.Dead[:min(len(data.Dead), rowsShown)]
		}
		if data.Lacks {
			return nil
		}
		return previews(ctx, conn, data.Rows)
	}
	// A body that is too large ends the connection: its tube is left out at the next look.
	for err = r.ask(look); errors.Is(err, errTooBig); err = r.ask(look) {
	}
	if err != nil {
		return err
	}
	for i := range data.Rows {
		row := &data.Rows[i]
		row.blocked = c.blockedBy(row.ID)
		data.Blocks = data.Blocks || row.Group != ""
	}
	return r.render("failed", "Failed", "failed", data)
}

// buried are the first buried jobs of a tube; where there are no lists, the first one.
func buried(ctx context.Context, conn *client.Conn, tube string, lacks bool) (rows []jobRow, err error) {
	if lacks {
		return firstRow(ctx, conn, tube, client.Buried, 1)
	}
	list, err := conn.ListJobs(ctx, tube, client.Buried, failedEach, 0)
	if isGone(err) {
		return nil, nil
	}
	for _, f := range list {
		rows = append(rows, rowOf(tube, f))
	}
	return rows, err
}
