package compare

import (
	"errors"
	"slices"
	"time"

	"trellis/bench"
	"trellis/bench/internal/quantity"
)

// A Note qualifies a value.
type Note string

// The notes of a comparison.
const (
	// NoteFull says that the generator's core was full: the server could have done more.
	NoteFull Note = "full"
	// NoteStarved says that something else took processors away.
	NoteStarved Note = "starved"
	// NoteBroken says that the server broke the protocol.
	NoteBroken Note = "broken"
	// NoteBehind says that the server did not keep up with the rate of an open loop.
	NoteBehind Note = "behind"
	// NoteProxy says that the server does not speak TLS, and stunnel did in front of it.
	NoteProxy Note = "proxy"
)

// A Table is what a Comparison found out.
type Table struct {
	// Machine is what Machine returned.
	Machine  string   `json:"machine"`
	Servers  []string `json:"servers"`
	Versions []string `json:"versions"`
	Commands []string `json:"commands"`
	Rounds   int      `json:"rounds"`
	Rows     []Row    `json:"rows"`
	// Broken says in words how servers broke the protocol.
	Broken []string `json:"broken,omitempty"`
	// LogsOn is the type of the file system that the servers' logs were on, empty when they kept none.
	LogsOn string `json:"logs_on,omitempty"`
	// Took is how long the comparison took.
	Took time.Duration `json:"took_ns"`
}

// A Row is one figure of one measurement, on all servers.
type Row struct {
	Name   string `json:"name"`
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	Cells  []Cell `json:"cells"` // one for each server
	// AtLeast and Aim say whether the last server reaches its targets.
	AtLeast *Verdict `json:"at_least,omitempty"`
	Aim     *Verdict `json:"aim,omitempty"`
	// Skipped says why nothing was measured.
	Skipped string `json:"skipped,omitempty"`

	figure figure
}

// A Cell holds the figure of one server.
type Cell struct {
	// Values holds one value for each round in which the server was measured, zero where it could not be told. It is empty
	// when the server cannot do what was asked of it.
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	// Ratio is the median of the ratios to the first server's value in the same round, RatioLeast and RatioMost
	// their extremes. They are zero when a value is missing.
	Ratio      float64 `json:"ratio"`
	RatioLeast float64 `json:"ratio_least"`
	RatioMost  float64 `json:"ratio_most"`
	// Last is the ratio of the last server's value to this one's, nil for the last server itself and when a value is
	// missing.
	Last *Ratio `json:"ratio_of_last,omitempty"`
	// Notes are marks that qualify the figure.
	Notes []Note `json:"notes,omitempty"`
}

// A Ratio holds the median and the extremes of ratios that were taken within the rounds.
type Ratio struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// ratioOf divides the values of one server by those of another, round by round. It returns nil when a value is
// missing: those that are there do not tell their rounds.
func ratioOf(values, other []float64, rounds int) *Ratio {
	if len(values) != rounds || len(other) != rounds || slices.Contains(values, 0) || slices.Contains(other, 0) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i, v := range values {
		ratios[i] = v / other[i]
	}
	slices.Sort(ratios)
	return &Ratio{quantity.Median(ratios), ratios[0], ratios[len(ratios)-1]}
}

// finish computes medians, ratios and verdicts of a row that was measured in so many rounds.
func (r *Row) finish(rounds int) {
	last := &r.Cells[len(r.Cells)-1]
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Median = quantity.Median(slices.Sorted(slices.Values(c.Values)))
		if to := ratioOf(c.Values, r.Cells[0].Values, rounds); to != nil {
			c.Ratio, c.RatioLeast, c.RatioMost = to.Median, to.Least, to.Most
		}
		if c != last {
			c.Last = ratioOf(last.Values, c.Values, rounds)
		}
	}
	r.AtLeast = r.figure.judge(r.figure.atLeast, last.Median, last.Ratio)
	r.Aim = r.figure.judge(r.figure.aim, last.Median, last.Ratio)
}

// find returns the median of a figure of the first server, 0 when it has not been measured.
func (t *Table) find(row, figure string) float64 {
	for _, r := range t.Rows {
		if r.Name == row && r.Figure == figure {
			return r.Cells[0].Median
		}
	}
	return 0
}

func (t *Table) has(row string) bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Name == row })
}

// Err returns an error that wraps ErrBroken when a server broke the protocol.
func (t *Table) Err() error {
	if len(t.Broken) == 0 {
		return nil
	}
	errs := []error{bench.ErrBroken}
	for _, b := range t.Broken {
		errs = append(errs, errors.New(b))
	}
	return errors.Join(errs...)
}
