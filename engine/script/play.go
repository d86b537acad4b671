package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Play plays a case against a target with these tags. The error tells the first
// thing that the server did otherwise than the script says, with the line.
func Play(c Case, target Target, tags ...string) error {
	p := player{target: target, tags: tags, conns: map[string]*playedConn{}}
	defer p.stop()
	for i := range c.steps {
		s := &c.steps[i]
		if !s.marks.hold(tags) {
			continue
		}
		if err := p.play(s); err != nil {
			return fmt.Errorf("%s: %s: %w", s.where, s.source, err)
		}
	}
	if err := p.leftOver(); err != nil {
		return fmt.Errorf("at the end of %s: %w", c.Name, err)
	}
	return nil
}

// A player is a case being played.
type player struct {
	target  Target
	tags    []string
	options []string
	clients []Client
	server  Server // nil until the first step that needs it
	conns   map[string]*playedConn
	left    bool // a client has closed its connection, which nothing confirms
}

type playedConn struct {
	Conn
	got       []byte // received and not yet asked for
	unsettled bool   // something was sent or closed and no reply has confirmed it
	gone      bool   // closed by the client, or seen closed by the server
}

func (p *player) stop() {
	for _, c := range p.conns {
		if !c.gone {
			_ = c.Close()
		}
	}
	if p.server != nil {
		p.server.Stop()
	}
}

func (p *player) play(s *step) error {
	if s.verb == verbServer {
		if p.server != nil {
			return errors.New("the server has been started already")
		}
		p.options = append(p.options, s.options...)
		return nil
	}
	if s.verb == verbClient {
		if p.server != nil {
			return errors.New("the server has been started already")
		}
		p.clients = append(p.clients, s.client)
		return nil
	}
	if err := p.start(); err != nil {
		return err
	}
	switch s.verb {
	case verbOpenAs:
		return p.open(s.conn, s.as)
	case verbWait:
		p.server.Wait(s.duration)
		p.settled()
		return nil
	case verbDrain:
		// A server that has not served anybody may not be ready for a signal.
		if len(p.conns) == 0 {
			return errors.New("no connection has been opened before")
		}
		p.settle(nil)
		return p.server.Drain(s.on)
	case verbRestart:
		return p.restart()
	}
	if p.conns[s.conn] == nil {
		if err := p.open(s.conn, ""); err != nil {
			return err
		}
	}
	c := p.conns[s.conn]
	switch s.verb {
	case verbSend:
		p.settle(c)
		c.unsettled = true
		return c.Send(s.send)
	case verbReceive:
		return p.receive(c, s)
	case verbNothing:
		return p.nothing(c)
	case verbQuery:
		p.settle(c)
		return p.query(c, s)
	case verbHalfClose:
		p.settle(c)
		c.unsettled = true
		return c.HalfClose()
	case verbClose:
		p.settle(c)
		c.unsettled = true
		c.gone = true
		p.left = true
		return c.Close()
	case verbClosed:
		return c.closed()
	}
	return nil
}

func (p *player) start() (err error) {
	if p.server == nil {
		p.server, err = p.target.Start(p.clients, p.options...)
	}
	if err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	return nil
}

// restart ends the server and all connections, and starts it on its log.
func (p *player) restart() error {
	r, ok := p.server.(Restarter)
	if !ok {
		return errors.New("the server cannot be started again")
	}
	p.settle(nil)
	if err := p.leftOver(); err != nil {
		return err
	}
	clear(p.conns)
	return r.Restart()
}

// open opens a connection, of a client with some rights unless its name is "".
func (p *player) open(name, client string) error {
	if p.conns[name] != nil {
		return errors.New("the connection is open already")
	}
	p.settle(nil)
	c, err := p.server.Open(client)
	if err != nil {
		return fmt.Errorf("opening a connection: %w", err)
	}
	p.conns[name] = &playedConn{Conn: c}
	return nil
}

// settle makes sure that what other connections than c have sent is handled
// before what comes next. On one connection the order is certain anyway.
func (p *player) settle(c *playedConn) {
	for _, other := range p.conns {
		if other != c && other.unsettled {
			p.server.Settle()
			p.settled()
			return
		}
	}
}

