package client

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Capabilities are what a server can do that beanstalkd cannot. The zero value is that of
// a stock server.
type Capabilities struct {
	Version    string
	MaxJobSize uint64   // bytes; 0 if the server does not tell
	Extensions []string // commands, and "idp" and "con" for the tags of put
}

// Has tells whether the server has an extension. A nil c, of a server not asked yet, has none.
func (c *Capabilities) Has(name string) bool {
	return c != nil && slices.Contains(c.Extensions, name)
}

// Capabilities asks the server what it can do. It asks once only.
func (c *Conn) Capabilities(ctx context.Context) (Capabilities, error) {
	if c.caps != nil {
		return *c.caps, nil
	}
	if err := c.enqueue(ctx, "capabilities", "capabilities", nil); err != nil {
		return Capabilities{}, err
	}
	r, err := c.roundTrip(ctx)
	if err != nil {
		return Capabilities{}, err
	}
	caps := Capabilities{}
	switch r.Word {
	case "OK":
		if caps, err = parseCapabilities(r.Body); err != nil {
			return caps, c.broken("capabilities: %v", err)
		}
	case "UNKNOWN_COMMAND":
		if err := c.checkServed(ctx); err != nil {
			return caps, err
		}
	default:
		return caps, &RefusedError{"capabilities", r.Line()}
	}
	c.caps = &caps
	return caps, nil
}

// checkServed tells a stock server from one that wants a token first, by a command that
// every other client may use. For the latter the error is ErrToken.
func (c *Conn) checkServed(ctx context.Context) error {
	if err := c.enqueue(ctx, "list-tube-used", "list-tube-used", nil); err != nil {
		return err
	}
	r, err := c.roundTrip(ctx)
	if ctx.Err() == nil && (err != nil && !errors.Is(err, context.DeadlineExceeded) || r.Word == "UNKNOWN_COMMAND") {
		return ErrToken
	}
	return err
}

// Has asks the server whether it has an extension.
func (c *Conn) Has(ctx context.Context, extension string) (bool, error) {
	caps, err := c.Capabilities(ctx)
	return caps.Has(extension), err
}

// stock are the commands that are sent without asking whether the server has them. Auth is
// not among them: Conn.Auth sends it by itself, before anything else.
var stock = func() map[string]bool {
	m := make(map[string]bool)
	for word := range strings.FieldsSeq(`put use reserve reserve-with-timeout reserve-job delete release bury touch watch ignore
		peek peek-ready peek-delayed peek-buried kick kick-job stats-job stats-tube stats list-tubes list-tube-used
		list-tubes-watched quit pause-tube capabilities`) {
		m[word] = true
	}
	return m
}()

// putWords is how many words a put without tags has.
const putWords = 5

// extensionsIn names the extensions that a line uses.
func extensionsIn(line string) (names []string) {
	words := strings.Fields(line)
	if len(words) == 0 || !stock[words[0]] {
		word, _, _ := strings.Cut(line, " ")
		return []string{word}
	}
	if words[0] == "put" && len(words) > putWords {
		for _, tag := range words[putWords:] {
			name, _, _ := strings.Cut(tag, ":")
			names = append(names, name)
		}
	}
	return names
}
