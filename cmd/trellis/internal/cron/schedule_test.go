package cron

import (
	"strings"
	"testing"
	"time"
)

func mustParse(t *testing.T, text string) schedule {
	t.Helper()
	s, err := parseSchedule(strings.Fields(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// firings are the times from one moment on, and before another, as a clock in the zone shows them.
func firings(t *testing.T, text, zone, from, to string) string {
	t.Helper()
	s := mustParse(t, text)
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	end, err := time.Parse(time.RFC3339, to)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for ; at.Before(end); at = at.Add(time.Minute) {
		if here := at.In(where); s.fires(here) {
			all = append(all, here.Format("02T15:04Z07"))
		}
	}
	return strings.Join(all, " ")
}

func TestTimesWhenClocksChange(t *testing.T) {
	const (
		spring, springEnd = "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z" // a day in Berlin: at 02:00 it is 03:00
		autumn, autumnEnd = "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z" // a day in Berlin: at 03:00 it is 02:00
	)
	for _, tt := range []struct{ text, zone, from, to, want string }{
		// What is skipped fires at the first moment after.
		{"30 2 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"0 2 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"*/15 2 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"30 2,3 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02 29T03:30+02"},
		{"0 2,3 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"0 3 * * *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"30 2 * * sun", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		{"30 2 * * mon", "Europe/Berlin", spring, springEnd, ""},
		{"30 2 29 3 *", "Europe/Berlin", spring, springEnd, "29T03:00+02"},
		// What comes twice fires the first time.
		{"30 2 * * *", "Europe/Berlin", autumn, autumnEnd, "25T02:30+02"},
		{"0 2 * * *", "Europe/Berlin", autumn, autumnEnd, "25T02:00+02"},
		{"0 3 * * *", "Europe/Berlin", autumn, autumnEnd, "25T03:00+01"},
		{"30 1 * * *", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "01T01:30-04"},
		// Real time counts.
		{"0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z", "29T01:00+01 29T03:00+02 29T04:00+02"},
		{"0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z", "25T02:00+02 25T02:00+01 25T03:00+01"},
		{"0 */2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T05:00:00Z", "29T04:00+02 29T06:00+02"},
		{"0 0-4/2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T04:00:00Z", "25T02:00+02 25T02:00+01 25T04:00+01"},
		// There is no midnight.
		{"0 0 * * *", "America/Santiago", "2026-09-06T03:00:00Z", "2026-09-07T02:00:00Z", "06T01:00-03"},
		{"30 23 * * *", "America/Santiago", "2026-04-05T01:00:00Z", "2026-04-06T04:00:00Z", "04T23:30-03 05T23:30-04"},
		// The clock moves by half an hour.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z", "04T02:30+11"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z", "05T01:45+11"},
		// There is no such day.
		{"0 9 30 12 *", "Pacific/Apia", "2011-12-30T00:00:00Z", "2011-12-31T12:00:00Z", "31T00:00+14"},
	} {
		if got := firings(t, tt.text, tt.zone, tt.from, tt.to); got != tt.want {
			t.Errorf("%s in %s from %s: %q, want %q", tt.text, tt.zone, tt.from, got, tt.want)
		}
	}
}

func TestFieldsAreReadAsCronReadsThem(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"0 9 * * *", "13T09:00Z 14T09:00Z 15T09:00Z"},
		{"0 9 13 * fri", "13T09:00Z"},           // 13 February 2026 is a Friday
		{"0 9 14 * fri", "13T09:00Z 14T09:00Z"}, // either fits
		{"0 9 */2 * fri", "13T09:00Z"},          // both have to
		{"0 9 * feb 0,6", "14T09:00Z 15T09:00Z"},
		{"0 9 * Feb 7", "15T09:00Z"},
		{"0 9 * * 5-7", "13T09:00Z 14T09:00Z 15T09:00Z"},
		{"0 9 * mar *", ""},
		{"5,50-52 9 13 * *", "13T09:05Z 13T09:50Z 13T09:51Z 13T09:52Z"},
		{"*/25 9 13 * *", "13T09:00Z 13T09:25Z 13T09:50Z"},
		{"10-59/25 9 13 * *", "13T09:10Z 13T09:35Z"},
		{"0 0-23/12 13 * *", "13T00:00Z 13T12:00Z"},
	} {
		if got := firings(t, tt.text, "UTC", "2026-02-13T00:00:00Z", "2026-02-16T00:00:00Z"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// Between two noons, whatever the clocks do in between, an entry a day fires once.
func TestAnEntryADayFiresOnceADay(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza"} {
		where, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		changes := 0
		for _, change := time.Date(2025, 1, 1, 0, 0, 0, 0, where).ZoneBounds(); change.Year() == 2025; _, change = change.ZoneBounds() {
			changes++
			const days = 4
			noon := time.Date(2025, change.Month(), change.Day()-days/2, 12, 0, 0, 0, where)
			for _, text := range []string{"0 0 * * *", "30 0 * * *", "30 1 * * *", "15 2 * * *", "30 2 * * *", "0 3 * * *", "59 23 * * *"} {
				got := firings(t, text, zone, noon.Format(time.RFC3339), noon.AddDate(0, 0, days).Format(time.RFC3339))
				if strings.Count(got, "T") != days {
					t.Errorf("%s in %s around %v: %s", text, zone, change, got)
				}
			}
		}
		if changes < 2 {
			t.Errorf("%s has %d changes", zone, changes)
		}
	}
}
