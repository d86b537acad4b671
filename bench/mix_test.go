package bench

import (
	"strings"
	"testing"
)

func TestParseMix(t *testing.T) {
	m, err := ParseMix(strings.NewReader("# nothing\n\n3 put pri=1-5 delay=2\n7 kick bound=9 # comment\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m.total != 10 || len(m.steps) != 2 || m.steps[0].until != 3 || m.steps[0].span[mixPri] != (span{1, 5}) ||
		m.steps[0].span[mixDelay] != (span{2, 2}) || m.steps[1].span[mixBound] != (span{9, 9}) {
		t.Errorf("got %+v", m)
	}
	for _, text := range []string{"", "# nothing", "put", "0 put", "x put", "1 fly", "1 put pri=x", "1 put pri=5-1", "1 put size=3", "1 put pri"} {
		if _, err := ParseMix(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
