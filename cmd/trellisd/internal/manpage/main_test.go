package main

import (
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

func TestThePageSaysWhatTheManualSays(t *testing.T) {
	var words []string
	unescape := strings.NewReplacer(`\fB`, "", `\fP`, "", `\-`, "-", `\\`, `\`, `\&`, "", "\n"+`\[la]`, "", `\[ra]`, "")
	for line := range strings.Lines(unescape.Replace(page("", ""))) {
		if title, ok := strings.CutPrefix(line, ".SH "); ok {
			line = title
		} else if strings.HasPrefix(line, ".") {
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	if want := strings.Fields(options.Manual()); !slices.Equal(words, want) {
		for i := range words {
			if i >= len(want) || words[i] != want[i] {
				t.Fatalf("differs from: %s", strings.Join(words[i:min(i+10, len(words))], " "))
			}
		}
		t.Fatalf("%d words, want %d", len(words), len(want))
	}
}
