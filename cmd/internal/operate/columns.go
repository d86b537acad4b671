package operate

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"trellis/cmd/internal/client"
)

// A View is a place, or several, where tubes are listed.
type View uint8

// The views.
const (
	Page    View = 1 << iota // tables of the console, which can be sorted by the column
	Sort                     // the console can sort by it, too, but does not show it as a column
	API                      // the console's API
	Top                      // trellis top
	TopJSON                  // trellis top -o json
	List                     // trellis tubes
)

const everywhere = Page | API | Top | TopJSON | List

// A Kind is how the values of a column are written.
type Kind uint8

// The kinds.
const (
	Name    Kind = iota
	Number       // a whole number
	Rate         // in a second
	Pause        // whole seconds; 0 is none
	Age          // whole seconds
	Elapsed      // seconds; 0 is none
	Mean         // seconds, on average
	Word         // empty is none
)

// A Column is something that is told of each tube.
type Column struct {
	Key     string // by which the console sorts
	Heading string // of tables, and, in lower case, by which trellis top sorts
	JSON    string // the protocol's own key, where there is one
	Kind    Kind
	Views   View
	Room    string // the class of its cells in the console: mid and opt are left out where there is little room
	Alarm   bool   // it should be 0
	Local   bool   // only a server can tell it of its own tubes
	About   string // for the API's description

	text func(*Tube) string  // of a Name or a Word
	of   func(*Tube) float64 // of the other kinds; NaN: not known
}

// Columns are all columns, in the order in which each view has its own.
var Columns = []*Column{
	{Key: "name", Heading: "Tube", JSON: "name", Views: everywhere, text: func(t *Tube) string { return t.Name }},
	{Key: "jobs", Kind: Number, Views: Sort, of: func(t *Tube) float64 { return float64(t.Jobs()) }},
	{
		Key: "urgent", JSON: "current-jobs-urgent", Kind: Number, Views: API,
		of: func(t *Tube) float64 { return float64(t.Urgent) },
	},
	{
		Key: "ready", Heading: "Ready", JSON: "current-jobs-ready", Kind: Number, Views: everywhere,
		of: func(t *Tube) float64 { return float64(t.Ready) },
	},
	{
		Key: "reserved", Heading: "Reserved", JSON: "current-jobs-reserved", Kind: Number, Views: everywhere, Room: "mid",
		of: func(t *Tube) float64 { return float64(t.Reserved) },
	},
	{
		Key: "orphaned", JSON: "current-jobs-orphaned", Kind: Number, Views: Sort | API | TopJSON, Local: true,
		About: "Reserved jobs that linger: their workers have lost their connections; left out where that is not known",
		of:    func(t *Tube) float64 { return known(t.Orphaned) },
	},
	{
		Key: "delayed", Heading: "Delayed", JSON: "current-jobs-delayed", Kind: Number, Views: everywhere, Room: "opt",
		of: func(t *Tube) float64 { return float64(t.Delayed) },
	},
	{
		Key: "buried", Heading: "Buried", JSON: "current-jobs-buried", Kind: Number, Views: everywhere, Alarm: true,
		of: func(t *Tube) float64 { return float64(t.Buried) },
	},
	{
		Key: "oldest", Heading: "Oldest ready", JSON: "oldest-ready", Kind: Elapsed, Views: Page | API, Room: "opt",
		Local: true,
		About: "For how many seconds the oldest ready job has been ready; left out where that is not known",
		of:    func(t *Tube) float64 { return seconds(t.Oldest) },
	},
	{
		Key: "keys", Heading: "Keys", JSON: "keys", Kind: Number, Views: Page | API, Room: "opt", Local: true,
		About: "Keys of jobs, by idp and con, and those that deleted jobs still keep; left out where that is not known",
		of:    func(t *Tube) float64 { return known(t.Keys) },
	},
	{
		Key: "in", Heading: "In/s", JSON: "rate-in", Kind: Rate, Views: Top | TopJSON,
		of: func(t *Tube) float64 { return t.Rates.In },
	},
	{
		Key: "out", Heading: "Out/s", JSON: "rate-out", Kind: Rate, Views: Top | TopJSON,
		of: func(t *Tube) float64 { return t.Rates.Out },
	},
	{
		Key: "age", Heading: "Age", JSON: "age", Kind: Age, Views: Top | TopJSON,
		of: func(t *Tube) float64 { return seconds(t.Oldest) },
	},
	{
		Key: "wait", Heading: "Wait", JSON: "wait", Kind: Mean, Views: Top | TopJSON,
		of: func(t *Tube) float64 { return t.Rates.Wait },
	},
	{
		Key: "busy", Heading: "Busy", JSON: "busy", Kind: Rate, Views: Top | TopJSON,
		of: func(t *Tube) float64 { return t.Rates.Busy },
	},
	{
		Key: "limited", Heading: "Limited", JSON: "limited-by", Kind: Word, Views: Sort | Top | TopJSON | List,
		text: (*Tube).limited,
	},
	{
		Key: "total", Heading: "Total", JSON: "total-jobs", Kind: Number, Views: API | TopJSON | List,
		of: func(t *Tube) float64 { return float64(t.Puts) },
	},
	{
		Key: "deleted", JSON: "cmd-delete", Kind: Number, Views: API | TopJSON,
		of: func(t *Tube) float64 { return float64(t.Deletes) },
	},
	{
		Key: "using", Heading: "Using", JSON: "current-using", Kind: Number, Views: API | List,
		of: func(t *Tube) float64 { return float64(t.Using) },
	},
	waiting(Top | TopJSON), // trellis top has always had it before the next one
	{
		Key: "watching", Heading: "Watching", JSON: "current-watching", Kind: Number, Views: everywhere, Room: "opt",
		of: func(t *Tube) float64 { return float64(t.Watching) },
	},
	waiting(Page | API | List),
	{
		Key: "paused", Heading: "Paused", JSON: "pause-time-left", Kind: Pause, Views: Sort | API | Top | TopJSON | List,
		of: func(t *Tube) float64 { return math.Ceil(t.PauseLeft.Seconds()) },
	},
}

