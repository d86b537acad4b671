package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// wellFormed reads the whole as XML.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

func TestLinesBreakWhereNothingIsKnown(t *testing.T) {
	nan := float32(math.NaN())
	svg := string(Lines([]Line{{Class: "in", Values: []float32{0, 10, nan, 5, nan, 10, 10}, Fill: true}}, 10))
	wellFormed(t, svg)
	if want := `class="line in" d="M0 119L100 1M300 60h0.01M500 1L600 1"`; !strings.Contains(svg, want) {
		t.Errorf("%s lacks %s", svg, want)
	}
	if n := strings.Count(svg, "Z"); n != 2 {
		t.Errorf("%d areas in %s", n, svg)
	}
}

func TestEmptyAndExtremeValuesAreDrawnToo(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, values := range [][]float32{nil, {0}, {-5, inf, math.MaxFloat32}, make([]float32, 1000)} {
		l := []Line{{Class: "out", Values: values, Fill: true}}
		svg := string(Lines(l, Top(l[:0])))
		wellFormed(t, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%v: %s", values, svg)
		}
	}
	wellFormed(t, string(Share(nil)))
	wellFormed(t, string(Bars("wait", nil)))
	wellFormed(t, string(Bars("wait", []float64{0, 0})))
}

func TestTopIsARoundNumberOverAllValues(t *testing.T) {
	for most, want := range map[float32]float64{0: 1, 0.3: 1, 1: 1, 1.5: 2, 2.1: 5, 7: 10, 10: 10, 11: 20, 499: 500, 501: 1000, 123456: 200000} {
		if got := Top([]Line{{Values: []float32{0, most}}}); got != want {
			t.Errorf("over %v: %v, want %v", most, got, want)
		}
	}
}

func TestPartsOfABarFillIt(t *testing.T) {
	svg := string(Share([]Part{{"ready", 3}, {"reserved", 0}, {"buried", 1}}))
	wellFormed(t, svg)
	if !strings.Contains(svg, `class="ready" x="0" width="75"`) || !strings.Contains(svg, `class="buried" x="75" width="25"`) ||
		strings.Contains(svg, "reserved") {
		t.Error(svg)
	}
	svg = string(Bars("wait", []float64{1, 2}))
	wellFormed(t, svg)
	if strings.Count(svg, "<rect") != 2 {
		t.Error(svg)
	}
}
