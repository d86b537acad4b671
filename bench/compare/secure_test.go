package compare

import (
	"slices"
	"testing"
	"time"
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

func TestAServerWithoutTLSIsMeasuredBehindAProxy(t *testing.T) {
	peer(t, "stunnel4")
	server := fakeCommand(t, "a", "plain")
	for _, m := range []Measurement{
		secureCost("cycle", small("cycle", 50), target{}),
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
