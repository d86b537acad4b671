package compare

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/bench"
)

// measureQuickly makes a measurement with short loads, and returns its values and the notes of the server.
func measureQuickly(t *testing.T, m Measurement, server Server) ([]float64, map[Note]bool) {
	t.Helper()
	c := &Comparison{Longest: 20 * time.Millisecond, Dir: t.TempDir()}
	s := &session{Comparison: c, server: server, table: new(Table), notes: make(map[Note]bool)}
	defer s.close()
	values, err := m.measure(t.Context(), s)
	if err != nil || len(values) != len(m.figures) || s.table.Err() != nil {
		t.Errorf("%s: got %v, %v, %v", m.name, values, err, s.table.Err())
	}
	return values, s.notes
}

func TestAServerIsMeasuredOverItsOwnTLS(t *testing.T) {
	rows := secureRows()
	if !proof { // thousands of handshakes, which the proof has
		rows = slices.DeleteFunc(rows, func(m Measurement) bool { return strings.Contains(m.name, "2,000") })
		rows = append(rows, secureIdle("few idle connections", fewIdle(), false), secureIdle("few idle connections, mutual", fewIdle(), true))
	}
	for _, m := range rows {
		t.Run(m.name, func(t *testing.T) {
			if _, notes := measureQuickly(t, m, fakeCommand(t, "a", "")); notes[NoteProxy] {
				t.Error("there was a proxy in front of a server that speaks TLS")
			}
		})
	}
}

// fewIdle is a load of connections that do nothing.
func fewIdle() bench.Config {
	return matrixLoad("idle", func(c *bench.Config) { c.Conns, c.Warmup = 20, 0 })
}

// What asks nobody for a certificate is not taken for mutual TLS.
func TestMutualTLSIsMeasuredOnlyWhereClientsAreAskedForCertificates(t *testing.T) {
	c := &Comparison{Longest: 20 * time.Millisecond, Dir: t.TempDir()}
	s := &session{Comparison: c, server: fakeCommand(t, "a", "open"), table: new(Table), notes: make(map[Note]bool)}
	defer s.close()
	m := secureIdle("mutual", fewIdle(), true)
	if _, err := m.measure(t.Context(), s); err == nil || !strings.Contains(err.Error(), "0 of 20 clients") {
		t.Errorf("got %v", err)
	}
}

func TestAServerWithoutTLSCannotBeMeasuredWithoutAProxy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := &Comparison{Servers: []Server{fakeCommand(t, "a", "plain")}, Rounds: 1}
	res, err := c.Run(t.Context(), []Measurement{firstCommand()})
	if err != nil {
		t.Fatal(err)
	}
	if lines := res.lines(); !slices.Contains(lines[1], "cannot") {
		t.Errorf("got %q", lines)
	}
}
