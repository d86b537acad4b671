package codec

import (
	"bytes"
	"sync"
)

// Decoder turns the bytes that a connection sends into commands. Its zero value
// is at the start of a connection and takes empty bodies only; MaxJobSize should
// be set before use. All fields belong to the goroutine that serves the
// connection.
type Decoder struct {
	// MaxJobSize is the size in bytes of the biggest body that is accepted.
	MaxJobSize uint32

	// Extensions makes the decoder know the commands that beanstalkd does not have.
	// It is set before use, too.
	Extensions bool

	state state

	// held is the number of bytes in line. They contain no CR LF, and are fewer
	// than MaxLine. In stateSkip it is how many bytes of the beginning of httpEnd the
	// line ends with so far.
	held uint8

	// shape, in stateSkip, is how far the line is that of a put with tags.
	shape shape

	// line has the beginning of a line that the input cut, or, while held is 0,
	// the line of the last command, in which its Tube lies.
	line *line

	// left is the number of bytes still to come of a body and of the two bytes
	// behind it. In stateSkip it is the last number that shape has seen.
	left uint64
}

type state uint8

const (
	stateLine    state = iota // in a line, of which held bytes are known
	stateSkip                 // in a line that is too long
	stateSkipCR               // the same, and its last byte was a CR
	stateBody                 // in a body of which pieces are handed out
	stateBadBody              // the same, and a byte behind it was wrong
	stateDrop                 // in a body that is too big
	stateRefuse               // in the body of a malformed put that takes it along
)

type line [MaxLine]byte

var lines = sync.Pool{New: func() any { return new(line) }}

var crlf = []byte("\r\n")

// Next decodes the bytes of p, which follow those that earlier calls took. It
// returns the number of bytes it took and whether it filled cmd. If it did not,
// it took all of p and needs more, and what cmd holds has no meaning.
//
// A caller goes on with the rest of p until there is no more command, also when
// the rest is empty: the call that finds nothing gives back the memory that the
// last command lay in.
func (d *Decoder) Next(p []byte, cmd *Command) (n int, ok bool) {
	if d.state != stateLine || d.line != nil {
		return d.resume(p, cmd)
	}
	if len(p) == 0 {
		return 0, false
	}
	// Nearly all lines are well-formed and in p up to their end, and parsing
	// such a line finds its end. Looking for the end first would only cost.
	end := parse(p, cmd)
	n = end + len(crlf)
	if end < 0 || n > len(p) || n > MaxLine || p[end] != '\r' || p[end+1] != '\n' {
		n = lineEnd(p, MaxLine)
		if n < 0 {
			return d.cut(p, cmd)
		}
		if d.judge(p[:n], end, cmd); cmd.Op == OpBadFormat && d.isTagged(p[:n]) {
			return d.refuse(p, n, cmd)
		}
	}
	if cmd.Op == OpPut {
		n = d.put(p, n, cmd)
	}
	return n, true
}

// Release forgets a line or body that has begun and gives its memory back. The
// decoder is then as at the start of a connection. Tube of the last command is
// no longer valid.
func (d *Decoder) Release() {
	d.free()
	*d = Decoder{MaxJobSize: d.MaxJobSize, Extensions: d.Extensions}
}

// AtStart reports whether the next byte begins a new command: no line and no body has begun
// and not ended.
func (d *Decoder) AtStart() bool { return d.state == stateLine && d.held == 0 }

// Refusing reports whether the input ends within what will be refused in any case: a line that
// is too long, or the body that a malformed put takes along.
func (d *Decoder) Refusing() bool {
	return d.state == stateSkip || d.state == stateSkipCR || d.state == stateRefuse
}

// InBody reports whether the input ends within a body, or behind it before all of its end has come.
func (d *Decoder) InBody() bool { return d.state >= stateBody }

// cut takes the beginning of a line that does not end in p, or is too long.
func (d *Decoder) cut(p []byte, cmd *Command) (int, bool) {
	if len(p) >= MaxLine {
		d.shape = d.newShape()
		return d.skip(p, cmd)
	}
	d.line = lines.Get().(*line)
	d.held = uint8(copy(d.line[:], p))
	return len(p), false
}

// resume decodes what follows on bytes of earlier inputs.
func (d *Decoder) resume(p []byte, cmd *Command) (int, bool) {
	switch d.state {
	case stateSkip, stateSkipCR:
		return d.skip(p, cmd)
	case stateBody, stateBadBody:
		d.free()
		return d.body(p, cmd)
	case stateDrop, stateRefuse:
		d.free()
		return d.dropBody(p, cmd)
	}
	if d.held == 0 {
		d.free()
		return d.Next(p, cmd)
	}
	return d.extend(p, cmd)
}

// extend decodes a line whose first bytes are held.
func (d *Decoder) extend(p []byte, cmd *Command) (int, bool) {
	if len(p) == 0 {
		return 0, false
	}
	held := int(d.held)
	var n int
	if d.line[held-1] == '\r' && p[0] == '\n' {
		n = 1
	} else {
		n = lineEnd(p, MaxLine-held)
	}
	if n < 0 {
		if held+len(p) >= MaxLine {
			d.held = matchHTTP(0, d.line[:held])
			d.shape = d.newShape()
			d.follow(d.line[:held])
			d.free()
			return d.skip(p, cmd)
		}
		d.held += uint8(copy(d.line[held:], p))
		return len(p), false
	}
	copy(d.line[held:], p[:n])
	d.held = 0
	s := d.line[:held+n]
	end := parse(s, cmd)
	if end != len(s)-len(crlf) {
		if d.judge(s, end, cmd); cmd.Op == OpBadFormat && d.isTagged(s) {
			return d.refuse(p, n, cmd)
		}
	}
	if cmd.Op == OpPut {
		n = d.put(p, n, cmd)
	}
	return n, true
}