func waiting(v View) *Column {
	return &Column{
		Key: "waiting", Heading: "Waiting", JSON: "current-waiting", Kind: Number, Views: v, Room: "opt",
		of: func(t *Tube) float64 { return float64(t.Waiting) },
	}
}

// known is a number that is negative where it is not known.
func known(n int64) float64 {
	if n < 0 {
		return math.NaN()
	}
	return float64(n)
}

func seconds(d time.Duration) float64 {
	if d < 0 {
		return math.NaN()
	}
	return d.Seconds()
}

// ColumnsOf are the columns of the views.
func ColumnsOf(v View) (columns []*Column) {
	for _, c := range Columns {
		if c.Views&v != 0 {
			columns = append(columns, c)
		}
	}
	return columns
}

// Compare orders tubes as tables are sorted by the column: the greatest number first, or names and words in their
// order. Those that have none, or of which it is not known, are the last.
func (c *Column) Compare(a, b *Tube) int {
	if c.text == nil {
		return cmp.Compare(c.of(b), c.of(a))
	}
	x, y := c.text(a), c.text(b)
	if x == "" || y == "" {
		return strings.Compare(y, x)
	}
	return strings.Compare(x, y)
}

// Zero reports whether there is none of it, or whether it is not known.
func (c *Column) Zero(t *Tube) bool {
	if c.text != nil {
		return c.text(t) == ""
	}
	v := c.of(t)
	return v == 0 || math.IsNaN(v)
}

// Text is a cell of a table.
func (c *Column) Text(t *Tube) string {
	if c.text != nil {
		return cmp.Or(c.text(t), "-")
	}
	v := c.of(t)
	switch {
	case math.IsNaN(v):
		return "-"
	case c.Kind == Number:
		return Count(int64(v))
	case c.Kind == Rate:
		return Short(v)
	case c.Kind == Pause:
		return PauseText(uint64(v))
	}
	if c.Kind == Elapsed && v == 0 {
		return "-"
	}
	return Span(v)
}

// ShortText is Text where there is little room.
func (c *Column) ShortText(t *Tube) string {
	if c.Kind == Number {
		return Short(c.of(t))
	}
	return c.Text(t)
}

// forEver is the number of seconds above which a pause is shown without its end.
const forEver = 10 * 365 * 86400

// PauseText is what is left of a pause.
func PauseText(seconds uint64) string {
	switch {
	case seconds == 0:
		return "-"
	case seconds > forEver:
		return "yes"
	}
	return Seconds(seconds)
}

// Fields are what a view in JSON has of a tube. What is not known is left out.
func (t *Tube) Fields(v View) (f client.Fields) {
	for _, c := range ColumnsOf(v) {
		if c.text != nil {
			f = append(f, client.Field{Key: c.JSON, Value: client.Value{Text: cmp.Or(c.text(t), "none")}})
			continue
		}
		v, decimals := c.of(t), 0
		if math.IsNaN(v) {
			continue
		}
		switch c.Kind {
		case Rate:
			decimals = 1
		case Elapsed:
			decimals = -1 // as many as are needed
		case Mean:
			decimals = 6 // as the protocol has them
		}
		f = append(f,
			client.Field{Key: c.JSON, Value: client.Value{Kind: client.Number, Text: strconv.FormatFloat(v, 'f', decimals, 64)}})
	}
	return f
}
