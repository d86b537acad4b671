package worker

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is how much of a line is kept back until its end has come. A longer one is written in parts.
const maxLine = 64 << 10

// A prefixer writes the lines of one command, each with a prefix. Lines of several commands do not mix.
type prefixer struct {
	mu     *sync.Mutex // shared by all that write to out
	out    io.Writer   // guarded by mu
	prefix string
	line   []byte // with the prefix; what has come of the present line
}

func newPrefixer(mu *sync.Mutex, out io.Writer, prefix string) *prefixer {
	return &prefixer{mu: mu, out: out, prefix: prefix, line: []byte(prefix)}
}

// Write never fails: a command is not to fail because its output cannot be shown.
func (p *prefixer) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		room := maxLine + len(p.prefix) - len(p.line)
		if room == 0 && rest[0] != '\n' {
			p.flush()
			room = maxLine
		}
		n := min(len(rest), max(room, 1)) // 1: the end of a line that is as long as can be
		if end := bytes.IndexByte(rest[:n], '\n'); end >= 0 {
			n = end + 1
		}
		p.line = append(p.line, rest[:n]...)
		rest = rest[n:]
		if p.line[len(p.line)-1] == '\n' {
			p.flush()
		}
	}
	return len(b), nil
}

// flush writes what has come of the present line, and ends it.
func (p *prefixer) flush() {
	if len(p.line) == len(p.prefix) {
		return
	}
	if p.line[len(p.line)-1] != '\n' {
		p.line = append(p.line, '\n')
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.out.Write(p.line)
	p.line = p.line[:len(p.prefix)]
}
