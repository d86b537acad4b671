package relay

import (
	"os"
	"strings"
	"testing"
)

// Clients move as the table in doc.go says, and not otherwise.
func TestClientsMoveAsTheTableSays(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	table := make(map[string][]string)
	for line := range strings.Lines(string(doc)) {
		if from, to, ok := strings.Cut(strings.TrimPrefix(line, "//\t"), "->"); ok {
			table[strings.TrimSpace(from)] = strings.Fields(to)
		}
	}
	if len(table) != int(states) {
		t.Fatalf("the table has %d states, and there are %d", len(table), states)
	}
	for from := range states {
		allowed := make(map[string]bool)
		for _, s := range table[from.String()] {
			allowed[s] = true
		}
		for to := range states {
			if got := moves(from, to); got != allowed[to.String()] {
				t.Errorf("a client that is %v becomes %v: %v", from, to, got)
			}
		}
	}
}

func moves(from, to state) (moved bool) {
	defer func() { moved = recover() == nil }()
	(&Client{state: from}).move(to)
	return true
}