// free gives back a line that is no longer needed.
func (d *Decoder) free() {
	if d.line != nil {
		lines.Put(d.line)
		d.line = nil
	}
}

// judge decides what a whole line is that does not end where parse expects. end is
// that index, or noMatch.
func (d *Decoder) judge(s []byte, end int, cmd *Command) {
	if matchHTTP(0, s[:len(s)-1]) == wholeHTTP {
		cmd.set(OpHTTP)
		return
	}
	if bytes.IndexByte(s, 0) >= 0 {
		cmd.set(OpBadFormat)
		return
	}
	if d.Extensions && parseExtension(s[:len(s)-len(crlf)], cmd) || end < 0 {
		return
	}
	switch cmd.Op {
	case OpReserveWithTimeout, OpKick, OpQuit:
		// What follows is ignored.
	case OpPut:
		// Size decides first, and the command was counted by then.
		if cmd.Size <= d.MaxJobSize && !(d.Extensions && parseTags(s[:len(s)-len(crlf)], end, cmd)) {
			cmd.Op = OpBadFormat
		}
	case OpWatch:
		if !d.Extensions || !parseWeight(s[:len(s)-len(crlf)], end, cmd) {
			cmd.set(OpBadFormat)
		}
	case OpAuth:
		cmd.set(OpUnknown)
	default:
		cmd.set(OpBadFormat)
	}
}

// put hands out a put whose line ends at p[n], with its body if that is in hand.
// It returns the index behind what it hands out.
func (d *Decoder) put(p []byte, n int, cmd *Command) int {
	left := uint64(cmd.Size) + uint64(len(crlf))
	switch {
	case cmd.Size > d.MaxJobSize:
		cmd.Op = OpPutTooBig
		d.state, d.left = stateDrop, left
	case left > uint64(len(p)-n):
		cmd.Op = OpPutBegin
		d.state, d.left = stateBody, left
	default:
		end := n + int(cmd.Size)
		cmd.Body = p[n:end:end]
		cmd.Terminated = p[end] == '\r' && p[end+1] == '\n'
		n = end + len(crlf)
	}
	return n
}

// body hands out a piece of a body, or its end.
func (d *Decoder) body(p []byte, cmd *Command) (int, bool) {
	if len(p) == 0 {
		return 0, false
	}
	if d.left > uint64(len(crlf)) {
		n := int(min(uint64(len(p)), d.left-uint64(len(crlf))))
		d.left -= uint64(n)
		cmd.set(OpPutChunk)
		cmd.Body = p[:n:n]
		return n, true
	}
	n := 0
	for n < len(p) && d.left > 0 {
		if p[n] != crlf[len(crlf)-int(d.left)] {
			d.state = stateBadBody
		}
		d.left--
		n++
	}
	if d.left > 0 {
		return n, false
	}
	cmd.set(OpPutEnd)
	cmd.Terminated = d.state == stateBody
	d.state = stateLine
	return n, true
}

// refuse drops the body of a malformed put whose line ends at p[n]. d.left is the size that
// the line gives.
func (d *Decoder) refuse(p []byte, n int, cmd *Command) (int, bool) {
	d.free()
	d.state, d.left = stateRefuse, d.left+uint64(len(crlf))
	dropped, ok := d.dropBody(p[n:], cmd)
	return n + dropped, ok
}

// dropBody takes bytes of a body that nobody gets.
func (d *Decoder) dropBody(p []byte, cmd *Command) (int, bool) {
	if d.left > uint64(len(p)) {
		d.left -= uint64(len(p))
		return len(p), false
	}
	n := int(d.left)
	d.left = 0
	cmd.set(OpPutTooBigEnd)
	if d.state == stateRefuse {
		cmd.Op, cmd.CountAs = OpBadFormat, OpPut
	}
	d.state = stateLine
	return n, true
}

// skip takes bytes of a line that is too long, up to its end.
func (d *Decoder) skip(p []byte, cmd *Command) (int, bool) {
	if len(p) == 0 {
		return 0, false
	}
	n := 1
	if d.state != stateSkipCR || p[0] != '\n' {
		n = lineEnd(p, len(p))
	}
	if n < 0 {
		d.state = stateSkip
		if p[len(p)-1] == '\r' {
			d.state = stateSkipCR
		}
		d.held = matchHTTP(d.held, p)
		d.follow(p)
		return len(p), false
	}
	http := matchHTTP(d.held, p[:n-1]) == wholeHTTP
	d.state, d.held = stateLine, 0
	if http {
		cmd.set(OpHTTP)
		return n, true
	}
	if d.follow(p[:n]); d.shape == tagged {
		return d.refuse(p, n, cmd)
	}
	cmd.set(OpBadFormat)
	return n, true
}

// lineEnd returns the index behind the first CR LF in the first limit bytes of
// p, or noMatch.
func lineEnd(p []byte, limit int) int {
	i := bytes.Index(p[:min(len(p), limit)], crlf)
	if i < 0 {
		return noMatch
	}
	return i + len(crlf)
}

// Held is what has come, and is in no command yet, of a line, or of what follows on a body. It is valid until the
// next call of Next. It reports false if that is not kept.
func (d *Decoder) Held() (b []byte, ok bool) {
	switch {
	case d.state == stateLine && d.held == 0:
		return nil, true
	case d.state == stateLine:
		return d.line[:d.held], true
	case d.state == stateBody && d.left < uint64(len(crlf)):
		return crlf[:uint64(len(crlf))-d.left], true
	case d.state == stateBadBody:
		return crlf[1:], true // which is as wrong there as what has come
	}
	return nil, d.state == stateBody
}
