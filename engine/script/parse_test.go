package script

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestBadScriptsAreRefusedWithTheirLine(t *testing.T) {
	for source, message := range map[string]string{
		"nonsense":                         "unknown step",
		"conn 1 jump":                      "unknown step",
		"conn 1":                           "unknown step",
		"conn 1 open now":                  "unexpected text",
		"conn 1 close >":                   "unexpected text",
		"conn 1 > trailing ":               "white space",
		"conn 1 >  leading":                "begins with a space",
		" conn 1 > x":                      "white space",
		"conn 1 > {*}":                     "not possible",
		"conn 1 > \\q":                     "bad escape",
		"conn 1 < {?}":                     "unknown pattern",
		"conn 1 < OK {#}\n| ---\n| {?}":    "unknown pattern",
		"conn 1 ? stats":                   "no values",
		"conn 1 ? stats: key":              "no value",
		"conn 1 ? stats: key {?}":          "unknown pattern",
		"wait soon":                        "invalid duration",
		"drain maybe":                      "neither",
		"[1.12 conn 1 > x":                 "bad mark",
		"[] conn 1 > x":                    "bad mark",
		"[1.12]conn 1 > x":                 "no step",
		"[1.12]":                           "no step",
		"conn 1 > x\n| data":               "continuation of nothing",
		"conn 1 < nothing\n| data":         "continuation of nothing",
		"conn 1 < x\n== second\n| data":    "continuation of nothing",
		"conn 1 < x\n==":                   "without a title",
		"conn 1 < x\n== first":             "title of its own",
		"[1.12] conn 1 < OK {#}\n[x| ---":  "bad mark",
		"conn 1 < {1..2}{3..4}":            "two patterns",
		"conn 1 < x\n[exact] conn 1 leave": "unknown step",
	} {
		_, err := Parse("file.txt", "== first\n"+source+"\n")
		if err == nil || !strings.Contains(err.Error(), message) || !strings.HasPrefix(err.Error(), "file.txt:") {
			t.Errorf("%q: got %v, want %s", source, err, message)
		}
	}
}

func TestWhatPrecedesTheCasesStartsEachOfThem(t *testing.T) {
	cases, err := Parse("dir.d/file.txt", "server -z 5\nconn 1 > a\n\n== one\n# comment\nconn 1 > b\n[exact] == two\nconn 1 > c\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cases {
		got = append(got, c.Name)
		for _, s := range c.steps {
			got = append(got, s.source)
		}
	}
	want := []string{
		"dir.d/file/one", "server -z 5", "conn 1 > a", "conn 1 > b",
		"dir.d/file/two", "server -z 5", "conn 1 > a", "conn 1 > c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if !cases[0].Applies("1.12") || cases[1].Applies("1.12") || !cases[1].Applies("trellis", "exact") {
		t.Error("the mark of a case is not heeded")
	}
}

func TestMarksHoldForAllTheirTags(t *testing.T) {
	for source, want := range map[string]string{
		"":                 "none a ab b",
		"[a] ":             "a ab",
		"[!a] ":            "none b",
		"[a][b] ":          "ab",
		"[a][!b] ":         "a",
		"[!a][!b] ":        "none",
		"[a][!a] ":         "",
		"[unknown] ":       "",
		"[!unknown] ":      "none a ab b",
		"[!unknown][!b] ":  "none a",
		"[!unknown][a][b]": "error",
	} {
		ms, rest, err := parseMarks(source + "conn 1 > x")
		if err != nil {
			if want != "error" {
				t.Errorf("%s: %v", source, err)
			}
			continue
		}
		if rest != "conn 1 > x" {
			t.Errorf("%s leaves %q", source, rest)
		}
		var got []string
		for _, tags := range []struct {
			name string
			tags []string
		}{{"none", nil}, {"a", []string{"a"}}, {"ab", []string{"a", "b"}}, {"b", []string{"b"}}} {
			if ms.hold(tags.tags) {
				got = append(got, tags.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q holds for %q, want %q", source, got, want)
		}
	}
}

// pending are marks of features that are still to come, and how many cases have them. No target has
// these tags: a case is played once all features that it is marked with are there, their marks have
// been removed from the file, and their entries from here.
var pending = map[string]int{}

func TestTheCorpusParsesAndKnowsItsMarks(t *testing.T) {
	cases := Corpus()
	if len(cases) < 700 {
		t.Errorf("only %d cases", len(cases))
	}
	known := []string{"1.12", "trellis", "access", "held", "exact"}
	waiting := slices.Collect(maps.Keys(pending))
	found := map[string]int{}
	check := func(where string, ms marks) {
		for _, m := range ms {
			if !slices.Contains(known, m.tag) {
				t.Errorf("%s: unknown mark [%s]", where, m.tag)
			}
		}
	}
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
		for _, m := range c.marks {
			if slices.Contains(waiting, m.tag) {
				found[m.tag]++
			}
		}
		check(c.Name, slices.DeleteFunc(slices.Clone(c.marks), func(m mark) bool { return slices.Contains(waiting, m.tag) }))
		for _, s := range c.steps {
			check(s.where, s.marks)
			for _, line := range s.data {
				check(s.where, line.marks)
			}
		}
		if !c.Applies("1.12") && !c.Applies(append(waiting, "trellis", "access", "held", "exact")...) {
			t.Errorf("%s is for nobody", c.Name)
		}
	}
	if !maps.Equal(found, pending) {
		t.Errorf("cases that wait for features: %v, want %v", found, pending)
	}
}
