package top

import (
	"cmp"
	"slices"
	"strings"
	"time"
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

// Left is how many tubes the look has left out because of the collector's limit, though they might be among the first rows.
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

// width is that of a column other than the first.
func width(c *operate.Column) int {
	if c.Kind == operate.Age || c.Kind == operate.Pause {
		return 10
	}
	return 8
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
