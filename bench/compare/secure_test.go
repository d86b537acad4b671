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
	for _, m := range secureRows() {
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

func TestAServerWithoutTLSIsMeasuredBehindAProxy(t *testing.T) {
	peer(t, "stunnel4")
	server := fakeCommand(t, "a", "plain")
	for _, m := range []Measurement{
		secureCost("cycle", small("cycle", 50), target{}),
		secureIdle("mutual", fewIdle(), true),
		handshakes("resumed", true),
		firstCommand(),
	} {
		t.Run(m.name, func(t *testing.T) {
			if _, notes := measureQuickly(t, m, server); !notes[NoteProxy] {
				t.Error("nothing tells of the proxy")
			}
		})
	}
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
