package chart

import (
	"html/template"
	"math"
	"strconv"
	"strings"
)

// hidden are the attributes of a picture that readers of the screen skip. It fills its place.
const hidden = `preserveAspectRatio="none" aria-hidden="true" focusable="false"`

const (
	width  = 600 // units of the view box
	height = 120
)

// Line is a series of values, NaN where there is none. Class is its class in the SVG.
type Line struct {
	Class  string
	Values []float32
	Fill   bool // the area under it is filled faintly
}

// Lines draws lines over one another. The top of the chart is top; values are at least 0.
func Lines(lines []Line, top float64) template.HTML {
	var b strings.Builder
	b.WriteString(`<svg viewBox="0 0 600 120" preserveAspectRatio="none" aria-hidden="true" focusable="false">`)
	for _, y := range []string{"0.5", "60", "119.5"} {
		b.WriteString(`<path class="grid" d="M0 ` + y + `H600"/>`)
	}
	for i := range lines {
		line(&b, &lines[i], top)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func line(b *strings.Builder, l *Line, top float64) {
	var path, area strings.Builder
	n := len(l.Values)
	x := func(i int) string { return number(float64(i) * width / float64(max(1, n-1))) }
	y := func(v float32) string { return number(1 + (height-2)*(1-min(1, max(0, float64(v)/top)))) }
	for i := 0; i < n; i++ {
		from := i
		for i < n && l.Values[i] == l.Values[i] {
			word := " "
			if i == from {
				word = "M"
			} else if i == from+1 {
				word = "L"
			}
			path.WriteString(word + x(i) + " " + y(l.Values[i]))
			i++
		}
		if i == from+1 { // one value alone is a dot, of a line's round end
			path.WriteString("h0.01")
		}
		if l.Fill && i > from+1 {
			area.WriteString("M" + x(from) + " 120")
			for k := from; k < i; k++ {
				area.WriteString("L" + x(k) + " " + y(l.Values[k]))
			}
			area.WriteString("L" + x(i-1) + " 120Z")
		}
	}
	if area.Len() > 0 {
		b.WriteString(`<path class="area ` + l.Class + `" d="` + area.String() + `"/>`)
	}
	if path.Len() > 0 {
		b.WriteString(`<path class="line ` + l.Class + `" d="` + path.String() + `"/>`)
	}
}

// Part is a part of a bar.
type Part struct {
	Class string
	Value float64
}

// Share draws a bar of parts beside one another, in proportion to their values.
func Share(parts []Part) template.HTML {
	sum := 0.0
	for _, p := range parts {
		sum += p.Value
	}
	var b strings.Builder
	b.WriteString(`<svg class="share" viewBox="0 0 100 6" ` + hidden + `><rect class="rest" width="100" height="6"/>`)
	x := 0.0
	for _, p := range parts {
		if p.Value <= 0 || sum <= 0 {
			continue
		}
		w := 100 * p.Value / sum
		b.WriteString(`<rect class="` + p.Class + `" x="` + number(x) + `" width="` + number(w) + `" height="6"/>`)
		x += w
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// Bars draws a histogram: bars of equal width, as high as their values are to the
// greatest one.
func Bars(class string, values []float64) template.HTML {
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	b.WriteString(`<svg viewBox="0 0 600 120" ` + hidden + `><path class="grid" d="M0 119.5H600"/>`)
	step := width / float64(max(1, len(values)))
	for i, v := range values {
		if v <= 0 {
			continue
		}
		h := max(2, (height-2)*v/top)
		b.WriteString(`<rect class="bar ` + class + `" x="` + number(float64(i)*step+step*0.1) + `" y="` + number(height-h) +
			`" width="` + number(step*0.8) + `" height="` + number(h) + `"/>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// Top returns a round number for the top of a chart of these values: the least that is not
// below any of them of 1, 2 and 5 times the powers of ten, and at least 1.
func Top(lines []Line) float64 {
	most := 0.0
	for i := range lines {
		for _, v := range lines[i].Values {
			if v == v {
				most = max(most, float64(v))
			}
		}
	}
	if most <= 1 {
		return 1
	}
	for p := math.Pow(10, math.Floor(math.Log10(most))); ; p *= 10 {
		for _, f := range []float64{1, 2, 5} {
			if f*p >= most {
				return f * p
			}
		}
	}
}

func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}
