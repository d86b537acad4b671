package top

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer has tubes with jobs. Its lines are what it was asked.
type fakeServer struct {
	tubes   []string
	lacks   []string                     // extensions
	stats   map[string]map[string]uint64 // of some tubes; "" is the server
	lines   []string
	hangUp  bool
	stopped chan struct{}
}

func (s *fakeServer) dial(context.Context) (*client.Conn, error) {
	ours, theirs := net.Pipe()
	s.stopped = make(chan struct{})
	answers := make(chan string, 10_000) // a pipe has no buffer
	go func() {
		for a := range answers {
			if _, err := io.WriteString(theirs, a); err != nil {
				break
			}
		}
		theirs.Close()
		close(s.stopped)
	}()
	go func() {
		defer close(answers)
		for in := bufio.NewScanner(theirs); in.Scan() && !s.hangUp; {
			s.lines = append(s.lines, in.Text())
			answers <- s.answer(strings.Fields(in.Text()))
		}
	}()
	return client.New(ours, "server"), nil
}

func (s *fakeServer) answer(words []string) string {
	ok := func(body string) string { return fmt.Sprintf("OK %d\r\n%s\r\n", len(body), body) }
	stats := func(of string) string {
		text := "---\nversion: \"1\"\n"
		for key, n := range s.stats[of] {
			text += key + ": " + strconv.FormatUint(n, 10) + "\n"
		}
		return ok(text)
	}
	if slices.Contains(s.lacks, words[0]) {
		return "UNKNOWN_COMMAND\r\n"
	}
	switch words[0] {
	case "capabilities":
		text := "---\nversion: \"1\"\nextensions:\n"
		for _, name := range []string{"list-jobs", "stats-tube-x", "stats-tubes"} {
			if !slices.Contains(s.lacks, name) {
				text += "- " + name + "\n"
			}
		}
		return ok(text)
	case "list-tube-used":
		return "USING default\r\n"
	case "stats":
		return stats("")
	case "list-tubes":
		return ok("---\n- " + strings.Join(s.tubes, "\n- ") + "\n")
	case "stats-tube", "stats-tube-x":
		if !slices.Contains(s.tubes, words[1]) {
			return "NOT_FOUND\r\n"
		}
		return stats(words[1])
	case "stats-tubes":
		return ok(s.page(append(words, "")))
	case "list-jobs":
		return ok("---\n- id: 1\n  pri: 0\n  age: 77\n  size: 1\n")
	}
	return "UNKNOWN_COMMAND\r\n"
}

// page answers a stats-tubes with a limit and a name, which may be empty.
func (s *fakeServer) page(words []string) string {
	text := "---\n"
	limit, _ := strconv.Atoi(words[1])
	for _, name := range slices.Sorted(slices.Values(s.tubes)) {
		if name <= words[2] || limit == 0 {
			continue
		}
		text += "- name: \"" + name + "\"\n"
		for key, n := range s.stats[name] {
			text += "  " + key + ": " + strconv.FormatUint(n, 10) + "\n"
		}
		limit--
	}
	return text
}

// asked counts the lines that begin with a word, since the last call.
func (s *fakeServer) asked(word string) (n int) {
	for _, line := range s.lines {
		if strings.HasPrefix(line, word+" ") || line == word {
			n++
		}
	}
	return n
}

type clock struct{ now time.Time }

func newCollector(t *testing.T, s *fakeServer, limit int) (*Collector, *clock) {
	t.Helper()
	clock := &clock{time.Unix(1000, 0).UTC()}
	c := &Collector{Dial: s.dial, Limit: limit, Now: func() time.Time { return clock.now }}
	t.Cleanup(func() {
		c.Close()
		if s.stopped != nil {
			<-s.stopped
		}
	})
	return c, clock
}

func names(s *Sample) (all []string) {
	for _, t := range s.Tubes {
		all = append(all, t.Name)
	}
	return all
}

func manyTubes(n int) *fakeServer {
	s := &fakeServer{stats: map[string]map[string]uint64{}}
	for i := range n {
		s.tubes = append(s.tubes, fmt.Sprintf("t%05d", i))
	}
	return s
}

