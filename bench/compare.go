package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A Comparison measures several servers in turn.
type Comparison struct {
	// Servers are compared with the first of them.
	Servers []Server
	// Rounds is how often each measurement is made on each server. The order changes with every round.
	Rounds int
	// ServerCPUs and LoadCPUs are the processors of the servers and of the generator. Empty: any.
	ServerCPUs, LoadCPUs []int
	// Dir is where logs of the servers are kept while they are measured.
	Dir string
	// Log, when set, is told what is being measured.
	Log func(format string, args ...any)
}

// A Row is one measurement of a Comparison. Make rows with LoadRow, StandardMatrix or DurabilityMatrix.
type Row struct {
	name    string
	figures []figure
	// measure takes one value for each figure. It starts the servers that it needs.
	measure func(ctx context.Context, s *session) ([]float64, error)
	// needCPUs is the number of processors without which the row means nothing.
	needCPUs int
}

// A figure is one value of a row.
type figure struct {
	name    string
	unit    unit
	atLeast target
	aim     target
}

// A target is what a figure should reach.
type target struct {
	kind  targetKind
	limit float64
}

type targetKind uint8

const (
	noTarget   targetKind = iota
	ratioBelow            // not above this multiple of the first server's
	ratioAbove            // not below this multiple of the first server's
	valueBelow            // not above this, whatever the first server does
	valueAbove            // not below this
)

// met reports whether a value, which is ratio times the first server's, reaches the target.
func (t target) met(value, ratio float64) bool {
	switch t.kind {
	case ratioBelow:
		return ratio <= t.limit
	case ratioAbove:
		return ratio >= t.limit
	case valueBelow:
		return value <= t.limit
	case valueAbove:
		return value >= t.limit
	}
	return true
}

// A session is one server in one round of one row.
type session struct {
	*Comparison
	server Server
	table  *Comparisons
	notes  map[Note]bool // of this server's cell
	dirs   []string
	proc   *process
}

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
)

// start starts the session's server afresh.
func (s *session) start(ctx context.Context, args string, cpus []int) error {
	s.stop()
	dir := ""
	if strings.Contains(s.server.Command+args, "{dir}") {
		var err error
		if dir, err = os.MkdirTemp(s.Dir, "trellis-bench-"); err != nil {
			return err
		}
		s.dirs = append(s.dirs, dir)
	}
	return s.restart(ctx, args, dir, cpus)
}

// restart starts it on a directory that it may have used before.
func (s *session) restart(ctx context.Context, args, dir string, cpus []int) (err error) {
	s.proc, err = s.server.start(ctx, args, dir, cpus)
	return err
}

// allCPUs are all processors that the comparison uses, the servers' first.
func (s *session) allCPUs() []int { return append(slices.Clone(s.ServerCPUs), s.LoadCPUs...) }

func (s *session) stop() {
	if s.proc != nil {
		s.proc.stop()
		s.proc = nil
	}
}

func (s *session) close() {
	s.stop()
	for _, d := range s.dirs {
		os.RemoveAll(d)
	}
}

// run puts a load on the server.
func (s *session) run(ctx context.Context, cfg Config) (*RunResult, error) {
	cfg.Addr, cfg.Runs, cfg.CPUs = s.proc.addr, 1, s.LoadCPUs
	res, err := Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := res.Err(); err != nil {
		s.notes[NoteBroken] = true
		s.table.Broken = append(s.table.Broken, fmt.Sprintf("%s: %v", s.server.Name, err))
	}
	r := &res.Runs[0]
	if r.GeneratorBusy >= generatorFull {
		s.notes[NoteFull] = true
	}
	if r.GeneratorStarved > starvedMuch || r.ServerStarved > starvedMuch {
		s.notes[NoteStarved] = true
	}
	return r, nil
}

// Comparisons is what a Comparison found out.
type Comparisons struct {
	Servers  []string        `json:"servers"`
	Versions []string        `json:"versions"`
	Commands []string        `json:"commands"`
	Rounds   int             `json:"rounds"`
	Rows     []ComparisonRow `json:"rows"`
	// Broken says in words how servers broke the protocol.
	Broken []string `json:"broken,omitempty"`
	// Took is how long all took.
	Took time.Duration `json:"took_ns"`
}

// A ComparisonRow is one figure of all servers.
type ComparisonRow struct {
	Name   string `json:"name"`
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	Cells  []Cell `json:"cells"` // one for each server

	figure  figure
	skipped string
}

// A Cell holds the figure of one server.
type Cell struct {
	Values []float64 `json:"values"` // one for each round; none when the server cannot do this
	Median float64   `json:"median"`
	// Ratio is the median of the ratios to the first server's value in the same round, RatioLeast and RatioMost
	// their extremes.
	Ratio      float64 `json:"ratio"`
	RatioLeast float64 `json:"ratio_least"`
	RatioMost  float64 `json:"ratio_most"`
	// Notes are marks that qualify the figure.
	Notes []Note `json:"notes,omitempty"`
}

