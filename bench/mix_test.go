package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestParseMix(t *testing.T) {
	m, err := ParseMix(strings.NewReader("# nothing\n\n3 put pri=1-5 delay=2\n7 kick bound=9 # comment\n1 kick\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []MixStep{
		{Weight: 3, Command: "put", Priority: Range{1, 5}, Delay: Range{2, 2}, Bound: Range{1, 1}},
		{Weight: 7, Command: "kick", Bound: Range{9, 9}},
		{Weight: 1, Command: "kick", Bound: Range{1, 1}},
	}; !slices.Equal(m.Steps, want) {
		t.Errorf("got %+v, want %+v", m.Steps, want)
	}
	for _, text := range []string{
		"", "# nothing", "put", "0 put", "x put", "1 fly", "1 put pri=x", "1 put pri=5-1", "1 put size=3", "1 put pri", "65536 put",
	} {
		if _, err := ParseMix(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