func (p *player) settled() {
	for _, c := range p.conns {
		c.unsettled = false
	}
}

func (p *player) receive(c *playedConn, s *step) error {
	want, err := s.expected(p.tags, false)
	if err != nil {
		return err
	}
	for {
		switch v, n := want.compare(c.got); v {
		case match:
			c.got = c.got[n:]
			c.unsettled = false
			return nil
		case mismatch:
			if n == 0 {
				return fmt.Errorf("received %s", quote(c.got))
			}
			return fmt.Errorf("received %s\nwhich differs from %s", quote(c.got), quote(c.got[n:]))
		}
		if err := c.more(); err != nil {
			return fmt.Errorf("received only %s: %w", quote(c.got), err)
		}
	}
}

func (p *player) nothing(c *playedConn) error {
	b, err := c.Pending()
	c.got = append(c.got, b...)
	if err != nil {
		return err
	}
	if len(c.got) > 0 {
		return fmt.Errorf("received %s", quote(c.got))
	}
	p.settled()
	return nil
}

func (p *player) leftOver() error {
	for name, c := range p.conns {
		if !c.gone {
			b, err := c.Pending()
			c.got = append(c.got, b...)
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("conn %s: %w", name, err)
			}
		}
		if len(c.got) > 0 {
			return fmt.Errorf("conn %s: received more than asked for: %s", name, quote(c.got))
		}
	}
	return nil
}

// more receives at least one byte.
func (c *playedConn) more() error {
	b, err := c.Receive()
	c.got = append(c.got, b...)
	return err
}

func (c *playedConn) closed() error {
	err := c.more()
	if len(c.got) > 0 {
		return fmt.Errorf("received %s", quote(c.got))
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("not closed: %w", err)
	}
	c.gone = true
	c.unsettled = false
	return c.Close()
}

// queries is how often a query is sent while a server may not have noticed yet that a
// client has closed its connection.
const queries = 300

// query sends a command and looks the fields up in the dictionary it returns.
func (p *player) query(c *playedConn, s *step) error {
	for n := 1; ; n++ {
		err := c.query(s)
		if !errors.Is(err, errNotSo) || !p.left || n == queries {
			return err
		}
		p.server.Settle()
	}
}

// errNotSo is a field that has another value than the script says.
var errNotSo = errors.New("not so")

func (c *playedConn) query(s *step) error {
	if len(c.got) > 0 {
		return fmt.Errorf("received before: %s", quote(c.got))
	}
	if err := c.Send(s.send); err != nil {
		return err
	}
	data, err := c.dictionary()
	if err != nil {
		return err
	}
	c.unsettled = false
	for _, f := range s.fields {
		_, after, ok := bytes.Cut(data, []byte("\n"+f.key+": "))
		value, _, _ := bytes.Cut(after, []byte("\n"))
		value = append(slices.Clone(bytes.Trim(value, `"`)), '\n')
		if v, n := f.value.compare(value); !ok || v != match || n != len(value) {
			return fmt.Errorf("%s is %w in\n%s", f.key, errNotSo, data)
		}
	}
	return nil
}

// dictionary receives an OK reply and returns its data.
func (c *playedConn) dictionary() ([]byte, error) {
	for {
		line, rest, ok := bytes.Cut(c.got, []byte("\r\n"))
		if ok {
			count, isOK := strings.CutPrefix(string(line), "OK ")
			size, err := strconv.Atoi(count)
			if !isOK || err != nil {
				return nil, fmt.Errorf("received %s", quote(c.got))
			}
			if len(rest) >= size+len("\r\n") {
				data := rest[:size]
				c.got = rest[size+len("\r\n"):]
				if !bytes.HasPrefix(data, []byte("---\n")) || !bytes.HasPrefix(rest[size:], []byte("\r\n")) {
					return nil, fmt.Errorf("not a framed dictionary: %s", quote(rest))
				}
				return data, nil
			}
		}
		if err := c.more(); err != nil {
			return nil, fmt.Errorf("received only %s: %w", quote(c.got), err)
		}
	}
}
