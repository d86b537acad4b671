package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/console/chart"
	"trellis/cmd/internal/console/series"
	"trellis/cmd/internal/operate"
)

type plot struct {
	Title  string
	Unit   string // of its values, such as "jobs/s"
	SVG    template.HTML
	Top    string
	From   string // how long ago it begins
	Legend []legend
	// Data are the values for the script, in the order of the legend; oldest first.
	Data string
	Step int // seconds between values
}

type legend struct{ Class, Name, Now string }

// curve is a number of points as a line.
type curve struct {
	number      series.Number
	class, name string
	fill        bool
}

func newPlot(title, unit string, points []series.Point, long bool, curves ...curve) plot {
	p := plot{Title: title, Unit: unit, From: "5 min ago", Step: 1}
	if long {
		p.From, p.Step = "6 h ago", 60
	}
	lines := make([]chart.Line, len(curves))
	var data strings.Builder
	for i, cu := range curves {
		values := make([]float32, len(points))
		last := math.NaN()
		if i > 0 {
			data.WriteByte(';')
		}
		for k := range points {
			v := points[k][cu.number]
			values[k] = v
			if k > 0 {
				data.WriteByte(',')
			}
			if v == v {
				last = float64(v)
				data.WriteString(strconv.FormatFloat(math.Round(float64(v)*10)/10, 'f', -1, 32))
			}
		}
		lines[i] = chart.Line{Class: cu.class, Values: values, Fill: cu.fill}
		p.Legend = append(p.Legend, legend{cu.class, cu.name, operate.Short(last)})
	}
	top := chart.Top(lines)
	p.SVG, p.Top, p.Data = chart.Lines(lines, top), operate.Short(top), data.String()
	return p
}

func flowPlot(points []series.Point, long bool) plot {
	return newPlot("In and out", "jobs/s", points, long,
		curve{series.In, "in", "put", true}, curve{series.Out, "out", "deleted", false},
		curve{series.Timeouts, "timeouts", "timed out", false})
}

func tubeFlowPlot(points []series.Point, long bool) plot {
	return newPlot("In and out", "jobs/s", points, long,
		curve{series.In, "in", "put", true}, curve{series.Out, "out", "deleted", false})
}

func statePlot(points []series.Point, long bool) plot {
	return newPlot("Jobs by state", "jobs", points, long,
		curve{series.Ready, "ready", "ready", true}, curve{series.Reserved, "reserved", "reserved", false},
		curve{series.Delayed, "delayed", "delayed", false}, curve{series.Buried, "buried", "buried", false})
}

func workerPlot(points []series.Point, long bool) plot {
	return newPlot("Workers with nothing to do", "waiting", points, long,
		curve{series.Waiting, "waiting", "waiting", true})
}

func tubeWorkerPlot(points []series.Point, long bool) plot {
	return newPlot("Workers", "workers", points, long,
		curve{series.Busy, "reserved", "busy", true}, curve{series.Waiting, "waiting", "waiting", false})
}

// waitPlot is in milliseconds as long as no job had to wait for long.
func waitPlot(points []series.Point, long bool) plot {
	unit := "s"
	if !slices.ContainsFunc(points, func(p series.Point) bool { return p[series.Wait] >= 10 }) {
		unit, points = "ms", slices.Clone(points)
		for i := range points {
			points[i][series.Wait] *= 1000
		}
	}
	return newPlot("Wait for a worker", unit, points, long, curve{series.Wait, "wait", "on average", true})
}

type bars struct {
	Title, Note string
	Empty       string // said in place of bars if there is nothing to show
	SVG         template.HTML
	Bins        []bin
}

type bin struct {
	Last  bool // it has no bound
	Edge  string
	Range string
	Count uint64
	Short string // the count
}

