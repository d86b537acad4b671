package operate

import (
	"fmt"
	"math"
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
		{3 * time.Second, Counts{Puts: 130, Deletes: 54, Timeouts: 3}},
		{4 * time.Second, Counts{Puts: 3, Deletes: 1}}, // another server
		{4 * time.Second, Counts{Puts: 4, Deletes: 1}}, // no time has passed
		{6 * time.Second, Counts{Puts: 5, Deletes: 1}},
	} {
		got = append(got, fmt.Sprint(m.Rates(at.Add(look.after), look.Counts)))
	}
	want := "{NaN NaN NaN} {10 0 3} {10 2 0} {NaN NaN NaN} {NaN NaN NaN} {0.5 0 0}"
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
		"total-jobs", "current-using", "current-waiting", "current-watching", "cmd-delete", "pause-time-left"))
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
		if unknown := c.Text(tube) == "-"; unknown != (c.Local || c.Kind == Rate || c.Kind == Age) {
			t.Errorf("column %s of what a server tells is %s", c.Key, c.Text(tube))
		}
	}
	text, err := tube.Fields(API).MarshalJSON()
	want := `{"name":"mail","current-jobs-urgent":1,"current-jobs-ready":2,"current-jobs-reserved":3,"current-jobs-delayed":4,"current-jobs-buried":5,` +
		`"total-jobs":6,"cmd-delete":10,"current-using":7,"current-watching":9,"current-waiting":8,"pause-time-left":11}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	tube.Rates, tube.Age, tube.Oldest = Rates{In: 1.25, Out: 7}, 61*time.Second, 1500*time.Millisecond
	text, err = tube.Fields(TopJSON).MarshalJSON()
	if err != nil || !strings.HasSuffix(string(text), `"rate-in":1.2,"rate-out":7.0,"total-jobs":6,"cmd-delete":10,"current-waiting":8,"current-watching":9,"age":61,"pause-time-left":11}`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err = tube.Fields(API).MarshalJSON(); err != nil || !strings.Contains(string(text), `"oldest-ready":1.5,`) {
		t.Errorf("%s, %v", text, err)
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
	if math.IsNaN(tube.Rates.In) == false || tube.Oldest >= 0 || tube.Age >= 0 {
		t.Errorf("what is not told is known: %+v", tube)
	}
}
