package main

import (
	"fmt"
	"io"
	"time"

	"trellis/bench"
)

// A progressLine is one line on a terminal that is written again and again. On anything else it shows nothing.
type progressLine struct {
	out   io.Writer // nil: not a terminal
	shown bool
	last  bench.Progress
}

func newProgressLine(out io.Writer) *progressLine {
	if !isTerminal(out) {
		return &progressLine{}
	}
	return &progressLine{out: out}
}

func (l *progressLine) show(p bench.Progress) {
	if l.out == nil {
		return
	}
	rate := 0.0
	if took := p.Elapsed - l.last.Elapsed; took > 0 && p.Phase == l.last.Phase && p.Commands >= l.last.Commands {
		rate = float64(p.Commands-l.last.Commands) / took.Seconds()
	}
	l.last = p
	l.write(fmt.Sprintf("run %d, %s %v: %d commands, %.0f/s, %d errors",
		p.Run, p.Phase, p.Elapsed.Round(100*time.Millisecond), p.Commands, rate, p.Errors))
}

func (l *progressLine) write(text string) {
	if l.out != nil {
		fmt.Fprint(l.out, "\r\033[K"+text)
		l.shown = true
	}
}

func (l *progressLine) clear() {
	if l.shown {
		fmt.Fprint(l.out, "\r\033[K")
		l.shown = false
	}
}