// older are the extensions that a server of an older version lacks.
var older = []string{"stats-tube-x", "stats-tubes"}

func TestALookAsksAboutItsLimitOfTubesOnly(t *testing.T) {
	s := manyTubes(5000)
	s.lacks = older
	s.stats["t00003"] = map[string]uint64{"current-jobs-ready": 9}
	s.stats["t04000"] = map[string]uint64{"current-jobs-ready": 8}
	c, _ := newCollector(t, s, 100)
	look, err := c.Look(t.Context(), Query{Sort: "READY", Rows: 20})
	if err != nil {
		t.Fatal(err)
	}
	if look.All != 5000 || look.Matched != 5000 || len(look.Tubes) != 100 || look.Tubes[0].Name != "t00003" || look.Left() != 4900 {
		t.Errorf("%+v", look)
	}
	if n := s.asked("stats-tube"); n != 100 {
		t.Errorf("%d tubes were asked about", n)
	}
	if n := s.asked("list-jobs"); n != 1 || look.Tubes[0].Oldest != 77*time.Second || look.Tubes[1].Oldest >= 0 {
		t.Errorf("%d ages were asked for; %+v", n, look.Tubes[:2])
	}

	look, err = c.Look(t.Context(), Query{Sort: "READY", Rows: 20, Filter: "t040"})
	if err != nil || look.Matched != 100 || look.Tubes[0].Name != "t04000" || look.Left() != 0 {
		t.Errorf("%v, %+v", err, look)
	}
}

func TestALookByNameAsksAboutTheShownTubesOnly(t *testing.T) {
	for word, lacks := range map[string][]string{"stats-tube": older, "stats-tube-x": nil} {
		s := manyTubes(5000)
		s.lacks = lacks
		c, _ := newCollector(t, s, 100)
		look, err := c.Look(t.Context(), Query{Sort: "TUBE", First: 4000, Rows: 3})
		if err != nil || strings.Join(names(look), " ") != "t04000 t04001 t04002" || look.First != 4000 || s.asked(word) != 3 {
			t.Errorf("%v, %+v", err, look)
		}
		look, err = c.Look(t.Context(), Query{Sort: "TUBE", Reverse: true, First: 4999, Rows: 3})
		if err != nil || strings.Join(names(look), " ") != "t00000" || look.First != 4999 {
			t.Errorf("%v, %+v", err, look)
		}
	}
}