// newBars makes a histogram; nil if there are no buckets.
func newBars(title, note, empty string, buckets []Bucket) *bars {
	if len(buckets) == 0 {
		return nil
	}
	b := &bars{Title: title, Note: note}
	sum := uint64(0)
	values := make([]float64, len(buckets))
	for i, k := range buckets {
		values[i] = float64(k.Count)
		sum += k.Count
		bin := bin{Count: k.Count, Short: operate.Short(float64(k.Count))}
		if k.UpTo >= 0 {
			bin.Edge, bin.Range = brief(k.UpTo), "up to "+operate.Duration(k.UpTo)
		} else {
			bin.Last, bin.Range = true, "over "+operate.Duration(buckets[max(0, i-1)].UpTo)
		}
		b.Bins = append(b.Bins, bin)
	}
	if sum == 0 {
		b.Empty = empty
	}
	b.SVG = chart.Bars("wait", values)
	return b
}

// brief is a duration in its greatest unit, for where there is little room.
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return operate.Duration(d)
	case d < time.Hour:
		return operate.Short(d.Minutes()) + " m"
	case d < 24*time.Hour:
		return operate.Short(d.Hours()) + " h"
	}
	return operate.Short(d.Hours()/24) + " d"
}

type tile struct{ Name, Class, Value, Note, Path string }

func (c *Console) overview(r *request) error {
	long := r.URL.Query().Get("range") == "6h"
	stats, err := r.stats()
	data := struct {
		Long     bool
		Down     string
		Tiles    []tile
		Plots    []plot
		Waits    *bars
		Problems []Problem
		Busiest  []*operate.Tube
		Columns  []*operate.Column
		Tubes    int
		Known    bool // the tubes are known
	}{Long: long, Columns: c.columns()}
	if c.cfg.Local != nil {
		data.Problems = c.cfg.Local.Problems()
		data.Waits = newBars("How long jobs were ready before they were reserved", "since the start",
			"No job has been reserved yet.", c.cfg.Local.Waits())
	}
	now := time.Now()
	points := c.history.ofServer(now, long)
	data.Plots = []plot{flowPlot(points, long), statePlot(points, long), workerPlot(points, long)}
	if err != nil {
		data.Down = line(err.Error(), 400)
		return r.render("overview", "Overview", "overview", data)
	}
	n := operate.CountsOf(stats)
	oldest, orphaned := "", ""
	if list, err := c.list(r.Context()); err == nil {
		data.Busiest, data.Tubes = list.find(&tubeQuery{by: sortable["jobs"], limit: 8})
		data.Tubes, data.Known = list.tubes, true
		data.Problems = append(data.Problems, tubeProblems(list)...)
		if list.sum.Oldest >= 0 && n.Ready > 0 {
			oldest = "oldest " + operate.Duration(list.sum.Oldest)
		}
		orphaned = list.sum.OrphansText()
	}
	if stats.Text("draining") == "true" && c.cfg.Local == nil {
		draining := Problem{Severe: true, Text: "Draining: new jobs are refused.", Path: "/server"}
		data.Problems = append([]Problem{draining}, data.Problems...)
	}
	data.Tiles = append(stateTiles(&n, oldest, orphaned, "/tubes?sort="),
		workersTile(stats.Uint("current-workers"), &n, "/connections"),
		tile{"Timed out", "plain", operate.Count(n.Timeouts), "since the start", ""},
	)
	data.Tiles[3].Path = "/failed"
	return r.render("overview", "Overview", "overview", data)
}

// stateTiles are how many jobs are in each state, with notes on ready and reserved ones. The state's name follows path.
func stateTiles(n *operate.Counts, ready, reserved, path string) (tiles []tile) {
	notes := map[client.State]string{client.Ready: ready, client.Reserved: reserved}
	for _, s := range client.States {
		name := string(s)
		tiles = append(tiles, tile{strings.ToUpper(name[:1]) + name[1:], name, operate.Count(n.Of(s)), notes[s], path + name})
	}
	return tiles
}

func workersTile(workers uint64, n *operate.Counts, path string) tile {
	return tile{"Workers", "plain", operate.Count(workers), operate.Count(n.Waiting) + " waiting", path}
}

