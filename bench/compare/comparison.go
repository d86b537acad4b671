package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trellis/bench/internal/host"
	"trellis/bench/load"
)

// A Comparison measures several servers in turn.
type Comparison struct {
	// Servers are measured in this order. The last is compared with each of the others; targets that are ratios compare
	// it with the first.
	Servers []Server
	// Rounds is how often each measurement is made on each server. The order changes with every round.
	Rounds int
	// ServerCPUs and LoadCPUs are the processors of the servers and of the generator. Empty: any.
	ServerCPUs, LoadCPUs []int
	// Longest, when positive, bounds the duration of each load that does not end by a count, and its warm-up: for a quick
	// look at a whole matrix.
	Longest time.Duration
	// Token is what clients authenticate with, at servers whose commands make them ask for it; see bench.Config.
	Token string
	// Dir is where logs of the servers are kept while they are measured. Empty: the system's directory for temporary
	// files or, when that is in memory, the working directory.
	Dir string
	// Log, when set, is told what is being measured.
	Log func(format string, args ...any)
}

// Run makes all measurements. It binds this process to LoadCPUs and leaves it bound. With an error, it returns what was
// measured before.
func (c *Comparison) Run(ctx context.Context, all []Measurement) (*Table, error) {
	if c.Rounds < 1 {
		return nil, fmt.Errorf("%d rounds measure nothing", c.Rounds)
	}
	if err := host.PinProcess(c.LoadCPUs); err != nil {
		return nil, err
	}
	if err := host.RaiseFileLimit(0); err != nil {
		return nil, err
	}
	began := time.Now()
	t := &Table{Machine: Machine(), Rounds: c.Rounds}
	for _, s := range c.Servers {
		version, err := c.version(ctx, s)
		if err != nil {
			return nil, err
		}
		t.Servers, t.Commands = append(t.Servers, s.Name), append(t.Commands, s.Command)
		t.Versions = append(t.Versions, version)
	}
	for i := range all {
		err := c.measure(ctx, t, &all[i])
		t.Took = time.Since(began)
		if err != nil {
			return t, fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	return t, nil
}

func (c *Comparison) version(ctx context.Context, server Server) (string, error) {
	s := &session{Comparison: c, server: server}
	defer s.close()
	if err := s.start(ctx, "", nil); err != nil {
		return "", err
	}
	stats, err := load.Stats(&s.proc.addr, c.Token)
	return stats["version"], err
}

// measure makes one measurement in all rounds on all servers. With an error, what was measured before is kept.
func (c *Comparison) measure(ctx context.Context, t *Table, m *Measurement) error {
	results := make([]Row, len(m.figures))
	for i, f := range m.figures {
		results[i] = Row{Name: m.name, Figure: f.name, Unit: f.unit.Name, figure: f, Cells: make([]Cell, len(c.Servers))}
	}
	var err error
	if have := len(c.ServerCPUs) + len(c.LoadCPUs); have < m.needCPUs {
		for i := range results {
			results[i].Skipped = fmt.Sprintf("needs %d processors", m.needCPUs)
		}
	} else {
		err = c.rounds(ctx, t, m, results)
	}
	for i := range results {
		results[i].finish(c.Rounds)
	}
	t.Rows = append(t.Rows, results...)
	return err
}

// rounds makes a measurement in all rounds, and adds the values to results, which has an element for each figure.
func (c *Comparison) rounds(ctx context.Context, t *Table, m *Measurement, results []Row) error {
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
			values, err := m.measure(ctx, s)
			s.close()
			if errors.Is(err, errNoStart) || errors.Is(err, errNoRate) {
				c.log("%s, %s: %v", m.name, s.server.Name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.server.Name, err)
			}
			for j, v := range values {
				results[j].Cells[i].Values = append(results[j].Cells[i].Values, v)
			}
			c.log("%s, round %d of %d, %s: %s", m.name, round+1, c.Rounds, s.server.Name, describe(m.figures, values))
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
		all = append(all, f.name+" "+f.unit.Format(values[i]))
	}
	return strings.Join(all, ", ")
}
