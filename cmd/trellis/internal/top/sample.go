package top

import (
	"cmp"
	"slices"
	"time"
)

// Unknown is the value of a rate or an age that is not known.
const Unknown = -1

// A Tube is what a sample knows of a tube.
type Tube struct {
	Name string

	Ready, Reserved, Delayed, Buried uint64 // jobs
	Waiting, Watching                uint64 // connections
	Pause                            uint64 // seconds that are left
	Total, Deleted                   uint64 // jobs since the tube exists

	In, Out float64 // jobs put and deleted in a second, or Unknown
	Age     int64   // seconds, of the job that is next, or Unknown
}

// Server is what a sample knows of the server as a whole.
type Server struct {
	Version  string
	Uptime   uint64 // seconds
	Draining bool

	Ready, Reserved, Delayed, Buried         uint64
	Connections, Producers, Workers, Waiting uint64
	Total, Deleted                           uint64
	In, Out                                  float64 // as of a tube
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
	All     int    // tubes of the server
	Matched int    // of these, those that the filter leaves
	Tubes   []Tube // sorted
	// First is the row of the first of Tubes among all matched ones. It is 0 unless they are sorted by name.
	First int
}

// Left is how many tubes the look has left out because of the collector's limit, though they might be among the first rows.
func (s *Sample) Left() int {
	if s.Query.Sort == byName {
		return 0
	}
	return s.Matched - len(s.Tubes)
}

// A Column is a column of the view.
type Column struct {
	Title string
	width int
	// compare orders tubes as the column does unless reversed: greatest first, but names in their order.
	compare func(a, b *Tube) int
	show    func(t *Tube) string
}

// byName is the title of the column of names. Sorted by it, the shown tubes are known without asking about any other.
const byName = "TUBE"

// Columns are those of the view, in order. The first one, the name, takes the width that is left.
var Columns = []Column{
	{byName, 0, func(a, b *Tube) int { return cmp.Compare(a.Name, b.Name) }, nil},
	numbers("READY", func(t *Tube) uint64 { return t.Ready }),
	numbers("RESERVED", func(t *Tube) uint64 { return t.Reserved }),
	numbers("DELAYED", func(t *Tube) uint64 { return t.Delayed }),
	numbers("BURIED", func(t *Tube) uint64 { return t.Buried }),
	{"IN/S", 8, func(a, b *Tube) int { return cmp.Compare(b.In, a.In) }, func(t *Tube) string { return rate(t.In) }},
	{"OUT/S", 8, func(a, b *Tube) int { return cmp.Compare(b.Out, a.Out) }, func(t *Tube) string { return rate(t.Out) }},
	numbers("WAITING", func(t *Tube) uint64 { return t.Waiting }),
	numbers("WATCHING", func(t *Tube) uint64 { return t.Watching }),
	{"AGE", 8, func(a, b *Tube) int { return cmp.Compare(b.Age, a.Age) }, func(t *Tube) string { return age(t.Age) }},
	{"PAUSED", 8, func(a, b *Tube) int { return cmp.Compare(b.Pause, a.Pause) }, func(t *Tube) string { return pause(t.Pause) }},
}

func numbers(title string, of func(*Tube) uint64) Column {
	return Column{title, 8, func(a, b *Tube) int { return cmp.Compare(of(b), of(a)) }, func(t *Tube) string { return count(of(t)) }}
}

// column returns the index of the column with a title, that of READY if there is none.
func column(title string) int {
	if i := slices.IndexFunc(Columns, func(c Column) bool { return c.Title == title }); i >= 0 {
		return i
	}
	return 1
}

// order sorts tubes. Equal ones stand by name.
func order(tubes []Tube, title string, reverse bool) {
	c := Columns[column(title)]
	slices.SortFunc(tubes, func(a, b Tube) int {
		by := c.compare(&a, &b)
		if reverse {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.Name, b.Name))
	})
}