// tubeProblems are what a table tells of tubes that need attention.
func tubeProblems(l *tubeList) (p []Problem) {
	if l.paused > 0 {
		p = append(p, Problem{Text: operate.Counted(l.paused, "tube") + " paused.", Path: "/tubes?sort=limited"})
	}
	if l.idle > 0 {
		text := operate.Counted(l.idle, "tube") + " with ready jobs that no worker watches."
		p = append(p, Problem{Text: text, Path: "/tubes?sort=ready"})
	}
	if l.buried > 0 {
		text := operate.Counted(l.sum.Buried, "buried job") + " in " + operate.Counted(l.buried, "tube") + "."
		p = append(p, Problem{Text: text, Path: "/failed"})
	}
	return p
}

// rowsShown is how many tubes, jobs or connections a page has.
const rowsShown = 100

// maxTubesRead is how many tubes one request may ask for.
const maxTubesRead = 1000

type heading struct {
	*operate.Column
	Link string
	Sort string // as aria-sort has it; empty if the table is not sorted by it
}

// columns are those of a table of tubes.
func (c *Console) columns() []*operate.Column {
	return slices.DeleteFunc(operate.ColumnsOf(operate.Page),
		func(col *operate.Column) bool { return col.Local && c.cfg.Local == nil })
}

// tubes is the page of all tubes.
func (c *Console) tubes(r *request) error {
	q, err := r.tubeQuery()
	if err != nil {
		return err
	}
	list, err := c.list(r.Context())
	if err != nil {
		return err
	}
	rows, all := list.find(q)
	data := struct {
		Filter              string
		Columns             []*operate.Column
		Headings            []heading
		Rows                []*operate.Tube
		All, Tubes, Missing int
		First, Last         int
		Previous, Next      string
		Age                 string
	}{
		Filter: q.filter, Columns: c.columns(), Rows: rows, All: all, Tubes: list.tubes, Missing: list.tubes - len(list.rows),
		First: q.offset + 1, Last: q.offset + len(rows),
	}
	if age := time.Since(list.at); age > 3*tableAge {
		data.Age = operate.Duration(age)
	}
	link := func(column string, reverse bool, offset int) string {
		v := url.Values{}
		if q.filter != "" {
			v.Set("q", q.filter)
		}
		v.Set("sort", column)
		if reverse {
			v.Set("reverse", "1")
		}
		if offset > 0 {
			v.Set("offset", strconv.Itoa(offset))
		}
		return c.cfg.Base + "/tubes?" + v.Encode()
	}
	for _, col := range data.Columns {
		h, reverse := heading{Column: col}, false
		if col.Key == q.by.Key {
			reverse = !q.reverse
			h.Sort = "descending"
			if (col.Kind == operate.Name) != q.reverse {
				h.Sort = "ascending"
			}
		}
		h.Link = link(col.Key, reverse, 0)
		data.Headings = append(data.Headings, h)
	}
	if q.offset > 0 {
		data.Previous = link(q.by.Key, q.reverse, max(0, q.offset-q.limit))
	}
	if q.offset+len(rows) < all {
		data.Next = link(q.by.Key, q.reverse, q.offset+q.limit)
	}
	return r.render("tubes", "Tubes", "tubes", data)
}

// tubeQuery reads which tubes are wanted.
func (r *request) tubeQuery() (*tubeQuery, error) {
	v := r.URL.Query()
	q := &tubeQuery{filter: strings.TrimSpace(v.Get("q")), reverse: v.Get("reverse") == "1"}
	by := cmp.Or(v.Get("sort"), "jobs")
	if q.by = sortable[by]; q.by == nil {
		return nil, inputf("tubes cannot be sorted by %s", line(by, 40))
	}
	if len(q.filter) > nameRunes {
		return nil, inputf("no name is that long")
	}
	offset, err := r.bounded("offset", 0, 0, maxRows)
	if err != nil {
		return nil, err
	}
	limit, err := r.bounded("limit", rowsShown, 1, maxTubesRead)
	q.offset, q.limit = int(offset), int(limit)
	return q, err
}

