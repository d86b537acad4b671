package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

// extensionsOf are the names that capabilities lists, in its order.
func extensionsOf(t *testing.T) (names []string) {
	t.Helper()
	_, list, found := strings.Cut(start(t).dial(0).data("capabilities"), "\nextensions:\n")
	if !found {
		t.Fatal("capabilities lists no extensions")
	}
	for line := range strings.Lines(list) {
		name, found := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !found {
			t.Fatalf("capabilities lists %q", line)
		}
		names = append(names, name)
	}
	if len(names) < 10 {
		t.Fatalf("capabilities lists %q only", names)
	}
	return names
}

// mentioned are those of the names that stand in the lines of a text, in their order there.
// A tag of put stands with a colon behind it.
func mentioned(names, lines []string) (found []string) {
	for _, line := range lines {
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,`<[|\n", r) }) {
			if tag, _, ok := strings.Cut(word, ":"); ok {
				word = tag
			}
			if slices.Contains(names, word) {
				found = append(found, word)
			}
		}
	}
	return found
}

func TestREADMEAndManualHaveTheExtensionsInTheOrderOfCapabilities(t *testing.T) {
	t.Parallel()
	names := extensionsOf(t)

	b, err := os.ReadFile("../../README.md")
	no(t, err)
	_, section, _ := strings.Cut(string(b), "\n## Commands beyond beanstalkd's\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for line := range strings.Lines(section) {
		if command, found := strings.CutPrefix(line, "| `"); found {
			command, _, _ = strings.Cut(command, " | ")
			rows = append(rows, command)
		}
	}
	if got := mentioned(names, rows); !slices.Equal(got, names) {
		t.Errorf("README.md has the commands\n%q, capabilities\n%q", got, names)
	}

	_, section, _ = strings.Cut(options.Manual, "\nEXTENSIONS\n")
	_, section, _ = strings.Cut(section, "\n\n") // what is said before of all
	section, _, _ = strings.Cut(section, "\nLIMITS\n")
	var headings []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     ") {
			headings = append(headings, line)
		}
	}
	if got := mentioned(names, headings); !slices.Equal(got, names) {
		t.Errorf("the manual has the commands\n%q, capabilities\n%q", got, names)
	}
}

func TestEveryFlagIsInREADMEUsageAndManual(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	flagsOf := func(lines []string) (flags []string) {
		for _, line := range lines {
			flags = append(flags, flag.FindAllString(line, -1)...)
		}
		slices.Sort(flags)
		return slices.Compact(flags)
	}
	leading := func(text string, leads func(line string) (string, bool)) (lines []string) {
		for line := range strings.Lines(text) {
			if line, leads := leads(line); leads {
				lines = append(lines, line)
			}
		}
		return lines
	}

	inUsage := flagsOf(leading(options.Usage, func(line string) (string, bool) {
		head, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		return head, strings.HasPrefix(head, "-")
	}))
	_, manual, _ := strings.Cut(options.Manual, "\nOPTIONS\n")
	manual, _, _ = strings.Cut(manual, "\nBINLOG\n")
	inManual := flagsOf(leading(manual, func(line string) (string, bool) { return line, strings.HasPrefix(line, "    -") }))
	b, err := os.ReadFile("../../README.md")
	no(t, err)
	_, readme, _ := strings.Cut(string(b), "\n| flag | | default |\n")
	readme, _, _ = strings.Cut(readme, "\n\n")
	inREADME := flagsOf(leading(readme, func(line string) (string, bool) {
		flags, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), " | ")
		return flags, strings.HasPrefix(line, "| `-")
	}))

	if len(inUsage) < 40 || !slices.Equal(inManual, inUsage) {
		t.Errorf("the manual has the flags\n%q, the usage\n%q", inManual, inUsage)
	}
	// The README leaves out what only asks for words.
	told := slices.DeleteFunc(slices.Clone(inUsage), func(flag string) bool { return flag == "--help" || flag == "--version" })
	if !slices.Equal(inREADME, told) {
		t.Errorf("README.md has the flags\n%q, the usage\n%q", inREADME, told)
	}
}