func TestALookAtAThousandTubesIsThreeQuestions(t *testing.T) {
	s := manyTubes(1000)
	s.stats["t00003"] = map[string]uint64{"current-jobs-ready": 9, "oldest-ready-age": 5}
	s.stats["t00999"] = map[string]uint64{"current-jobs-ready": 8}
	c, _ := newCollector(t, s, 1000)
	look := func(q Query, want string) *Sample {
		t.Helper()
		s.lines = nil
		got, err := c.Look(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if asked := strings.Join(s.lines, ","); asked != want {
			t.Errorf("%+v: %s, want %s", q, asked, want)
		}
		return got
	}
	got := look(Query{Sort: "READY", Rows: 20}, "capabilities,stats,list-tubes,stats-tubes 1000")
	if len(got.Tubes) != 1000 || got.All != 1000 || got.Left() != 0 || got.Tubes[1].Name != "t00999" || got.Tubes[0].Oldest != 5*time.Second || got.Tubes[2].Oldest >= 0 {
		t.Errorf("%d of %d tubes: %+v", len(got.Tubes), got.All, got.Tubes[:3])
	}
	got = look(Query{Sort: "TUBE", Reverse: true, First: 500, Rows: 20}, "stats,list-tubes,stats-tubes 1000")
	if got.First != 0 || len(got.Tubes) != 1000 || got.Tubes[0].Name != "t00999" {
		t.Errorf("by name: %d from %d: %+v", len(got.Tubes), got.First, got.Tubes[0])
	}
	got = look(Query{Sort: "READY", Filter: "99"}, "stats,list-tubes,stats-tubes 1000")
	if got.Matched != 19 || len(got.Tubes) != 19 || got.Tubes[0].Name != "t00999" {
		t.Errorf("with a filter: %d of %d tubes: %+v", len(got.Tubes), got.Matched, got.Tubes)
	}
}

func TestALookAtMoreTubesAsksForFurtherPages(t *testing.T) {
	for tubes, want := range map[int]string{
		999:  "stats-tubes 1000",
		2000: "stats-tubes 1000,stats-tubes 1000 t00999,stats-tubes 500 t01999",
		5000: "stats-tubes 1000,stats-tubes 1000 t00999,stats-tubes 500 t01999",
	} {
		s := manyTubes(tubes)
		c, _ := newCollector(t, s, 2500)
		got, err := c.Look(t.Context(), Query{Sort: "READY"})
		asked := strings.TrimPrefix(strings.Join(s.lines, ","), "capabilities,stats,list-tubes,")
		if err != nil || asked != want || len(got.Tubes) != min(tubes, 2500) || got.Left() != max(0, tubes-2500) {
			t.Errorf("%v: %d of %d tubes by %s, want %s", err, len(got.Tubes), tubes, asked, want)
		}
	}
}

func TestAFilterOfManyTubesAsksAboutThoseItLeaves(t *testing.T) {
	s := manyTubes(5000)
	s.tubes = append(s.tubes, "in/mail", "out/mail")
	c, _ := newCollector(t, s, 100)
	for _, want := range []string{
		"capabilities,stats,list-tubes,stats-tubes 100,stats-tube-x in/mail,stats-tube-x out/mail",
		"stats,stats-tube-x in/mail,stats-tube-x out/mail",
	} {
		s.lines = nil
		got, err := c.Look(t.Context(), Query{Sort: "READY", Filter: "/mail"})
		if err != nil {
			t.Fatal(err)
		}
		if asked := strings.Join(s.lines, ","); asked != want || got.Matched != 2 || len(got.Tubes) != 2 {
			t.Errorf("%d of %d tubes by %s, want %s", len(got.Tubes), got.Matched, asked, want)
		}
	}
}

func TestALongListOfTubesIsNotAskedForEachTime(t *testing.T) {
	s := manyTubes(200)
	c, clock := newCollector(t, s, 100)
	for i, want := range []int{1, 1, 1, 2} {
		if _, err := c.Look(t.Context(), Query{Sort: "READY"}); err != nil {
			t.Fatal(err)
		}
		if n := s.asked("list-tubes"); n != want {
			t.Errorf("look %d: the list has been asked for %d times", i, n)
		}
		clock.now = clock.now.Add(4 * time.Second)
	}
}

func TestRatesComeFromTwoLooks(t *testing.T) {
	s := &fakeServer{tubes: []string{"a", "b"}, stats: map[string]map[string]uint64{
		"": {"total-jobs": 100, "cmd-delete": 50}, "a": {"total-jobs": 100, "cmd-delete": 50},
	}}
	c, clock := newCollector(t, s, 100)
	look := func(in, out uint64) *Sample {
		for _, of := range []string{"", "a"} {
			s.stats[of]["total-jobs"], s.stats[of]["cmd-delete"] = in, out
		}
		got, err := c.Look(t.Context(), Query{Sort: "TUBE", Rows: 10})
		if err != nil {
			t.Fatal(err)
		}
		clock.now = clock.now.Add(2 * time.Second)
		return got
	}
	for i, want := range []struct {
		in, out         uint64
		rateIn, rateOut float64
	}{
		{100, 50, math.NaN(), math.NaN()},
		{150, 53, 25, 1.5},
		{150, 53, 0, 0},
		{5, 1, math.NaN(), math.NaN()}, // a new server or tube
		{7, 1, 1, 0},
	} {
		got := look(want.in, want.out)
		for _, r := range [][2]float64{{got.Server.In, got.Server.Out}, {got.Tubes[0].Rates.In, got.Tubes[0].Rates.Out}} {
			if fmt.Sprint(r) != fmt.Sprint([2]float64{want.rateIn, want.rateOut}) { // NaN is not equal to itself
				t.Errorf("look %d: rates %v, want %v", i, r, want)
			}
		}
	}
}

func TestAStockServerIsNotAskedForAges(t *testing.T) {
	s := &fakeServer{lacks: []string{"capabilities", "list-jobs"}, tubes: []string{"a"}, stats: map[string]map[string]uint64{"a": {"current-jobs-ready": 1}}}
	c, _ := newCollector(t, s, 100)
	look, err := c.Look(t.Context(), Query{Sort: "READY", Rows: 10})
	if err != nil || look.Tubes[0].Oldest >= 0 || s.asked("list-jobs") != 0 {
		t.Errorf("%v, %+v", err, look)
	}
}

func TestALostConnectionIsMadeAgain(t *testing.T) {
	s := &fakeServer{tubes: []string{"a"}}
	c, _ := newCollector(t, s, 100)
	if _, err := c.Look(t.Context(), Query{}); err != nil {
		t.Fatal(err)
	}
	s.hangUp = true
	if _, err := c.Look(t.Context(), Query{}); err == nil {
		t.Fatal("no error")
	}
	<-s.stopped
	s.hangUp = false
	if _, err := c.Look(t.Context(), Query{}); err != nil {
		t.Fatal(err)
	}
}

func TestNamesThatAreNoneAreLeftOut(t *testing.T) {
	s := &fakeServer{tubes: []string{"a", "b c", "\x1b[31m", "-d", "e"}}
	c, _ := newCollector(t, s, 100)
	look, err := c.Look(t.Context(), Query{Sort: "TUBE", Rows: 10})
	if err != nil || strings.Join(names(look), " ") != "a e" {
		t.Errorf("%v, %+v", err, look)
	}
}

// still is a source that is never to be asked.
type still struct{}

func (still) Look(context.Context, Query) (*Sample, error) { return nil, errors.New("not to be asked") }

// visible is as the tool has it, for what tests use.
func visible(s string) string { return strings.ReplaceAll(s, "\x1b", `\x1b`) }

func sample() *Sample {
	return &Sample{
		At: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), All: 3, Matched: 3,
		Server: Server{
			Version: "1.0", Uptime: 93784, Connections: 1200, Producers: 100, Workers: 20,
			Counts: operate.Counts{Ready: 1234567, Reserved: 3, Delayed: 4, Buried: 5, Waiting: 7}, Rates: operate.Rates{In: 1234.5, Out: 12.34},
		},
		Tubes: []operate.Tube{
			{
				Name: "mail", Counts: operate.Counts{Ready: 1234567, Reserved: 3, Waiting: 7}, Watching: 20,
				Rates: operate.Rates{In: 1234.5, Out: 12.34, Wait: 0.35, Busy: 2.5}, Oldest: 93784 * time.Second, Limited: "reserved",
			},
			{
				Name: "thumb\x1b[31mnails/" + strings.Repeat("x", 60), Counts: operate.Counts{Buried: 5, Delayed: 4},
				Rates: operate.Rates{In: math.NaN(), Out: math.NaN(), Wait: math.NaN(), Busy: math.NaN()}, Oldest: -1, PauseLeft: 59 * time.Second,
				Limited: "pause",
			},
			{Name: "zero", Oldest: 0},
		},
	}
}

