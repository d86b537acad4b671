package cron

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trellis/cmd/internal/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer knows capabilities, use, and puts with unique keys.
type fakeServer struct {
	mu      sync.Mutex
	keys    []string          // of the jobs that were put
	refuse  map[string]string // what is answered to a put with such a body
	use     string            // what is answered to use, if it is not empty
	lacking bool              // it has no extensions
	breaks  int               // connections end after so many puts, if it is above 0
}

func (s *fakeServer) dial(context.Context) (*client.Conn, error) {
	ours, theirs := net.Pipe()
	go s.serve(theirs)
	return client.New(ours, "server"), nil
}

func (s *fakeServer) serve(nc net.Conn) {
	defer nc.Close()
	puts := 0
	for in := bufio.NewScanner(nc); in.Scan(); {
		words := strings.Fields(in.Text())
		reply := "UNKNOWN_COMMAND\r\n"
		switch {
		case words[0] == "capabilities" && !s.lacking:
			const y = "---\nversion: \"1\"\nextensions:\n- idp\n"
			reply = fmt.Sprintf("OK %d\r\n%s\r\n", len(y), y)
		case words[0] == "list-tube-used":
			reply = "USING default\r\n"
		case words[0] == "use":
			if reply = "USING " + words[1] + "\r\n"; s.use != "" {
				reply = s.use
			}
		case words[0] == "put":
			in.Scan()
			if puts++; s.breaks > 0 && puts > s.breaks {
				return
			}
			reply = s.put(words[5], in.Text())
		}
		if _, err := io.WriteString(nc, reply); err != nil {
			return
		}
	}
}

func (s *fakeServer) put(tag, body string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reply := s.refuse[body]; reply != "" {
		return reply
	}
	key := strings.Split(tag, ":")[1]
	if i := slices.Index(s.keys, key); i >= 0 {
		return fmt.Sprintf("INSERTED %d DELETED\r\n", i+1)
	}
	s.keys = append(s.keys, key)
	return fmt.Sprintf("INSERTED %d\r\n", len(s.keys))
}

// A fakeClock goes on when it is waited for, and ends a cron when its end has come.
type fakeClock struct {
	now, end time.Time
	stop     context.CancelFunc
}

func (c *fakeClock) Now() time.Time { return c.now }

func (c *fakeClock) Wait(_ context.Context, until time.Time) {
	if c.now = until; !c.now.Before(c.end) {
		c.stop()
	}
}

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// runCron runs a cron from one time to another, and returns what it says and its error.
func runCron(t *testing.T, s *fakeServer, table string, from, to time.Time) (string, error) {
	t.Helper()
	entries, mistakes := Read(strings.NewReader(table), "tab")
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log bytes.Buffer
	err := Run(ctx, Config{Entries: entries, Dial: s.dial, Clock: &fakeClock{from, to, cancel}, Log: &log})
	return log.String(), err
}

// keys are those of a job each so many minutes from one time to another, both included.
func keys(name string, from, to time.Time, each time.Duration) (all []string) {
	for ; !from.After(to); from = from.Add(each) {
		all = append(all, name+"."+from.Format("20060102T1504Z"))
	}
	return all
}

func TestACronPutsAJobForEachTimeOfTheLastHourAndFromThenOn(t *testing.T) {
	s := new(fakeServer)
	if log, err := runCron(t, s, "*/20 * * * * t --name a x", noon.Add(30*time.Second), noon.Add(time.Hour)); err != nil {
		t.Fatal(err, log)
	}
	if want := keys("a", noon.Add(-40*time.Minute), noon.Add(40*time.Minute), 20*time.Minute); !slices.Equal(s.keys, want) {
		t.Errorf("%q\nwant\n%q", s.keys, want)
	}
}

// However often crons end and begin, each time has one job.
func TestEachTimeHasOneJobWhateverHappensToTheCrons(t *testing.T) {
	s := &fakeServer{breaks: 7}
	for _, from := range []time.Duration{0, 0, 10 * time.Minute, 55 * time.Minute, 50 * time.Minute, 100 * time.Minute} {
		if log, err := runCron(t, s, "* * * * * t --name a x\n*/2 * * * * t --name b", noon.Add(from), noon.Add(from+20*time.Minute)); err != nil {
			t.Fatal(err, log)
		}
	}
	last := noon.Add(119 * time.Minute)
	want := append(keys("a", noon.Add(-59*time.Minute), last, time.Minute), keys("b", noon.Add(-58*time.Minute), last, 2*time.Minute)...)
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(s.keys)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func TestACronGoesOnBehindAJobThatIsRefused(t *testing.T) {
	s := &fakeServer{refuse: map[string]string{"large": "JOB_TOO_BIG\r\n"}}
	log, err := runCron(t, s, "0 12 * * * t --name a large\n0 12 * * * t --name b small", noon, noon.Add(time.Minute))
	if want := keys("b", noon, noon, time.Minute); err != nil || !slices.Equal(s.keys, want) || !strings.Contains(log, "line 1, 2026-11-24T12:00:00Z: nothing was put: ") {
		t.Errorf("%v, %q\n%s", err, s.keys, log)
	}
}

func TestACronTriesAgainWhileItsServerTakesNothing(t *testing.T) {
	s := &fakeServer{refuse: map[string]string{"x": "DRAINING\r\n"}}
	log, err := runCron(t, s, "0 * * * * t --name a x", noon, noon.Add(3*time.Hour))
	if err != nil || len(s.keys) > 0 || !strings.Contains(log, "trying again") ||
		!strings.Contains(log, "nothing was put for the times from 2026-11-24T12:00:00Z to ") {
		t.Errorf("%v, %q\n%s", err, s.keys, log[:min(len(log), 1000)])
	}
	s.mu.Lock()
	s.refuse = nil
	s.mu.Unlock()
	if log, err := runCron(t, s, "0 * * * * t --name a x", noon.Add(3*time.Hour), noon.Add(3*time.Hour+time.Minute)); err != nil || len(s.keys) != 1 {
		t.Errorf("%v, %q\n%s", err, s.keys, log)
	}
}

func TestACronEndsWhereItCanPutNothing(t *testing.T) {
	lacks, refused := (*client.LacksError)(nil), (*client.RefusedError)(nil)
	if _, err := runCron(t, &fakeServer{lacking: true}, "* * * * * t", noon, noon); !errors.As(err, &lacks) || lacks.Command != "idp" {
		t.Error(err)
	}
	if _, err := runCron(t, &fakeServer{use: "UNKNOWN_COMMAND\r\n"}, "0 0 1 1 * t", noon, noon); !errors.As(err, &refused) || refused.Command != "use" {
		t.Error(err)
	}
	unreachable := errors.New("unreachable")
	err := Run(t.Context(), Config{Dial: func(context.Context) (*client.Conn, error) { return nil, unreachable }, Clock: SystemClock{}, Log: io.Discard})
	if !errors.Is(err, unreachable) {
		t.Error(err)
	}
}

func TestTheNextTimeOfAnEntryIsFound(t *testing.T) {
	entries, mistakes := Read(strings.NewReader("0 0 29 2 * t\nTZ=Europe/Berlin\n30 2 * * * t"), "tab")
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for i, want := range []string{"2028-02-29T00:00:00Z", "2026-11-25T02:30:00+01:00"} {
		if got := entries[i].Next(noon).Format(time.RFC3339); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