type nextJob struct {
	State   client.State
	Count   int64
	ID      uint64 // 0: none, or not known
	TooBig  bool   // its body is larger than maxBody, and so it is not known
	Preview string
	Stats   client.Fields
}

// tube is the page of one tube.
func (c *Console) tube(r *request) error {
	name, err := r.tube()
	if err != nil {
		return err
	}
	long := r.URL.Query().Get("range") == "6h"
	data := struct {
		Name   string
		Long   bool
		Stats  client.Fields
		Paused time.Duration
		Tiles  []tile
		Plots  []plot
		Ages   *bars
		Next   []nextJob
		Dead   client.Fields // the setting of dead letters
		Held   string        // why no ready job is handed out
		Keys   []operate.Setting
	}{Name: name, Long: long}
	ctx := r.Context()
	var points []series.Point
	var n operate.Counts
	tooBig := make(map[client.State]bool)
	look := func(conn *client.Conn) error {
		if err := r.known(conn); err != nil {
			return err
		}
		if data.Stats, err = operate.AllStatsTube(ctx, conn, name); err != nil {
			return err
		}
		n = operate.CountsOf(data.Stats)
		points = c.history.ofTube(name, time.Now(), long) // from now on the ages can be kept, too
		data.Next = nil
		for _, state := range client.States {
			next := nextJob{State: state, Count: n.Of(state), TooBig: tooBig[state]}
			if err := next.find(ctx, conn, name); err != nil {
				tooBig[state] = errors.Is(err, errTooBig)
				return err
			}
			data.Next = append(data.Next, next)
		}
		if r.features.Has("list-dlq") {
			settings, err := conn.DeadLetters(ctx)
			if err != nil && !isRefused(err) {
				return err
			}
			data.Dead = settingOf(settings, name)
		}
		if r.features.Has("set-tube") && r.features.Has("list-settings") {
			setting, err := operate.SettingOfTube(ctx, conn, name)
			if err != nil && !isRefused(err) {
				return err
			}
			data.Keys = operate.SettingsOf(setting)
		}
		if data.Ages = nil; r.features.Has("list-jobs") {
			ages, err := c.agesOfTube(ctx, conn, name)
			if err != nil {
				return err
			}
			data.Ages = agesBars(ages, data.Next[0].Count)
		}
		return nil
	}
	// A body that is too large ends the connection: its job is left out at the next look.
	for err = r.ask(look); errors.Is(err, errTooBig); err = r.ask(look) {
	}
	if err != nil {
		return err
	}
	data.Plots = []plot{tubeFlowPlot(points, long), statePlot(points, long), workerPlot(points, long)}
	if r.features.Has("stats-tube-x") {
		data.Plots = []plot{
			flowPlot(points, long), statePlot(points, long), tubeWorkerPlot(points, long), waitPlot(points, long),
		}
	}
	data.Held = operate.HeldBack(data.Stats)
	data.Paused = operate.FromSeconds(data.Stats.Uint("pause-time-left"))
	urgent := operate.Count(data.Stats.Uint("current-jobs-urgent")) + " urgent"
	orphaned := operate.TubeOf(name, data.Stats).OrphansText()
	data.Tiles = append(stateTiles(&n, urgent, orphaned, "/tubes/"+tubeElement(name)+"/jobs?state="),
		workersTile(data.Stats.Uint("current-watching"), &n, ""),
		tile{"Put in all", "plain", operate.Count(n.Puts), operate.Count(n.Deletes) + " deleted", ""},
	)
	return r.render("tube", name, "tubes", data)
}