func newModel(width, height int) *Model {
	q := Query{Sort: "READY"}
	s := sample()
	s.Query = q
	m := NewModel(context.Background(), still{}, s, q, time.Second, "127.0.0.1:11300", visible)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.looking = false
	return m
}

// frame is what is shown, without colours.
func frame(m *Model) string { return ansi.Strip(m.View().Content) }

// pressed is the press of a key that writes a character.
func pressed(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }

// press presses keys: single characters, or names such as <enter>.
func press(m *Model, keys ...string) {
	special := map[string]rune{
		"<enter>": tea.KeyEnter, "<esc>": tea.KeyEscape, "<left>": tea.KeyLeft, "<right>": tea.KeyRight, "<down>": tea.KeyDown, "<up>": tea.KeyUp,
		"<end>": tea.KeyEnd, "<home>": tea.KeyHome, "<backspace>": tea.KeyBackspace,
	}
	for _, k := range keys {
		msg := pressed([]rune(k)[0])
		if key, ok := special[k]; ok {
			msg = tea.KeyPressMsg{Code: key}
		}
		m.Update(msg)
		m.looking = false
	}
}

func TestFrames(t *testing.T) {
	var b strings.Builder
	show := func(name string, m *Model) {
		fmt.Fprintf(&b, "==== %s\n", name)
		for line := range strings.Lines(frame(m) + "\n") {
			b.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	show("wide", newModel(140, 12))
	show("narrow", newModel(60, 12))
	show("tiny", newModel(20, 4))
	m := newModel(120, 12)
	press(m, "<right>", "<right>", "<right>", "r")
	show("by buried, reversed", m)
	press(m, "/", "m", "a", "x", "<backspace>")
	show("a filter is being typed", m)
	press(m, "<esc>", "p")
	show("paused", m)
	m = newModel(120, 12)
	m.Update(looked{nil, errors.New("127.0.0.1:11300: connection \x1b refused")})
	show("the server is away", m)
	m = newModel(120, 12)
	m.sample.All, m.sample.Matched, m.sample.Query.Filter, m.sample.Server.Draining = 100_000, 50_000, "a", true
	show("more tubes than are asked about", m)
	m = newModel(120, 8)
	press(m, "<down>")
	show("scrolled", m)
	m = newModel(80, 24)
	press(m, "?")
	show("help", m)
	file := filepath.Join("testdata", "frames.txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != b.String() {
		t.Errorf("%v, %s is not what is drawn now:\n%s", err, file, b.String())
	}
}

func TestOneLookIsUnderWayAtMost(t *testing.T) {
	m := newModel(80, 24)
	if m.look() == nil {
		t.Fatal("no look is begun")
	}
	first := m.looks
	if _, again := m.Update(pressed('n')); again != nil {
		t.Error("a second look beside the first")
	}
	if _, next := m.Update(looked{sample(), nil}); next == nil || m.looks != first+1 {
		t.Error("no look after the answer to an old question")
	}
	if m.query.Sort != "TUBE" {
		t.Error(m.query)
	}
	m.Update(looked{sample(), nil})
	if _, old := m.Update(tick{first}); old != nil {
		t.Error("a tick of an earlier look begins one")
	}
	if _, next := m.Update(tick{m.looks}); next == nil {
		t.Error("a tick begins no look")
	}
}

// shrinking is a source of so many tubes.
type shrinking struct{ tubes int }

func (s *shrinking) Look(_ context.Context, q Query) (*Sample, error) {
	all := &Sample{Query: q, All: s.tubes, Matched: s.tubes}
	for i := range s.tubes {
		all.Tubes = append(all.Tubes, operate.Tube{Name: fmt.Sprintf("t%05d", i)})
	}
	if q.Sort == byName {
		all.First = min(q.First, s.tubes)
		all.Tubes = all.Tubes[all.First:min(all.First+q.Rows, s.tubes)]
	}
	return all, nil
}

// A program runs a model's commands as package bubbletea does, but one after the other.
type program struct {
	m    *Model
	cmds []tea.Cmd
}

func (p *program) send(msg tea.Msg) {
	if _, cmd := p.m.Update(msg); cmd != nil {
		p.cmds = append(p.cmds, cmd)
	}
}

// run runs so many commands. There must always be one, or nothing would ever be looked at again.
func (p *program) run(t *testing.T, n int) {
	t.Helper()
	for range n {
		if len(p.cmds) == 0 {
			t.Fatal("the view has frozen: no look and no tick is under way")
		}
		next := p.cmds[0]
		p.cmds = p.cmds[1:]
		p.send(next())
	}
}

func TestAViewGoesOnWhenThereAreFewerRowsThanItWasScrolledTo(t *testing.T) {
	for _, sort := range []string{"READY", byName} {
		for what, change := range map[string]func(*program, *shrinking){
			"a tube has gone":    func(_ *program, s *shrinking) { s.tubes-- },
			"a taller window":    func(p *program, _ *shrinking) { p.send(tea.WindowSizeMsg{Width: 80, Height: linesAround + 8}) },
			"most tubes gone":    func(_ *program, s *shrinking) { s.tubes = 3 },
			"all tubes are gone": func(_ *program, s *shrinking) { s.tubes = 0 },
		} {
			t.Run(sort+"/"+what, func(t *testing.T) {
				s := &shrinking{tubes: 20}
				q := Query{Sort: sort, Rows: 5}
				first, _ := s.Look(t.Context(), q)
				p := &program{m: NewModel(t.Context(), s, first, q, time.Nanosecond, "server", visible)}
				p.cmds = append(p.cmds, p.m.Init())
				p.send(tea.WindowSizeMsg{Width: 80, Height: linesAround + 5})
				p.send(tea.KeyPressMsg{Code: tea.KeyEnd})
				p.run(t, 10)
				if p.m.query.First != 15 {
					t.Fatalf("it shows the rows from %d", p.m.query.First)
				}
				change(p, s)
				p.run(t, 10)
				if want := max(0, s.tubes-p.m.rows()); p.m.sample.Matched != s.tubes || p.m.query.First != want || strings.Contains(frame(p.m), "…") {
					t.Errorf("%d tubes are known, and shown from %d, want %d from %d:\n%s", p.m.sample.Matched, p.m.query.First, s.tubes, want, frame(p.m))
				}
			})
		}
	}
}

func TestAPausedViewStandsStill(t *testing.T) {
	m := newModel(80, 24)
	press(m, "p")
	before := frame(m)
	other := sample()
	other.Tubes[0].Name = "other"
	m.Update(looked{other, nil})
	if _, next := m.Update(tick{m.looks}); next != nil || frame(m) != before {
		t.Errorf("it goes on:\n%s", frame(m))
	}
	if _, next := m.Update(pressed('p')); next == nil {
		t.Error("it does not go on")
	}
}

func TestNoKeysAndNoSampleBreakTheFrame(t *testing.T) {
	keys := []string{"?", "<esc>", "/", "a", "<enter>", "<backspace>", "p", "<left>", "<right>", "r", "n", "<up>", "<down>", "<end>", "<home>", "j", "k", "b", "f", "G", "g", "ü"}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(80, 24)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				m.Update(tea.WindowSizeMsg{Width: rapid.IntRange(0, 200).Draw(t, "width"), Height: rapid.IntRange(0, 60).Draw(t, "height")})
			case 1:
				s := &Sample{Query: m.query}
				s.Matched = rapid.IntRange(0, 300).Draw(t, "matched")
				if m.query.Sort == byName {
					s.First = rapid.IntRange(0, s.Matched).Draw(t, "first")
				}
				for i := range rapid.IntRange(0, s.Matched-s.First).Draw(t, "tubes") {
					s.Tubes = append(s.Tubes, operate.Tube{
						Name: fmt.Sprint("tube", i), Counts: operate.Counts{Ready: rapid.Int64().Draw(t, "ready")}, Oldest: time.Duration(rapid.Int64().Draw(t, "age")),
						Limited: rapid.SampledFrom([]string{"", "rate", "\x1b[31m"}).Draw(t, "limited"), Rates: operate.Rates{Wait: rapid.Float64().Draw(t, "wait")},
					})
				}
				m.looking = true
				m.Update(looked{s, nil})
			default:
				press(m, rapid.SampledFrom(keys).Draw(t, "key"))
			}
			shown := frame(m)
			if lines := strings.Count(shown, "\n") + 1; lines > max(m.height, 1) {
				t.Fatalf("%d lines on a screen of %d:\n%s", lines, m.height, shown)
			}
			for line := range strings.Lines(shown) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); m.width > 0 && n > m.width {
					t.Fatalf("%d characters on a screen of %d: %q", n, m.width, line)
				}
			}
		}
	})
}
