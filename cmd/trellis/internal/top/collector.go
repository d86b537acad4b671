package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// Server is what a sample knows of the server as a whole.
type Server struct {
	Version  string
	Uptime   uint64 // seconds
	Draining bool

	operate.Counts
	operate.Rates
	Connections, Producers, Workers uint64
}

// A Query says what a look is to be about.
type Query struct {
	Filter  string // part of the names of the tubes
	Sort    string // the title of a column
	Reverse bool   // the other way round than usual for the column
	First   int    // the first row that is shown
	Rows    int    // how many are shown
}

// A Sample is what a look has found.
type Sample struct {
	Query   Query
	At      time.Time
	Server  Server
	All     int            // tubes of the server
	Matched int            // of these, those that the filter leaves
	Tubes   []operate.Tube // sorted
	// First is the row of the first of Tubes among all matched ones. It is 0 unless they are sorted by name.
	First int
}

// Left is how many tubes the look has left out because of the collector's limit, though they
// might be among the first rows.
func (s *Sample) Left() int {
	if s.Query.Sort == byName {
		return 0
	}
	return s.Matched - len(s.Tubes)
}

// byName is the title of the column of names. Sorted by it, the shown tubes are known without asking about any other.
const byName = "TUBE"

// columns are those of the view, in order. The first one, the name, takes the width that is left.
var columns = operate.ColumnsOf(operate.Top)

// Titles are the headings of the columns.
func Titles() (titles []string) {
	for _, c := range columns {
		titles = append(titles, title(c))
	}
	return titles
}

func title(c *operate.Column) string { return strings.ToUpper(c.Heading) }

// width is that of a column other than the first: room for the heading with an arrow, and
// for six characters, or a time.
func width(c *operate.Column) int {
	least := 6
	switch c.Kind {
	case operate.Age, operate.Mean, operate.Pause:
		least = 10
	}
	return max(least, len(c.Heading)+1)
}

// column returns the index of the column with a title, that of READY if there is none.
func column(title string) int {
	if i := slices.Index(Titles(), title); i >= 0 {
		return i
	}
	return 1
}

// order sorts tubes. Equal ones stand by name.
func order(tubes []operate.Tube, title string, reverse bool) {
	c := columns[column(title)]
	slices.SortFunc(tubes, func(a, b operate.Tube) int {
		by := c.Compare(&a, &b)
		if reverse {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.Name, b.Name))
	})
}

// listEvery is how old a list of more names than Collector.Limit may be.
const listEvery = 10 * time.Second

// A Collector asks a server. It is for one goroutine at a time.
type Collector struct {
	Dial  func(context.Context) (*client.Conn, error)
	Limit int              // tubes that are asked about in one look
	Now   func() time.Time // time.Now

	conn     *client.Conn // nil while there is none
	names    []string     // of all tubes, in order
	listTime time.Time    // when they were asked for

	server operate.Meter
	tubes  map[string]*operate.Meter // of the tubes that the look before asked about
}

// Close ends the connection.
func (c *Collector) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Look asks the server. After an error the next look connects again.
func (c *Collector) Look(ctx context.Context, q Query) (*Sample, error) {
	s, err := c.look(ctx, q)
	if err != nil {
		c.Close()
		c.names = nil
	}
	return s, err
}

func (c *Collector) look(ctx context.Context, q Query) (s *Sample, err error) {
	if c.conn == nil {
		if c.conn, err = c.Dial(ctx); err != nil {
			return nil, err
		}
	}
	extended, err := c.conn.Has(ctx, "stats-tubes")
	if err != nil {
		return nil, err
	}
	// first reports whether the look is about tubes that are the first ones by name, of which one answer can tell.
	first := func() bool { return extended && (len(c.names) <= c.Limit || q.Filter == "" && q.Sort != byName) }

	var stats client.Fields
	var told []tubeStats
	questions := []question{{"stats", func(r client.Reply) (err error) {
		stats, err = c.conn.FieldsOf("stats", r)
		return err
	}}}
	if at := c.Now(); len(c.names) <= c.Limit || at.Sub(c.listTime) >= listEvery {
		c.listTime = at
		questions = append(questions, question{"list-tubes", c.list})
	}
	asked := first()
	if asked {
		questions = append(questions, c.page(&told))
	}
	if err := c.ask(ctx, questions); err != nil {
		return nil, err
	}
	names := slices.Clone(c.names)
	if q.Filter != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, q.Filter) })
	}
	s = &Sample{Query: q, Server: serverOf(stats), All: len(c.names), Matched: len(names)}
	if asked && first() {
		err = c.further(ctx, &told)
		told = slices.DeleteFunc(told, func(t tubeStats) bool { return !strings.Contains(t.name, q.Filter) })
	} else {
		names, s.First = c.choose(names, q)
		told, err = c.each(ctx, names)
	}
	if err != nil {
		return nil, err
	}
	s.At = c.Now()
	s.Server.Rates = c.server.Rates(s.At, s.Server.Counts)
	s.Tubes = c.measure(s.At, told)
	order(s.Tubes, q.Sort, q.Reverse)
	if extended {
		return s, nil
	}
	from := min(max(q.First-s.First, 0), len(s.Tubes))
	return s, c.ages(ctx, s.Tubes[from:min(from+q.Rows, len(s.Tubes))])
}

