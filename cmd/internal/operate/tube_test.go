package operate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

func TestRatesAreOfCountersThatGrow(t *testing.T) {
	var m Meter
	at := time.Unix(1_800_000_000, 0)
	var got []string
	for _, look := range []struct {
		after time.Duration
		Counts
	}{
		{0, Counts{Puts: 100, Deletes: 50}},
		{time.Second, Counts{Puts: 110, Deletes: 50, Timeouts: 3}},
		{3 * time.Second, Counts{Puts: 130, Deletes: 54, Timeouts: 3, Reserves: 4, Wait: 6, Busy: 7}},
		{4 * time.Second, Counts{Puts: 3, Deletes: 1}}, // another server
		{4 * time.Second, Counts{Puts: 4, Deletes: 1}}, // no time has passed
		{6 * time.Second, Counts{Puts: 5, Deletes: 1, Reserves: 1}},
		{7 * time.Second, Counts{Puts: 5, Deletes: 1, Reserves: 1, Wait: 5, Busy: 3}}, // it cannot be
		{8 * time.Second, Counts{Puts: 5, Deletes: 1, Reserves: 2, Wait: 5, Busy: 2}}, // another tube
		{9 * time.Second, Counts{Puts: 5, Deletes: 1, Reserves: 3, Wait: math.NaN(), Busy: math.NaN()}},
	} {
		got = append(got, fmt.Sprint(m.Rates(at.Add(look.after), look.Counts)))
	}
	want := "{NaN NaN NaN NaN NaN} {10 0 3 NaN 0} {10 2 0 1.5 3.5} {NaN NaN NaN NaN NaN} {NaN NaN NaN NaN NaN} {0.5 0 0 0 0} " +
		"{0 0 0 NaN 3} {NaN NaN NaN NaN NaN} {0 0 0 NaN NaN}"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

// stats are statistics in which every number is its place, from 1.
func stats(keys ...string) (f client.Fields) {
	for i, key := range keys {
		f = append(f, client.Field{Key: key, Value: client.Value{Kind: client.Number, Text: fmt.Sprint(i + 1)}})
	}
	return f
}

func TestEveryColumnIsToldOfATube(t *testing.T) {
	tube := TubeOf("mail", stats("current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried",
		"total-jobs", "current-using", "current-waiting", "current-watching", "cmd-delete", "pause-time-left", "current-jobs-orphaned"))
	zero := TubeOf("zero", nil)
	seen := make(map[string]View)
	for _, c := range Columns {
		if seen[c.Key]&c.Views != 0 || c.Key == "" {
			t.Errorf("column %q is there twice", c.Key)
		}
		seen[c.Key] |= c.Views
		if c.Views&(Page|Top|List) != 0 && c.Heading == "" || c.Views&(API|TopJSON) != 0 && c.JSON == "" {
			t.Errorf("column %s has no name for its views", c.Key)
		}
		if c.Compare(tube, zero) > 0 {
			t.Errorf("column %s has the greatest number last", c.Key)
		}
		if unknown := c.Text(tube) == "-"; unknown != (c.Local && c.Key != "orphaned" || c.Kind == Rate || c.Kind == Age || c.Kind == Mean) {
			t.Errorf("column %s of what a server tells is %s", c.Key, c.Text(tube))
		}
	}
	text, err := tube.Fields(API).MarshalJSON()
	want := `{"name":"mail","current-jobs-urgent":1,"current-jobs-ready":2,"current-jobs-reserved":3,"current-jobs-orphaned":12,"current-jobs-delayed":4,"current-jobs-buried":5,` +
		`"total-jobs":6,"cmd-delete":10,"current-using":7,"current-watching":9,"current-waiting":8,"pause-time-left":11}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	tube.Rates, tube.Oldest = Rates{In: 1.25, Out: 7, Wait: 0.0000254, Busy: 3.04}, 1500*time.Millisecond
	text, err = tube.Fields(TopJSON).MarshalJSON()
	if err != nil || !strings.HasSuffix(string(text), `"rate-in":1.2,"rate-out":7.0,"age":2,"wait":0.000025,"busy":3.0,"limited-by":"pause",`+
		`"total-jobs":6,"cmd-delete":10,"current-waiting":8,"current-watching":9,"pause-time-left":11}`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err = tube.Fields(API).MarshalJSON(); err != nil || !strings.Contains(string(text), `"oldest-ready":1.5,`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestATubeIsToldOfByStatsTubeX(t *testing.T) {
	answer := stats("current-jobs-ready", "oldest-ready-age", "limited-for", "total-reserves", "total-deletes", "wait-time", "busy-time")
	for by, want := range map[string]string{
		"none": "", "rate": "held back by rate", "reserved": "held back by max-reserved", "pause": "paused 3 s", "later": "held back by later",
	} {
		tube := TubeOf("mail", append(answer, client.Field{Key: "limited-by", Value: client.Value{Text: by}}))
		left := map[bool]time.Duration{true: 3 * time.Second}[by == "pause"]
		if tube.LimitText() != want || tube.Paused() != (by == "pause") || tube.PauseLeft != left || tube.Oldest != 2*time.Second || tube.Deletes != 5 || tube.Reserves != 4 || tube.Wait != 6 || tube.Busy != 7 {
			t.Errorf("limited by %s: %+v", by, tube)
		}
	}
	for _, f := range []client.Fields{stats("current-jobs-ready"), stats("oldest-ready-age")} {
		if tube := TubeOf("mail", f); tube.Oldest >= 0 || tube.LimitText() != "" || !math.IsNaN(tube.Wait) || !math.IsNaN(tube.Busy) {
			t.Errorf("what is not told is known: %+v", tube)
		}
	}
}

func TestOrphansAreToldOfWhereThereAreSome(t *testing.T) {
	for want, f := range map[string]client.Fields{
		"":           stats("current-jobs-reserved"),
		"2 orphaned": stats("current-jobs-reserved", "current-jobs-orphaned"),
	} {
		if got := TubeOf("mail", f).OrphansText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if tube := TubeOf("mail", client.Fields{{Key: "current-jobs-orphaned", Value: client.Value{Kind: client.Number, Text: "0"}}}); tube.OrphansText() != "" {
		t.Errorf("%q of none", tube.OrphansText())
	}
}

func TestLimitedTubesAreTheFirst(t *testing.T) {
	var limited *Column
	for _, c := range Columns {
		if c.Key == "limited" {
			limited = c
		}
	}
	for want, tube := range map[string]Tube{"paused by its setting": {Limited: "pause"}, "": {Limited: "rate"}} { // without ready jobs
		if got := tube.LimitText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	tubes := []*Tube{{}, {Limited: "rate"}, {Limited: "pause"}, {Limited: "none"}, {Limited: "rate"}, {Limited: "reserved"}}
	slices.SortStableFunc(tubes, limited.Compare)
	var got []string
	for _, tube := range tubes {
		got = append(got, fmt.Sprint(limited.ShortText(tube), limited.Zero(tube)))
	}
	if want := "pausefalse ratefalse ratefalse reservedfalse -true -true"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhatAServerClaimsOverflowsNothing(t *testing.T) {
	tube := TubeOf("t", client.Fields{
		{Key: "current-jobs-ready", Value: client.Value{Text: "18446744073709551615"}},
		{Key: "pause-time-left", Value: client.Value{Text: "18446744073709551615"}},
	})
	if tube.Ready != 1<<53 || tube.PauseLeft <= 0 || PauseText(uint64(tube.PauseLeft/time.Second)) != "yes" {
		t.Errorf("%+v", tube)
	}
	if math.IsNaN(tube.Rates.In) == false || tube.Oldest >= 0 {
		t.Errorf("what is not told is known: %+v", tube)
	}
	for _, text := range []string{"Inf", "nan", "1e999", "-1", "1e17", "x", ""} {
		if got := sum(client.Fields{{Key: "wait-time", Value: client.Value{Text: text}}}, "wait-time"); !math.IsNaN(got) {
			t.Errorf("%q is %v", text, got)
		}
	}
	var m Meter
	m.Rates(time.Unix(1, 0), Counts{})
	if got := Span(m.Rates(time.Unix(2, 0), Counts{Reserves: 1, Wait: 1 << 53}).Wait); got != "272 y 140 d" {
		t.Errorf("a wait of %s", got)
	}
}
