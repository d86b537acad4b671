// Package doc_test checks the documents as far as that needs no server. What their blocks say is run by
// tests of cmd/trellisd/process and cluster, under the tag proof.
package doc_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the rows of bench/RESULTS.md into README.md")

const root = "../../"

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(root + p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", p, found, err)
		}
		files = append(files, found...)
	}
	return files
}

func documents(t *testing.T) []string {
	t.Helper()
	return glob(t, "README.md", "cmd/doc/*.md", "bench/RESULTS.md")
}

func TestREADMEIsShort(t *testing.T) {
	if n := len(read(t, root+"README.md")); n > 16<<10 {
		t.Errorf("README.md has %d bytes: what is more than 16384 belongs into cmd/doc or a manual page", n)
	}
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced   = regexp.MustCompile("(?ms)^```[^\n]*\n.*?^```$")
	noAnchor = regexp.MustCompile("[^a-z0-9 -]")
)

// anchors are those that a forge gives to the headings of a document.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, document := range documents(t) {
		text := read(t, document)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			there := text
			if target != "" {
				path := filepath.Join(filepath.Dir(document), target)
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: %v", document, err)
					continue
				}
				if anchor != "" {
					there = read(t, path)
				}
			}
			if anchor != "" && !slices.Contains(anchors(there), anchor) {
				t.Errorf("%s: there is no heading %s", document, m[1])
			}
		}
	}
}

// A fenced block has a name behind its language, by which a test runs it: servertest.DocumentBlock(t, NAME).
func TestEveryBlockIsRunByATest(t *testing.T) {
	begin := regexp.MustCompile("^```([a-z]+) ([a-z-]+)$")
	blocks := make(map[string]string)
	for _, document := range documents(t) {
		for _, block := range fenced.FindAllString(read(t, document), -1) {
			first, text, _ := strings.Cut(block, "\n")
			m := begin.FindStringSubmatch(first)
			if m == nil {
				t.Errorf("%s: the block has no name:\n%s", document, block)
				continue
			}
			if old, twice := blocks[m[2]]; twice && old != text {
				t.Errorf("%s: the block %s is another one elsewhere", document, m[2])
			}
			blocks[m[2]] = text
		}
	}
	run := make(map[string]bool)
	use := regexp.MustCompile(`\bDocument(?:Block|Lines)\(t, "([a-z-]+)"\)`)
	for _, file := range glob(t, "cmd/trellisd/*/*_test.go") {
		for _, m := range use.FindAllStringSubmatch(read(t, file), -1) {
			run[m[1]] = true
			if _, there := blocks[m[1]]; !there {
				t.Errorf("%s runs %q, which no document has", file, m[1])
			}
		}
	}
	for name := range blocks {
		if !run[name] {
			t.Errorf("no test runs the block %s", name)
		}
	}
}

// The last column of the table of what was tried has names of tests, as for go test -run, those of packages
// outside cmd/trellisd with the package before them.
func TestWhatWasTriedCanBeRepeated(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "limits.md"), "\n## Abuse and faults\n")
	table, _, _ = strings.Cut(table, "\n## ")
	code := regexp.MustCompile("`([^`]*)`")
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	commands := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "| \n"), `\|`, "OR"), " | ")
		for _, m := range code.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			command := strings.ReplaceAll(m[1], "OR", "|")
			if strings.HasPrefix(command, "make ") || strings.HasPrefix(command, "SOAK") || strings.Contains(command, "NAME") {
				continue
			}
			commands++
			dir, pattern := "cmd/trellisd/*", strings.Trim(command, "'")
			if rest, fuzz := strings.CutPrefix(command, "go test -fuzz "); fuzz {
				pattern, dir, _ = strings.Cut(rest, " ")
			} else if strings.HasPrefix(command, "./") {
				dir, pattern, _ = strings.Cut(command, " -run ")
			}
			pattern, _, _ = strings.Cut(strings.Trim(pattern, "'"), "/") // names of parts are made when they run
			tests := regexp.MustCompile(pattern)
			found := dir != "" && pattern == ""
			for _, file := range glob(t, strings.TrimPrefix(dir, "./")+"/*_test.go") {
				found = found || slices.ContainsFunc(test.FindAllStringSubmatch(read(t, file), -1), func(m []string) bool { return tests.MatchString(m[1]) })
			}
			if !found {
				t.Errorf("there is no test %q in %s", pattern, dir)
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands", commands)
	}
}

// rows are the rows of the tables in a text by what was measured and its figure. A row without the first
// goes on with that of the row before.
func rows(text string) map[[2]string][]string {
	all := make(map[[2]string][]string)
	var last string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 5 {
			continue
		}
		if cells[0] = strings.TrimPrefix(cells[0], "| "); cells[0] == "" {
			cells[0] = last
		}
		last = cells[0]
		key := [2]string{cells[0], cells[1]}
		if _, twice := all[key]; !twice {
			all[key] = cells
		}
	}
	return all
}

func TestREADMEShowsRowsOfTheResults(t *testing.T) {
	const begin, end = "<!-- bench: begin -->\n", "<!-- bench: end -->\n"
	results := rows(read(t, root+"bench/RESULTS.md"))
	readme := read(t, root+"README.md")
	before, rest, ok1 := strings.Cut(readme, begin)
	shown, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("README.md has no rows")
	}
	var want strings.Builder
	for i, line := range slices.Collect(strings.Lines(shown)) {
		if i < 2 { // the head
			want.WriteString(line)
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		row := results[[2]string{cells[0], cells[1]}]
		if row == nil {
			t.Fatalf("bench/RESULTS.md has no row %q", cells[:2])
		}
		want.WriteString("| " + strings.Join(row[:5], " | ") + " |\n")
	}
	if shown == want.String() {
		return
	}
	if !*update {
		t.Fatalf("the rows of README.md are not those of bench/RESULTS.md, which are as follows; go test ./cmd/doc -update writes them:\n%s", want.String())
	}
	if err := os.WriteFile(root+"README.md", []byte(before+begin+want.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
