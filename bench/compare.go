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
	// Dir is where logs of the servers are kept while they are measured. Empty: the system's directory for temporary
	// files or, when that is in memory, the working directory.
	Dir string
	// Log, when set, is told what is being measured.
	Log func(format string, args ...any)
}

// A Row is one measurement of a Comparison. Make rows with LoadRow, StandardMatrix or DurabilityMatrix.
type Row struct {
	name    string
	figures []figure
	// measure takes one value for each figure, or none when the server broke on the way. It starts the servers that it
	// needs. A value that cannot be told is zero.
	measure func(ctx context.Context, s *session) ([]float64, error)
	// needCPUs is the number of processors without which the row means nothing.
	needCPUs int
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
	// NoteBehind says that the server did not keep up with the rate of an open loop.
	NoteBehind Note = "behind"
)

// inMemory is the type of a file system that says nothing about disks.
const inMemory = "tmpfs"

// start starts the session's server afresh.
func (s *session) start(ctx context.Context, args string, cpus []int) error {
	s.stop()
	dir := ""
	if strings.Contains(s.server.Command+args, "{dir}") {
		var err error
		if dir, err = s.makeDir(); err != nil {
			return err
		}
		s.dirs = append(s.dirs, dir)
	}
	return s.restart(ctx, args, dir, cpus)
}

// makeDir makes a directory for a server's log.
func (s *session) makeDir() (string, error) {
	under := s.Dir
	if under == "" {
		if under = os.TempDir(); fileSystem(under) == inMemory {
			under = "."
		}
	}
	if s.table != nil {
		s.table.LogsOn = fileSystem(under)
	}
	return os.MkdirTemp(under, "trellis-bench-")
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
		s.broke(err)
	}
	r := &res.Runs[0]
	if r.GeneratorBusy >= generatorFull {
		s.notes[NoteFull] = true
	}
	if r.OthersBusy > othersMuch {
		s.notes[NoteStarved] = true
	}
	if r.UnitRate < keptUp*cfg.Rate {
		s.notes[NoteBehind] = true
	}
	return r, nil
}

// broke notes that the server broke its promises.
func (s *session) broke(err error) {
	s.notes[NoteBroken] = true
	s.table.Broken = append(s.table.Broken, fmt.Sprintf("%s: %v", s.server.Name, err))
}

// Comparisons is what a Comparison found out.
type Comparisons struct {
	// Machine is what Machine returned.
	Machine  string          `json:"machine"`
	Servers  []string        `json:"servers"`
	Versions []string        `json:"versions"`
	Commands []string        `json:"commands"`
	Rounds   int             `json:"rounds"`
	Rows     []ComparisonRow `json:"rows"`
	// Broken says in words how servers broke the protocol.
	Broken []string `json:"broken,omitempty"`
	// LogsOn is the type of the file system that the servers' logs were on, empty when they kept none.
	LogsOn string `json:"logs_on,omitempty"`
	// Took is how long all took.
	Took time.Duration `json:"took_ns"`
}

// A ComparisonRow is one figure of all servers.
type ComparisonRow struct {
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
	// Values holds one value for each round, zero where it could not be told. It is empty when the server cannot do
	// what was asked of it.
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	// Ratio is the median of the ratios to the first server's value in the same round, RatioLeast and RatioMost
	// their extremes. They are zero when a value is missing.
	Ratio      float64 `json:"ratio"`
	RatioLeast float64 `json:"ratio_least"`
	RatioMost  float64 `json:"ratio_most"`
	// Notes are marks that qualify the figure.
	Notes []Note `json:"notes,omitempty"`
}

// Run makes all measurements, and binds this process to LoadCPUs for good. With an error, it returns what was measured before.
func (c *Comparison) Run(ctx context.Context, rows []Row) (*Comparisons, error) {
	if c.Rounds < 1 {
		return nil, fmt.Errorf("%d rounds measure nothing", c.Rounds)
	}
	if err := bindProcess(c.LoadCPUs); err != nil {
		return nil, err
	}
	if err := raiseFileLimit(0); err != nil {
		return nil, err
	}
	began := time.Now()
	t := &Comparisons{Machine: Machine(), Rounds: c.Rounds}
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

// row makes one measurement in all rounds on all servers. With an error, what was measured before is kept.
func (c *Comparison) row(ctx context.Context, t *Comparisons, row *Row) error {
	results := make([]ComparisonRow, len(row.figures))
	for i, f := range row.figures {
		results[i] = ComparisonRow{Name: row.name, Figure: f.name, Unit: f.unit.name, figure: f, Cells: make([]Cell, len(c.Servers))}
	}
	var err error
	if have := len(c.ServerCPUs) + len(c.LoadCPUs); have < row.needCPUs {
		for i := range results {
			results[i].Skipped = fmt.Sprintf("needs %d processors", row.needCPUs)
		}
	} else {
		err = c.rounds(ctx, t, row, results)
	}
	for i := range results {
		results[i].finish()
	}
	t.Rows = append(t.Rows, results...)
	return err
}

// rounds measures a row in all rounds, and adds the values to results, which has an element for each figure.
func (c *Comparison) rounds(ctx context.Context, t *Comparisons, row *Row, results []ComparisonRow) error {
	notes := make([]map[Note]bool, len(c.Servers))
	for i := range notes {
		notes[i] = make(map[Note]bool)
	}
	defer func() {
		for i := range results {
			for j := range notes {
				results[i].Cells[j].Notes = slices.Sorted(maps.Keys(notes[j]))
			}
		}
	}()
	for round := range c.Rounds {
		for i := range c.Servers {
			if round%2 == 1 {
				i = len(c.Servers) - 1 - i
			}
			s := &session{Comparison: c, server: c.Servers[i], table: t, notes: notes[i]}
			values, err := row.measure(ctx, s)
			s.close()
			if errors.Is(err, errNoStart) {
				c.log("%s, %s: %v", row.name, s.server.Name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.server.Name, err)
			}
			for j, v := range values {
				results[j].Cells[i].Values = append(results[j].Cells[i].Values, v)
			}
			c.log("%s, round %d of %d, %s: %s", row.name, round+1, c.Rounds, s.server.Name, describe(row.figures, values))
		}
	}
	return nil
}

func (c *Comparison) log(format string, args ...any) {
	if c.Log != nil {
		c.Log(format, args...)
	}
}

func describe(figures []figure, values []float64) string {
	if values == nil {
		return "broken"
	}
	var all []string
	for i, f := range figures {
		all = append(all, f.name+" "+f.unit.format(values[i]))
	}
	return strings.Join(all, ", ")
}

// finish computes medians, ratios and verdicts.
func (r *ComparisonRow) finish() {
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Median = median(slices.Sorted(slices.Values(c.Values)))
		first := r.Cells[0].Values
		if len(c.Values) == 0 || len(c.Values) != len(first) || slices.Contains(first, 0) || slices.Contains(c.Values, 0) {
			continue
		}
		ratios := make([]float64, len(first))
		for j, v := range c.Values {
			ratios[j] = v / first[j]
		}
		slices.Sort(ratios)
		c.Ratio, c.RatioLeast, c.RatioMost = median(ratios), ratios[0], ratios[len(ratios)-1]
	}
	last := &r.Cells[len(r.Cells)-1]
	r.AtLeast = r.figure.judge(r.figure.atLeast, last.Median, last.Ratio)
	r.Aim = r.figure.judge(r.figure.aim, last.Median, last.Ratio)
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
