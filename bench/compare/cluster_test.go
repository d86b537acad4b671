package compare

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAClusterIsLoadedAtTheMemberThatServes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	server := fakeCommand(t, "cluster", "member {node} "+file+" {cluster} {dir}")
	measureQuickly(t, clusterLoad("put", 4, 1), server)
	text, err := os.ReadFile(file)
	started := strings.Fields(string(text))
	slices.Sort(started)
	if err != nil || !slices.Equal(started, []string{"n1", "n2", "n3"}) {
		t.Errorf("started: %q, %v", started, err)
	}
}

func TestAClusterThatBreaksEarlyEndsNoComparison(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	m := clusterLoad("put", 4, 1)
	c := &Comparison{Longest: 20 * time.Millisecond, Dir: t.TempDir()}
	s := &session{
		Comparison: c, server: fakeCommand(t, "cluster", "member {node} "+file+" {cluster} {dir} dropping"), table: new(Table), notes: make(map[Note]bool),
	}
	defer s.close()
	values, err := m.measure(t.Context(), s)
	if err != nil || len(values) != len(m.figures) || !s.notes[NoteBroken] {
		t.Errorf("got %v, %v, %v", values, err, s.notes)
	}
}

func TestMembersThatEndAreNotACluster(t *testing.T) {
	server := fakeCommand(t, "cluster", "broken {node} {cluster} {dir}")
	if all, err := server.start(t.Context(), "", t.TempDir(), "", nil); !errors.Is(err, errNoStart) || all != nil {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestAClusterIsNotRecovered(t *testing.T) {
	s := &session{Comparison: &Comparison{}, server: Server{Name: "cluster", Command: "x {port} {node} {cluster} {dir}"}}
	if _, err := s.recovery(t.Context(), "", small("put", 10)); err == nil {
		t.Error("no error")
	}
}

func TestTheBareDiskIsMeasured(t *testing.T) {
	if values, _ := measureQuickly(t, bareSync(), Server{}); values[0] <= 0 || values[1] < values[0] {
		t.Errorf("got %v", values)
	}
}

func TestACounterIsReadFromTheMetrics(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "# HELP x Of something.\nxy 3\nx 12\n")
		}
	}))
	defer s.Close()
	addr := s.Listener.Addr().String()
	if c := scrape(addr, "x"); c.err != nil || c.value != 12 || c.at.IsZero() {
		t.Errorf("got %+v", c)
	}
	if c := scrape(addr, "y"); c.err == nil || !strings.Contains(fmt.Sprint(c.err), "does not tell y") {
		t.Errorf("got %+v", c)
	}
}

func TestTheLeaderIsTheMemberThatSaysSo(t *testing.T) {
	for status, want := range map[int]bool{http.StatusOK: true, http.StatusServiceUnavailable: false, http.StatusNotFound: true} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/leaderz" {
				w.WriteHeader(status)
			}
		}))
		if got := leads(s.Listener.Addr().String()); got != want {
			t.Errorf("%d: %v", status, got)
		}
		s.Close()
	}
}

func TestAStandbyIsLoadedThatServes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	m := throughStandby(4, 1, 1)
	server := fakeCommand(t, "cluster", "member {node} "+file+" everybody {cluster} {dir}")
	for values := []float64{0}; values[0] <= 0; { // on a busy machine nothing may happen in so short a time
		if values, _ = measureQuickly(t, m, server); t.Failed() {
			return
		}
	}
	if values, _ := measureQuickly(t, m, fakeCommand(t, "a", "")); slices.Max(values) != 0 {
		t.Errorf("a server alone: %v", values)
	}
}
