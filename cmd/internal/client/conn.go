package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	// MaxLine is the longest command that a stock beanstalkd takes, in bytes without its CR LF.
	MaxLine = 222

	// DefaultMaxBody is the body of the largest job that Trellis takes, in bytes.
	DefaultMaxBody = 1 << 30

	bufferSize = 32 << 10
)

// A Conn is a connection to a server.
type Conn struct {
	// MaxBody is how large the body of one reply may be, in bytes. A larger one breaks the
	// connection.
	MaxBody int64

	// Timeout is how long the server may take to send the next part of a reply, or to take the
	// next part of a command; 0 means as long as the context allows. The error of a server that
	// takes longer is context.DeadlineExceeded, too.
	Timeout time.Duration

	addr    string
	nc      net.Conn
	ctx     context.Context // of the call that reads or writes
	in      *bufio.Reader
	out     *bufio.Writer
	pending []sent // commands without a reply, the oldest first
	err     error  // why the connection is useless; nil while it is not

	usedTube string // the tube that the server has confirmed last
	caps     *Capabilities
}

type sent struct {
	word string
	tube string // of a use
}

// New returns a connection that owns nc from now on. Errors name the server addr.
func New(nc net.Conn, addr string) *Conn {
	c := &Conn{MaxBody: DefaultMaxBody, addr: addr, nc: nc, ctx: context.Background(), usedTube: "default"}
	c.in = bufio.NewReaderSize((*stream)(c), bufferSize)
	c.out = bufio.NewWriterSize((*stream)(c), bufferSize)
	return c
}

// A stream is a Conn as its buffers read and write it: each part sets its deadline first.
type stream Conn

func (s *stream) Read(p []byte) (int, error) {
	if err := s.arm(); err != nil {
		return 0, err
	}
	return s.nc.Read(p)
}

// Write writes large bodies in parts, since Timeout is for each part.
func (s *stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if err = s.arm(); err != nil {
			return n, err
		}
		var k int
		k, err = s.nc.Write(p[:min(len(p), bufferSize)])
		n, p = n+k, p[k:]
	}
	return n, err
}

// arm sets the deadline of the next read or write. If the context ends meanwhile, within
// makes the deadline earlier.
func (s *stream) arm() error {
	deadline, _ := s.ctx.Deadline()
	if s.Timeout > 0 {
		if by := time.Now().Add(s.Timeout); deadline.IsZero() || by.Before(deadline) {
			deadline = by
		}
	}
	if err := s.nc.SetDeadline(deadline); err != nil {
		return err
	}
	return s.ctx.Err()
}

// Addr is how errors name the server.
func (c *Conn) Addr() string { return c.addr }

// Close ends the connection. The server releases what it had reserved.
func (c *Conn) Close() error { return c.nc.Close() }

// Auth offers a token. It must be the first command, and fails with a RefusedError if the
// server does not know the token.
func (c *Conn) Auth(ctx context.Context, token string) error {
	if err := c.enqueue(ctx, "auth", "auth "+token, nil); err != nil {
		return err
	}
	r, err := c.roundTrip(ctx)
	if err != nil {
		return err
	}
	return r.Check("auth", "AUTHENTICATED")
}

// Do sends a command, with a body if it is not nil, and returns the reply, whatever that
// says. If it is one of the extensions and the server lacks it, the error is a LacksError.
// The context bounds the whole; if it ends, the connection is useless, as it is after
// reserve-batch, which has several replies.
func (c *Conn) Do(ctx context.Context, line string, body []byte) (Reply, error) {
	if c.caps == nil && len(extensionsIn(line)) > 0 {
		if _, err := c.Capabilities(ctx); err != nil {
			return Reply{}, err
		}
	}
	if err := c.Queue(ctx, line, body); err != nil {
		return Reply{}, err
	}
	return c.roundTrip(ctx)
}

func (c *Conn) roundTrip(ctx context.Context) (Reply, error) {
	if err := c.Flush(ctx); err != nil {
		return Reply{}, err
	}
	for len(c.pending) > 1 { // replies that the caller has not read
		if _, err := c.Next(ctx); err != nil {
			return Reply{}, err
		}
	}
	return c.Next(ctx)
}

// Queue puts a command into the buffer, and sends what has no room there. Next returns the replies in turn. Read some
// before very many commands are queued: a server whose replies are not read stops reading commands (see Pipeline).
//
// An extension needs an earlier call of Capabilities. Without it the error is a LacksError; that and ErrLine leave the
// connection as it was. After any other error it is useless, and the command was not sent as a whole.
func (c *Conn) Queue(ctx context.Context, line string, body []byte) error {
	for _, name := range extensionsIn(line) {
		if !c.caps.Has(name) {
			return &LacksError{name}
		}
	}
	word, _, _ := strings.Cut(line, " ")
	return c.enqueue(ctx, word, line, body)
}

func (c *Conn) enqueue(ctx context.Context, word, line string, body []byte) error {
	if c.err != nil {
		return c.err
	}
	if len(line) > MaxLine || strings.ContainsAny(line, "\r\n\x00") {
		return fmt.Errorf("%s: %w", word, ErrLine)
	}
	s := sent{word: word}
	if word == "use" {
		s.tube = strings.TrimPrefix(line, "use ")
	}
	c.pending = append(c.pending, s)
	if c.out.Available() >= len(line)+len(body)+2*len(crlf) { // nothing is sent yet
		return c.write(line, body)
	}
	release := c.within(ctx)
	return c.fail(ctx, release, "sending", c.write(line, body))
}

const crlf = "\r\n"

// write puts a command into the buffer, and sends what has no room there.
func (c *Conn) write(line string, body []byte) error {
	_, _ = c.out.WriteString(line) // its error comes again at the next write
	_, err := c.out.WriteString(crlf)
	if body != nil {
		_, _ = c.out.Write(body)
		_, err = c.out.WriteString(crlf)
	}
	return err
}

// Flush sends what was queued.
func (c *Conn) Flush(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	if c.out.Buffered() == 0 {
		return nil
	}
	release := c.within(ctx)
	err := c.out.Flush()
	return c.fail(ctx, release, "sending", err)
}

// within makes reads and writes end when ctx ends, until release is called.
func (c *Conn) within(ctx context.Context) (release func()) {
	c.ctx = ctx
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended // or its deadline would hit the next command
		}
		c.ctx = context.Background()
	}
}

// fail ends what within began, and makes err, if there is one, the end of the connection.
func (c *Conn) fail(ctx context.Context, release func(), doing string, err error) error {
	release()
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		err = ended
	} else if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		err = context.DeadlineExceeded // the connection's clock was earlier than the context's
	}
	c.err = &ConnError{c.addr, fmt.Errorf("%s: %w", doing, err)}
	return c.err
}