// A question is a command, and what is done with the reply.
type question struct {
	line   string
	answer func(client.Reply) error
}

// ask sends questions together.
func (c *Collector) ask(ctx context.Context, questions []question) error {
	return c.conn.Pipeline(ctx, len(questions),
		func(i int) client.Command { return client.Command{Line: questions[i].line} },
		func(i int, r client.Reply) error { return questions[i].answer(r) })
}

// list takes the names of all tubes from the reply to list-tubes. What is no name cannot be asked about.
func (c *Collector) list(r client.Reply) (err error) {
	if c.names, err = c.conn.NamesOf("list-tubes", r); err != nil {
		return err
	}
	c.names = slices.DeleteFunc(c.names, func(name string) bool { return client.CheckTube(name) != nil })
	slices.Sort(c.names)
	c.names = slices.Compact(c.names)
	return nil
}

// tubeStats is the answer to stats-tube or stats-tube-x.
type tubeStats struct {
	name  string
	stats client.Fields
}

// page asks for the tubes behind those that were told of.
func (c *Collector) page(told *[]tubeStats) question {
	last, most := "", min(c.Limit-len(*told), client.MaxStatsTubes)
	line := fmt.Sprint("stats-tubes ", most)
	if n := len(*told); n > 0 {
		last = (*told)[n-1].name
		line += " " + last
	}
	return question{line, func(r client.Reply) error {
		entries, err := c.conn.EntriesOf("stats-tubes", r)
		for _, f := range entries[:min(len(entries), most)] {
			if name := f.Text("name"); name > last && client.CheckTube(name) == nil {
				*told, last = append(*told, tubeStats{name, f}), name
			}
		}
		return err
	}}
}

// further asks for further pages behind a full one, up to the limit.
func (c *Collector) further(ctx context.Context, told *[]tubeStats) error {
	for before := 0; len(*told)-before == client.MaxStatsTubes && len(*told) < c.Limit; {
		before = len(*told)
		if err := c.ask(ctx, []question{c.page(told)}); err != nil {
			return err
		}
	}
	return nil
}

// each asks about each of some tubes. Those that have gone are left out.
func (c *Collector) each(ctx context.Context, names []string) (told []tubeStats, err error) {
	all, err := operate.StatsTubes(ctx, c.conn, names)
	for i, f := range all {
		if f != nil {
			told = append(told, tubeStats{names[i], f})
		}
	}
	return told, err
}

// choose returns the tubes to ask about, and the row of the first one.
func (c *Collector) choose(names []string, q Query) ([]string, int) {
	if q.Sort != byName {
		return names[:min(len(names), c.Limit)], 0
	}
	first := min(max(q.First, 0), len(names))
	n := min(max(q.Rows, 0), c.Limit, len(names)-first)
	if !q.Reverse {
		return names[first : first+n], first
	}
	slices.Reverse(names)
	return names[first : first+n], first
}

// measure makes tubes of what was told, with rates since the look before.
func (c *Collector) measure(at time.Time, told []tubeStats) []operate.Tube {
	seen := make(map[string]*operate.Meter, len(told))
	tubes := make([]operate.Tube, 0, len(told))
	for _, x := range told {
		t := operate.TubeOf(x.name, x.stats)
		meter := cmp.Or(c.tubes[t.Name], new(operate.Meter))
		t.Rates = meter.Rates(at, t.Counts)
		seen[t.Name] = meter
		tubes = append(tubes, *t)
	}
	c.tubes = seen
	return tubes
}

// ages asks for the next jobs of tubes, where that is all that can be known of how old jobs are.
func (c *Collector) ages(ctx context.Context, tubes []operate.Tube) error {
	has, err := c.conn.Has(ctx, "list-jobs")
	if err != nil || !has {
		return err
	}
	var asked []*operate.Tube
	for i := range tubes {
		if tubes[i].Ready > 0 {
			asked = append(asked, &tubes[i])
		}
	}
	return c.conn.Pipeline(ctx, len(asked), func(i int) client.Command {
		return client.Command{Line: fmt.Sprintf("list-jobs %s ready 1", asked[i].Name)}
	}, func(i int, r client.Reply) error {
		jobs, err := c.conn.EntriesOf("list-jobs", r)
		if errors.Is(err, client.ErrNotFound) { // the tube has gone since
			return nil
		}
		if err == nil && len(jobs) > 0 {
			asked[i].Oldest = operate.FromSeconds(jobs[0].Uint("age"))
		}
		return err
	})
}

func serverOf(f client.Fields) Server {
	return Server{
		Version: f.Text("version"), Uptime: f.Uint("uptime"), Draining: f.Text("draining") == "true",
		Counts:      operate.CountsOf(f),
		Connections: f.Uint("current-connections"), Producers: f.Uint("current-producers"),
		Workers: f.Uint("current-workers"),
	}
}
