package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAFileIsRead(t *testing.T) {
	entries, mistakes := Read(strings.NewReader(`# nightly
0 2 * * *   reports --pri 10 --ttr=10m --delay 5  {"kind":  "nightly"}

TZ=Europe/Berlin
	30 2 * * sun  reports --name weekly hello
* * * * * poll
* * * * * poll -- --not an option
`), "tab")
	if len(mistakes) > 0 || len(entries) != 4 {
		t.Fatal(entries, mistakes)
	}
	var got []string
	for i := range entries {
		e := &entries[i]
		got = append(got, fmt.Sprintf("%d %s %s %d %d %d %q", e.Line, e.zone, e.Tube, e.Job.Pri, e.Job.Delay, e.Job.TTR, e.Job.Body))
	}
	want := `2 UTC reports 10 5 600 "{\"kind\":  \"nightly\"}"
5 Europe/Berlin reports 1024 0 60 "hello"
6 Europe/Berlin poll 1024 0 60 ""
7 Europe/Berlin poll 1024 0 60 "--not an option"`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
	at := time.Date(2026, 11, 24, 2, 0, 0, 0, time.FixedZone("", 3600))
	if put := entries[1].job(at).Command(); put.Line != "put 1024 0 60 5 idp:weekly.20261124T0100Z:7200" {
		t.Error(put.Line)
	}
	if key := entries[0].key(at); len(key) > 64 || key == entries[2].key(at) || !strings.HasPrefix(key, "cron.") {
		t.Error(key)
	}
}

func TestMistakesNameTheFileAndTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "tab:1: there is no entry",
		"# nothing\n\n":          "tab:3: there is no entry",
		"60 * * * * t":           `tab:1: minute "60": "60" is not from 0 to 59`,
		"* 24 * * * t":           `tab:1: hour "24": "24" is not from 0 to 23`,
		"* * 0 * * t":            `tab:1: day of the month "0": "0" is not from 1 to 31`,
		"* * * 13 * t":           `tab:1: month "13": "13" is not from 1 to 12`,
		"* * * * 8 t":            `tab:1: day of the week "8": "8" is not from 0 to 7`,
		"* * * * moon t":         `"moon" is not from 0 to 7`,
		"* * * mon * t":          `"mon" is not from 1 to 12`,
		"-1 * * * * t":           `"" is not from 0 to 59`,
		"+1 * * * * t":           `"+1" is not from 0 to 59`,
		"1,,2 * * * * t":         `"" is not from 0 to 59`,
		"5-3 * * * * t":          "5-3 ends before it begins",
		"5/3 * * * * t":          "a step is behind * or a range",
		"*/0 * * * * t":          `"0" is no step`,
		"*/ * * * * t":           `"" is no step`,
		"*/+2 * * * * t":         `"+2" is no step`,
		"*/2/3 * * * * t":        `"2/3" is no step`,
		"0 0 31 feb,apr * t":     "no month has such a day",
		"* * * * t":              "an entry is five fields, a tube, options of put, and a body",
		"@daily t":               "an entry is five fields",
		"* * * * * -t":           `"-t" cannot be the name of a tube`,
		"* * * * * t --pri x":    "invalid argument",
		"* * * * * t --pri":      "flag needs an argument",
		"* * * * * t --tube u":   "unknown flag: --tube",
		"* * * * * t --name a@b": "cannot be a key",
		"* * * * * t --name " + strings.Repeat("n", 50): "cannot be a key",
		"TZ=Nowhere":                   "tab:1: TZ=Nowhere: there is no such zone",
		"TZ=":                          "tab:1: TZ= is without a zone",
		"TZ=../etc/passwd":             "there is no such zone",
		"* * * * * t x\n* * * * * t x": "tab:2: line 1 is the same",
		"0 1 * * * t --name n a\n\n0 2 * * * t --name n b": "tab:3: line 1 is the same, or has the same name",
		"* * * * * t " + strings.Repeat("x", maxLine):      "token too long",
	} {
		_, mistakes := Read(strings.NewReader(text), "tab")
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), want) || !strings.HasPrefix(mistakes[0].Error(), "tab:") {
			t.Errorf("%.60q: %v, want %s", text, mistakes, want)
		}
	}
}

// FuzzFile reads anything, and what it takes for an entry makes a put.
func FuzzFile(f *testing.F) {
	f.Add("0 2 * * mon-fri t --pri 3 x")
	f.Add("TZ=Europe/Berlin\n*/5 1,2-9/3 1 jan * t --name n -- --x")
	f.Fuzz(func(t *testing.T, text string) {
		entries, mistakes := Read(strings.NewReader(text), "tab")
		if len(entries) == 0 && len(mistakes) == 0 {
			t.Fatal("nothing is said of a file without entries")
		}
		now := time.Unix(1.8e9, 0).Truncate(time.Minute)
		for i := range entries {
			e := &entries[i]
			if line := e.job(now).Command().Line; len(line) > 222 || strings.ContainsAny(line, "\r\n\x00") || e.Tube == "" {
				t.Fatalf("%q", line)
			}
			_ = e.schedule.fires(now.In(e.zone))
		}
	})
}