// group is the page of a group of jobs.
func (c *Console) group(r *request) error {
	name, stats, err := r.group()
	if err != nil {
		return err
	}
	pending, buried, waiting := stats.Uint("pending"), stats.Uint("buried"), stats.Uint("waiting-jobs")
	data := struct {
		Name    string
		Tiles   []tile
		Blocked bool // all that is left of it is buried, and jobs wait for that
	}{name, []tile{
		{"Pending", "plain", operate.Count(pending), "jobs that are still there", ""},
		{"Buried", "buried", operate.Count(buried), "of those", ""},
		{"Waiting", "delayed", operate.Count(waiting), "jobs that wait for it", ""},
	}, waiting > 0 && pending > 0 && buried >= pending}
	return r.render("group", name, "", data)
}

// find looks for the job. After errTooBig the connection is useless.
func (n *nextJob) find(ctx context.Context, conn *client.Conn, tube string) error {
	if n.Count == 0 || n.TooBig {
		return nil
	}
	j, err := within(conn, func() (client.Job, error) { return conn.PeekTube(ctx, tube, n.State) })
	switch {
	case isGone(err), isLacking(err), isRefused(err):
		return nil
	case err != nil:
		return err
	}
	n.ID, n.Preview = j.ID, preview(j.Body)
	if n.Stats, err = conn.StatsJob(ctx, j.ID); isGone(err) {
		n.ID, err = 0, nil
	}
	return err
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*client.RefusedError](err)
	return refused
}

func isLacking(err error) bool {
	_, lacks := errors.AsType[*client.LacksError](err)
	return lacks
}

func settingOf(settings []client.Fields, tube string) client.Fields {
	for _, s := range settings {
		if s.Text("tube") == tube {
			return s
		}
	}
	return nil
}

func (c *Console) server(r *request) error {
	data := struct {
		Stats    client.Fields
		Sections []Section
		Down     string
		Draining bool
	}{}
	var err error
	if data.Stats, err = r.stats(); err != nil {
		data.Down = line(err.Error(), 400)
	}
	data.Draining = data.Stats.Text("draining") == "true"
	if c.cfg.Local != nil {
		data.Sections = c.cfg.Local.Sections()
	}
	return r.render("server", "Server", "server", data)
}

func (c *Console) connections(r *request) error {
	after, err := r.bounded("after", 0, 0, math.MaxUint64)
	if err != nil {
		return err
	}
	data := struct {
		Lacks bool
		Stats client.Fields
		Rows  []client.Fields
		After uint64
		Next  uint64
	}{After: after}
	if data.Stats, err = r.stats(); err != nil {
		return err
	}
	if data.Lacks = !r.features.Has("list-connections"); !data.Lacks {
		data.Rows, err = asked(r, func(conn *client.Conn) ([]client.Fields, error) {
			return conn.Connections(r.Context(), rowsShown+1, after)
		})
		if err != nil {
			return err
		}
	}
	if len(data.Rows) > rowsShown {
		data.Rows = data.Rows[:rowsShown]
		data.Next = data.Rows[rowsShown-1].Uint("id")
	}
	return r.render("connections", "Connections", "connections", data)
}

func (c *Console) putForm(r *request) error {
	if err := r.ask(r.known); err != nil {
		return err
	}
	tube := cmp.Or(r.URL.Query().Get("tube"), "default")
	if client.CheckTube(tube) != nil {
		return inputf("no tube can have that name")
	}
	return r.render("put", "Put a job", "put", struct{ Tube string }{tube})
}

func (c *Console) download(r *request) error {
	id, err := r.id()
	if err != nil {
		return err
	}
	if !c.downloads.TryAcquire(1) {
		return errDownloads
	}
	defer c.downloads.Release(1)
	j, err := asked(r, func(conn *client.Conn) (client.Job, error) { return peek(r.Context(), conn, id) })
	if err != nil {
		return err
	}
	h := r.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="job-%d"`, id))
	h.Set("Content-Length", strconv.Itoa(len(j.Body)))
	h.Set("Content-Security-Policy", policy+"; sandbox")
	r.w.WriteHeader(http.StatusOK)
	_, _ = r.w.Write(j.Body)
	return nil
}