// Run makes all measurements, and binds this process to LoadCPUs for good. With an error, it returns what was measured before.
func (c *Comparison) Run(ctx context.Context, rows []Row) (*Comparisons, error) {
	if err := bindProcess(c.LoadCPUs); err != nil {
		return nil, err
	}
	began := time.Now()
	t := &Comparisons{Rounds: c.Rounds}
	for _, s := range c.Servers {
		version, err := c.version(ctx, s)
		if err != nil {
			return nil, err
		}
		t.Servers, t.Versions, t.Commands = append(t.Servers, s.Name), append(t.Versions, version), append(t.Commands, s.Command)
	}
	for i := range rows {
		err := c.row(ctx, t, &rows[i])
		t.Took = time.Since(began)
		if err != nil {
			return t, fmt.Errorf("%s: %w", rows[i].name, err)
		}
	}
	return t, nil
}

// version asks a server for its version.
func (c *Comparison) version(ctx context.Context, server Server) (string, error) {
	s := &session{Comparison: c, server: server}
	defer s.close()
	if err := s.start(ctx, "", nil); err != nil {
		return "", err
	}
	ctl, err := dialControl(&s.proc.addr)
	if err != nil {
		return "", err
	}
	defer ctl.Close()
	stats, err := ctl.stats("stats")
	return stats["version"], err
}

// row makes one measurement in all rounds on all servers.
func (c *Comparison) row(ctx context.Context, t *Comparisons, row *Row) error {
	results := make([]ComparisonRow, len(row.figures))
	for i, f := range row.figures {
		results[i] = ComparisonRow{Name: row.name, Figure: f.name, Unit: f.unit.name, figure: f, Cells: make([]Cell, len(c.Servers))}
	}
	if have := len(c.ServerCPUs) + len(c.LoadCPUs); have < row.needCPUs {
		for i := range results {
			results[i].skipped = fmt.Sprintf("needs %d processors", row.needCPUs)
		}
		t.Rows = append(t.Rows, results...)
		return nil
	}
	notes := make([]map[Note]bool, len(c.Servers))
	for i := range notes {
		notes[i] = make(map[Note]bool)
	}
	for round := range c.Rounds {
		for i := range c.Servers {
			if round%2 == 1 {
				i = len(c.Servers) - 1 - i
			}
			s := &session{Comparison: c, server: c.Servers[i], table: t, notes: notes[i]}
			values, err := row.measure(ctx, s)
			s.close()
			if errors.Is(err, errNoStart) {
				c.log("%s, %s: %v", row.name, c.Servers[i].Name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Servers[i].Name, err)
			}
			for j, v := range values {
				results[j].Cells[i].Values = append(results[j].Cells[i].Values, v)
			}
			c.log("%s, round %d of %d, %s: %s", row.name, round+1, c.Rounds, c.Servers[i].Name, describe(row.figures, values))
		}
	}
	for i := range results {
		results[i].finish()
		for j := range notes {
			results[i].Cells[j].Notes = slices.Sorted(maps.Keys(notes[j]))
		}
	}
	t.Rows = append(t.Rows, results...)
	return nil
}

func (c *Comparison) log(format string, args ...any) {
	if c.Log != nil {
		c.Log(format, args...)
	}
}

func describe(figures []figure, values []float64) string {
	var all []string
	for i, f := range figures {
		all = append(all, f.name+" "+f.unit.format(values[i]))
	}
	return strings.Join(all, ", ")
}

// finish computes medians and ratios.
func (r *ComparisonRow) finish() {
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Median = median(slices.Sorted(slices.Values(c.Values)))
		first := r.Cells[0].Values
		if len(c.Values) == 0 || len(c.Values) != len(first) || slices.Contains(first, 0) {
			continue
		}
		ratios := make([]float64, len(first))
		for j, v := range c.Values {
			ratios[j] = v / first[j]
		}
		slices.Sort(ratios)
		c.Ratio, c.RatioLeast, c.RatioMost = median(ratios), ratios[0], ratios[len(ratios)-1]
	}
}

// find returns the median of a figure of the first server, 0 when it has not been measured.
func (t *Comparisons) find(row, figure string) float64 {
	for _, r := range t.Rows {
		if r.Name == row && r.Figure == figure {
			return r.Cells[0].Median
		}
	}
	return 0
}

// Err returns an error that wraps ErrBroken when a server broke the protocol.
func (t *Comparisons) Err() error {
	if len(t.Broken) == 0 {
		return nil
	}
	errs := []error{ErrBroken}
	for _, b := range t.Broken {
		errs = append(errs, errors.New(b))
	}
	return errors.Join(errs...)
}
