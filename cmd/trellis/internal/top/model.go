package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// A Looker asks a server. Look is called by one goroutine at a time.
type Looker interface {
	Look(ctx context.Context, q Query) (*Sample, error)
}

// A Model is the state of the view, as package bubbletea wants it. It asks the server for one sample at a time, and
// for the next one an interval after the answer.
type Model struct {
	ctx      context.Context
	source   Looker
	interval time.Duration
	addr     string
	visible  func(string) string

	width, height int
	sample        *Sample // the last one; nil before the first
	err           error   // of the last look
	query         Query
	typing        bool   // the filter is being typed
	input         string // what has been
	paused, help  bool

	looking bool // a look is under way
	stale   bool // and its query is not the present one
	looks   int  // that have begun; a tick belongs to the one before it
}

// NewModel returns a view of a server. The end of ctx ends its looks; visible makes what comes from the server safe to
// show; first is the first sample.
func NewModel(ctx context.Context, source Looker, first *Sample, q Query, interval time.Duration, addr string,
	visible func(string) string,
) *Model {
	return &Model{
		ctx: ctx, source: source, sample: first, query: q, interval: interval, addr: addr, visible: visible, width: 80,
		height: 24,
	}
}

type looked struct {
	sample *Sample
	err    error
}

// tick is the time for the next look.
type tick struct{ looks int }

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return m.look() }

// look begins a look, or notes that another is wanted when the present one has ended.
func (m *Model) look() tea.Cmd {
	if m.looking {
		m.stale = true
		return nil
	}
	m.looking, m.stale = true, false
	m.looks++
	m.query.Rows = m.rows()
	q := m.query
	return func() tea.Msg {
		s, err := m.source.Look(m.ctx, q)
		return looked{s, err}
	}
}

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.clamp()
		return m, m.resume()
	case looked:
		return m, m.looked(msg)
	case tick:
		if msg.looks == m.looks && !m.paused {
			return m, m.look()
		}
	case tea.KeyPressMsg:
		if m.typing {
			return m, m.typeKey(msg)
		}
		return m, m.key(msg.String())
	case tea.PasteMsg:
		if m.typing {
			m.typeText(msg.Content)
		}
	}
	return m, nil
}

func (m *Model) looked(l looked) tea.Cmd {
	m.looking = false
	if m.stale {
		return m.look()
	}
	if m.err = l.err; l.err == nil && !m.paused {
		m.sample = l.sample
		m.clamp()
	}
	looks := m.looks
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{looks} })
}

// key does what a key is for.
func (m *Model) key(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "?", "h":
		m.help = !m.help
	case "esc":
		if m.help {
			m.help = false
			return nil
		}
		return m.filter("")
	case "space", "p":
		if m.paused = !m.paused; !m.paused {
			return m.look()
		}
	case "/":
		m.typing, m.input = true, m.query.Filter
	case "left", "<":
		return m.sort(column(m.query.Sort)+len(columns)-1, false)
	case "right", ">":
		return m.sort(column(m.query.Sort)+1, false)
	case "r":
		return m.sort(column(m.query.Sort), !m.query.Reverse)
	case "n":
		return m.sort(0, false)
	case "up", "k":
		return m.scroll(-1)
	case "down", "j":
		return m.scroll(1)
	case "pgup", "b":
		return m.scroll(-m.rows())
	case "pgdown", "f":
		return m.scroll(m.rows())
	case "home", "g":
		return m.scroll(-m.query.First)
	case "end", "G":
		return m.scroll(m.total())
	}
	return nil
}

// typeKey is key while the filter is being typed.
func (m *Model) typeKey(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "enter":
		m.typing = false
		return m.filter(m.input)
	case "esc":
		m.typing = false
	case "ctrl+c":
		return tea.Quit
	case "backspace":
		if runes := []rune(m.input); len(runes) > 0 {
			m.input = string(runes[:len(runes)-1])
		}
	case "ctrl+u":
		m.input = ""
	default:
		m.typeText(msg.Text)
	}
	return nil
}

// typeText adds to the filter.
func (m *Model) typeText(text string) {
	if m.input += text; len(m.input) > maxFilter {
		m.input = m.input[:maxFilter]
	}
}

const maxFilter = 200 // bytes of a tube's name

// filter shows only tubes with this in their names.
func (m *Model) filter(part string) tea.Cmd {
	if part == m.query.Filter {
		return nil
	}
	m.query.Filter, m.query.First = part, 0
	return m.resume()
}

// sort sorts by a column.
func (m *Model) sort(by int, reverse bool) tea.Cmd {
	m.query.Sort, m.query.Reverse, m.query.First = title(columns[by%len(columns)]), reverse, 0
	if m.sample != nil && m.sample.First == 0 {
		order(m.sample.Tubes, m.query.Sort, m.query.Reverse) // at once, as far as it is known
	}
	return m.resume()
}

// scroll moves the rows that are shown.
func (m *Model) scroll(by int) tea.Cmd {
	before := m.query.First
	m.query.First += by
	if m.clamp(); m.query.First == before {
		return nil
	}
	return m.resume()
}

// clamp keeps the rows that are shown among those that there are. It begins no look.
func (m *Model) clamp() {
	m.query.First = max(0, min(m.query.First, m.total()-m.rows()))
}

// resume looks at once, unless the view is paused.
func (m *Model) resume() tea.Cmd {
	if m.paused {
		return nil
	}
	return m.look()
}

// total is how many rows there are.
func (m *Model) total() int {
	switch {
	case m.sample == nil:
		return 0
	case m.query.Sort == byName:
		return m.sample.Matched
	}
	return len(m.sample.Tubes)
}

// rows is how many of them the screen has room for.
func (m *Model) rows() int { return max(1, m.height-linesAround) }

// View implements tea.Model.
func (m *Model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	return v
}
