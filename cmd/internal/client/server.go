package client

import (
	"context"
	"fmt"
)

// Stats are those of the server. The field id is text.
func (c *Conn) Stats(ctx context.Context) (Fields, error) {
	return fetch(c, ctx, "stats", parseStats)
}

// fetch does a command whose reply has a body.
func fetch[T any](c *Conn, ctx context.Context, line string, parse func([]byte) (T, error)) (v T, err error) {
	r, err := c.call(ctx, "OK", line)
	if err != nil {
		return v, err
	}
	if v, err = parse(r.Body); err != nil {
		return v, c.broken("%v", err)
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

// Drain has the server take no new jobs. Needs the extension drain.
func (c *Conn) Drain(ctx context.Context) error {
	_, err := c.call(ctx, "DRAINING", "drain")
	return err
}

// Undrain has the server take new jobs again. Needs the extension undrain.
func (c *Conn) Undrain(ctx context.Context) error {
	_, err := c.call(ctx, "NOT_DRAINING", "undrain")
	return err
}

// Connections lists at most limit connections whose ids are above after, by id. The server
// may list fewer: at most 10,000, and of more than 1000 what fits into 4 MiB. Needs the
// extension list-connections.
func (c *Conn) Connections(ctx context.Context, limit, after uint64) ([]Fields, error) {
	return c.page(ctx, fmt.Sprintf("list-connections %d %d", limit, after), limit)
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
