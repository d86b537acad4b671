package doc_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const changelog = "CHANGELOG.md"

func TestTheVersionOfTheProgramHasAnEntryInTheChangelog(t *testing.T) {
	version := regexp.MustCompile(`(?m)^\tversion = "(.*)"$`).FindStringSubmatch(read(t, root+"cmd/trellisd/version.go"))
	entry := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`)
	entries := entry.FindAllStringSubmatch(read(t, changelog), -1)
	if version == nil || len(entries) < 2 || entries[0][1] != version[1] {
		t.Fatalf("the version is %v, and the entries are %v", version, entries)
	}
}

func TestWhatToKnowWhenUpgradingStandsFirst(t *testing.T) {
	sections := []string{"When upgrading", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	for i, entry := range strings.Split(read(t, changelog), "\n## ")[1:] {
		last := -1
		for _, part := range strings.Split(entry, "\n### ")[1:] {
			name, _, _ := strings.Cut(part, "\n")
			at := slices.Index(sections, name)
			if at <= last {
				t.Errorf("entry %d: %q stands at a wrong place, or is none of %q", i+1, name, sections)
			}
			last = at
		}
		if last < 0 {
			t.Errorf("entry %d says nothing", i+1)
		}
	}
}

func TestAVersionWithoutAnEntryIsNotGivenAway(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "make", "-C", root, "-n", "release").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "CHANGELOG.md") || strings.Index(string(out), "CHANGELOG.md") > strings.Index(string(out), "rm -rf bin/release") {
		t.Errorf("make release does not begin with a look at the list: %v\n%s", err, out)
	}
	for version, listed := range map[string]bool{"": true, "0.2": false} {
		out, err := exec.CommandContext(t.Context(), "make", "-C", root, "changelog", "VERSION="+version).CombinedOutput()
		if (err == nil) != listed || !listed && !strings.Contains(string(out), "no entry of version "+version) {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
	}
}
