package top

import (
	"fmt"
	"strings"

	"trellis/cmd/internal/operate"

	"charm.land/lipgloss/v2"
)

// linesAround are the lines of a frame that are no rows: three of totals, one of notices, headings and keys.
const linesAround = 6

const minName = 16 // characters of the names, before columns are left out

var (
	strong  = lipgloss.NewStyle().Bold(true)
	faint   = lipgloss.NewStyle().Faint(true)
	heading = lipgloss.NewStyle().Reverse(true)
	alarm   = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	notice  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
)

// draw makes the frame: lines of at most the width of the screen, as many as it has.
func (m *Model) draw() string {
	var lines []string
	if m.help {
		lines = helpLines()
	} else {
		lines = append(m.totals(), m.notices(), m.headings())
		lines = append(lines, m.table()...)
		for len(lines) < m.height-1 {
			lines = append(lines, "")
		}
		lines = append(lines[:max(0, m.height-1)], m.keys())
	}
	lines = lines[:min(len(lines), m.height)]
	for i, line := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(line)
	}
	return strings.Join(lines, "\n")
}

func short[N int64 | uint64](n N) string { return operate.Short(float64(n)) }

func (m *Model) totals() []string {
	head := "trellis top  "
	if m.paused { // in front, as the rest may be cut
		head += notice.Render("paused") + "  "
	}
	if m.sample == nil {
		return []string{head + strong.Render(m.visible(m.addr)), "", ""}
	}
	s := &m.sample.Server
	if s.Draining {
		head += notice.Render("draining") + "  "
	}
	head += fmt.Sprintf("%s  version %s  up %s  %s",
		strong.Render(m.visible(m.addr)), m.visible(s.Version), operate.Seconds(s.Uptime), m.sample.At.Format("15:04:05"))
	buried := "buried " + short(s.Buried)
	if s.Buried > 0 {
		buried = alarm.Render(buried)
	}
	return []string{
		head,
		fmt.Sprintf("jobs     ready %s  reserved %s  delayed %s  %s  in %s/s  out %s/s",
			short(s.Ready), short(s.Reserved), short(s.Delayed), buried, operate.Short(s.In), operate.Short(s.Out)),
		fmt.Sprintf("clients  connections %s  producers %s  workers %s  waiting %s",
			short(s.Connections), short(s.Producers), short(s.Workers), short(s.Waiting)),
	}
}

// notices is the line that says what is to be known about the rows.
func (m *Model) notices() string {
	switch {
	case m.err != nil:
		return alarm.Render("trying again: " + m.visible(m.err.Error()))
	case m.sample == nil:
		return ""
	}
	s := m.sample
	text := fmt.Sprintf("%s tubes", operate.Count(s.All))
	if s.Query.Filter != "" {
		text = fmt.Sprintf("%s of %s with %q in their names", operate.Count(s.Matched), text, s.Query.Filter)
	}
	if n := s.Left(); n > 0 {
		return notice.Render(fmt.Sprintf("%s; sorted are the first %s by name: / or n shows others",
			text, operate.Count(len(s.Tubes))))
	}
	return faint.Render(text)
}

// shown are the columns that there is room for, and the width of the first one.
func (m *Model) shown() ([]*operate.Column, int) {
	n, rest := 1, m.width
	for n < len(columns) && rest-width(columns[n])-1 >= minName {
		rest -= width(columns[n]) + 1
		n++
	}
	return columns[:n], rest
}

func (m *Model) headings() string {
	columns, nameWidth := m.shown()
	var b strings.Builder
	for _, c := range columns {
		text := title(c)
		if text == m.query.Sort {
			text += map[bool]string{false: "↓", true: "↑"}[m.query.Reverse]
		}
		b.WriteString(cell(text, nameWidth, c))
	}
	return heading.Render(b.String())
}

// cell aligns the text of a column.
func cell(text string, nameWidth int, c *operate.Column) string {
	if c.Kind == operate.Name {
		text = lipgloss.NewStyle().MaxWidth(nameWidth).Render(text)
		return text + strings.Repeat(" ", max(0, nameWidth-lipgloss.Width(text)))
	}
	return strings.Repeat(" ", max(1, width(c)+1-lipgloss.Width(text))) + text
}

func (m *Model) table() (lines []string) {
	if m.sample == nil {
		return nil
	}
	columns, nameWidth := m.shown()
	first := m.query.First - m.sample.First
	for row := first; row < first+m.rows() && row < len(m.sample.Tubes); row++ {
		if row < 0 { // the last look has not asked about it: the next one does
			lines = append(lines, faint.Render("…"))
			continue
		}
		t := &m.sample.Tubes[row]
		var b strings.Builder
		for _, c := range columns {
			text := cell(m.visible(c.ShortText(t)), nameWidth, c)
			switch {
			case c.Alarm && !c.Zero(t):
				text = alarm.Render(text)
			case (c.Kind == operate.Pause || c.Kind == operate.Word) && !c.Zero(t):
				text = notice.Render(text)
			}
			b.WriteString(text)
		}
		lines = append(lines, b.String())
	}
	return lines
}

// keys is the last line.
func (m *Model) keys() string {
	if m.typing {
		return "filter: " + m.visible(m.input) + "_  (Enter: use it, Esc: leave it)"
	}
	position := ""
	if total := m.total(); total > m.rows() {
		position = fmt.Sprintf("  rows %d to %d of %d", m.query.First+1, min(m.query.First+m.rows(), total), total)
	}
	return faint.Render("? help  q quit  / filter  < > sort  r reverse  p pause" + position)
}

func helpLines() []string {
	return strings.Split(strings.TrimSpace(`
trellis top

  < >, ← →           sort by the column before or after
  r                  the other way round
  n                  by name; only then all tubes of a large server can be seen
  /                  only tubes with a text in their names; Esc shows all again
  ↑ ↓, PgUp PgDn     other rows; Home and End: the first and last ones
  p, space           pause the view, and go on
  ?                  this page, and back
  q                  quit

IN/S, OUT/S   jobs put and deleted in a second
AGE           for how long the oldest ready job has been ready
WAIT          for how long jobs were ready before they were reserved, on average
BUSY          how many workers the tube keeps busy, on average
LIMITED       what keeps it from handing out jobs: pause, rate, reserved
PAUSED        what is left of a pause
`), "\n")
}
