package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const maxReplyLine = 1024 // bytes: room for a tube's name and all that can stand beside it

// A Reply is what a server answers to one command.
type Reply struct {
	Word string   // the first word, such as INSERTED
	Args []string // the words behind it
	Body []byte   // of OK, FOUND and RESERVED, without the CR LF behind it; nil for others
}

// Line is the first line of the reply.
func (r *Reply) Line() string { return strings.Join(append([]string{r.Word}, r.Args...), " ") }

// Next returns the reply to the oldest command that has none yet, and panics if there is no
// such command.
func (c *Conn) Next(ctx context.Context) (Reply, error) {
	if c.err != nil {
		return Reply{}, c.err
	}
	if len(c.pending) == 0 {
		panic("client: Next without a command that waits for its reply")
	}
	release := c.within(ctx)
	r, err := c.readReply()
	if err := c.fail(ctx, release, "reading the reply", err); err != nil {
		return Reply{}, err
	}
	command := c.pending[0]
	if c.pending = c.pending[1:]; len(c.pending) == 0 {
		c.pending = nil
	}
	if r.Word == "USING" && command.word == "use" {
		c.usedTube = command.tube
	}
	return r, nil
}

func (c *Conn) readReply() (r Reply, err error) {
	line, err := c.readLine()
	if err != nil {
		return r, err
	}
	words := strings.Split(line, " ")
	r.Word, r.Args = words[0], words[1:]
	if r.Word == "" || strings.ContainsFunc(r.Word, func(c rune) bool { return c != '_' && (c < 'A' || c > 'Z') }) {
		return r, ErrBroken
	}
	return r, c.readRest(&r)
}

// readLine reads up to CR LF, and returns what is before.
func (c *Conn) readLine() (string, error) {
	var line []byte
	for {
		b, err := c.in.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if b == '\n' && bytes.HasSuffix(line, []byte("\r")) {
			return string(line[:len(line)-1]), nil
		}
		if line = append(line, b); len(line) > maxReplyLine {
			return "", fmt.Errorf("%w: a line of more than %d bytes", ErrBroken, maxReplyLine)
		}
	}
}

// readRest reads what the first line announces.
func (c *Conn) readRest(r *Reply) (err error) {
	switch {
	case r.Word == "OK" && len(r.Args) == 1, (r.Word == "FOUND" || r.Word == "RESERVED") && len(r.Args) == 2:
		r.Body, err = c.readBody(r.Args[len(r.Args)-1])
	case r.Word == "OK", r.Word == "FOUND", r.Word == "RESERVED",
		r.Word == "RESERVED_BATCH": // the jobs behind it would be taken for other replies
		err = fmt.Errorf("%w: %q", ErrBroken, r.Line())
	}
	return err
}

// readBody reads a body of so many bytes. Memory grows with what arrives, since the server
// may have announced more than it sends.
func (c *Conn) readBody(size string) ([]byte, error) {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%w: a body of %q bytes", ErrBroken, size)
	}
	if n > c.MaxBody {
		return nil, fmt.Errorf("%w: %w: a body of %d bytes, and the limit is %d", ErrBroken, ErrTooLarge, n, c.MaxBody)
	}
	var body bytes.Buffer
	body.Grow(int(min(n, bufferSize)) + bytes.MinRead)
	if _, err = io.CopyN(&body, c.in, n); err == nil {
		var end [2]byte
		if _, err = io.ReadFull(c.in, end[:]); err == nil && string(end[:]) != "\r\n" {
			return nil, fmt.Errorf("%w: a body that is longer than announced", ErrBroken)
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return body.Bytes(), err
}

// Check returns nil if the reply has the wanted first word, ErrNotFound for NOT_FOUND, and
// a RefusedError otherwise. Command is the first word of what was sent.
func (r *Reply) Check(command, want string) error {
	switch r.Word {
	case want:
		return nil
	case "NOT_FOUND":
		return ErrNotFound
	}
	return &RefusedError{command, r.Line()}
}

// call does a command that has no body and one good reply.
func (c *Conn) call(ctx context.Context, want, line string) (Reply, error) {
	r, err := c.Do(ctx, line, nil)
	if err != nil {
		return r, err
	}
	word, _, _ := strings.Cut(line, " ")
	return r, r.Check(word, want)
}

// count does a command whose good reply has a number.
func (c *Conn) count(ctx context.Context, want, line string) (uint64, error) {
	r, err := c.call(ctx, want, line)
	if err != nil {
		return 0, err
	}
	return c.number(&r, 0)
}

// number is the i-th word behind the first one of a reply.
func (c *Conn) number(r *Reply, i int) (uint64, error) {
	if i < len(r.Args) {
		if n, err := strconv.ParseUint(r.Args[i], 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, c.broken("%q", r.Line())
}

// broken ends the connection for a reply that is not what it should be.
func (c *Conn) broken(format string, args ...any) error {
	c.err = &ConnError{c.addr, fmt.Errorf("%w: "+format, append([]any{ErrBroken}, args...)...)}
	return c.err
}
