package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Stats are those of the server. The field id is text.
func (c *Conn) Stats(ctx context.Context) (Fields, error) {
	return fetch(c, ctx, "stats", parseStats)
}

// fetch does a command whose reply has a body.
func fetch[T any](c *Conn, ctx context.Context, line string, parse func([]byte) (T, error)) (v T, err error) {
	r, err := c.Do(ctx, line, nil)
	if err != nil {
		return v, err
	}
	word, _, _ := strings.Cut(line, " ")
	return understand(c, word, &r, parse)
}

// understand parses the body of a good reply.
func understand[T any](c *Conn, command string, r *Reply, parse func([]byte) (T, error)) (v T, err error) {
	if err := r.Check(command, "OK"); err != nil {
		return v, err
	}
	if v, err = parse(r.Body); err != nil {
		return v, c.broken("%s: %v", command, err)
	}
	return v, nil
}

// page does a command that lists at most limit entries.
func (c *Conn) page(ctx context.Context, line string, limit uint64) ([]Fields, error) {
	entries, err := fetch(c, ctx, line, parseEntries)
	if err == nil && uint64(len(entries)) > limit {
		return nil, c.broken("%d entries to %q", len(entries), line)
	}
	return entries, err
}

// Drain begins drain mode: the server refuses new jobs. Needs the extension drain.
func (c *Conn) Drain(ctx context.Context) error {
	_, err := c.call(ctx, "DRAINING", "drain")
	return err
}

// Undrain ends drain mode. Needs the extension undrain.
func (c *Conn) Undrain(ctx context.Context) error {
	_, err := c.call(ctx, "NOT_DRAINING", "undrain")
	return err
}

// Reload asks the server to load its files again, and returns for each group of them what came of
// it. Needs the extension reload.
func (c *Conn) Reload(ctx context.Context) ([]Fields, error) {
	return fetch(c, ctx, "reload", parseEntries)
}

// Connections lists at most limit connections whose ids are above after, by id. The server
// may list fewer: at most 10,000, and of more than 1000 what fits into 4 MiB. Needs the
// extension list-connections.
func (c *Conn) Connections(ctx context.Context, limit, after uint64) ([]Fields, error) {
	return c.page(ctx, fmt.Sprintf("list-connections %d %d", limit, after), limit)
}

// KickConnection ends a connection. What it had reserved is ready again. Needs the extension
// kick-connection. The error is ErrNotFound if there is no such connection.
func (c *Conn) KickConnection(ctx context.Context, id uint64) error {
	_, err := c.call(ctx, "KICKED", fmt.Sprintf("kick-connection %d", id))
	return err
}

// SetDeadLetters has jobs of a tube whose reservations have ended max times by release or
// time-out buried in the tube dead; max 0 ends that. Needs the extension set-dlq.
func (c *Conn) SetDeadLetters(ctx context.Context, tube string, max uint32, dead string) error {
	_, err := c.call(ctx, "DLQ_SET", fmt.Sprintf("set-dlq %s %d %s", tube, max, dead))
	return err
}

// DeadLetters lists what SetDeadLetters has set: tube, max-attempts, dead-tube. Needs the
// extension list-dlq.
func (c *Conn) DeadLetters(ctx context.Context) ([]Fields, error) {
	return fetch(c, ctx, "list-dlq", parseEntries)
}

// SetTube changes keys of a tube's setting, as set-tube does, by pairs such as "retry-min=5", or by
// "none" alone. Needs the extension set-tube.
func (c *Conn) SetTube(ctx context.Context, tube string, pairs ...string) error {
	_, err := c.call(ctx, "TUBE_SET", "set-tube "+tube+" "+strings.Join(pairs, " "))
	return err
}

// Settings lists the settings of all tubes: tube, and the keys of set-tube. Needs the extension
// list-settings.
func (c *Conn) Settings(ctx context.Context) ([]Fields, error) {
	return fetch(c, ctx, "list-settings", parseEntries)
}

// Setting is the entry of Settings of one tube, nil if it has none. Needs the extension list-settings.
func (c *Conn) Setting(ctx context.Context, tube string) (Fields, error) {
	entries, err := fetch(c, ctx, "list-settings "+tube, parseEntries)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return entries[0], nil
}

// Accounts lists the accounts that the client may see: name, patterns of tubes, jobs, max-jobs,
// refused-jobs, and so for memory, tubes, keys and connections; rate, rate-waits. A limit of 0
// is none. Needs the extension list-accounts.
func (c *Conn) Accounts(ctx context.Context) ([]Fields, error) {
	return fetch(c, ctx, "list-accounts", parseEntries)
}

// StatsGroup are the counts of a group of jobs: name, pending, buried, complete, waiting-jobs. Needs
// the extension stats-group. The error is ErrNotFound if no job is in it and none waits for it.
func (c *Conn) StatsGroup(ctx context.Context, name string) (Fields, error) {
	return fetch(c, ctx, "stats-group "+name, parseFields)
}

// Capabilities are what a server can do that beanstalkd cannot. The zero value is that of
// a stock server.
type Capabilities struct {
	Version    string
	MaxJobSize uint64   // bytes; 0 if the server does not tell
	Extensions []string // commands, and "idp" and "con" for the tags of put
}

// Has reports whether the server has an extension. A nil c, of a server not asked yet, has none.
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
	for word := range strings.FieldsSeq(`put use reserve reserve-with-timeout reserve-job
		delete release bury touch watch ignore peek peek-ready peek-delayed peek-buried
		kick kick-job stats-job stats-tube stats list-tubes list-tube-used
		list-tubes-watched quit pause-tube capabilities`) {
		m[word] = true
	}
	return m
}()

// The words that stock commands have, at most.
const (
	putWords   = 5
	watchWords = 2
)

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
	if words[0] == "watch" && len(words) > watchWords {
		names = append(names, "watch-weight")
	}
	return names
}
