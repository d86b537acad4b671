package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"trellis/cmd/internal/client"
)

const (
	// putAgain is how far a cron goes back when it starts, or has found its server again.
	putAgain = time.Hour

	// keepFor is how long a tombstone tells that a job was there. It is longer than putAgain by what the clocks
	// of two hosts may differ.
	keepFor = 2 * putAgain

	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// A Clock is the time. It is not asked by two goroutines at once.
type Clock interface {
	Now() time.Time
	// Wait returns at that time, or earlier, or when ctx has ended.
	Wait(ctx context.Context, until time.Time)
}

// SystemClock is the time of the system. It looks at it at least each minute, since it may be set.
type SystemClock struct{}

// Now implements [Clock].
func (SystemClock) Now() time.Time { return time.Now().Round(0) }

// Wait implements [Clock].
func (SystemClock) Wait(ctx context.Context, until time.Time) {
	select {
	case <-time.After(min(time.Until(until), time.Minute)):
	case <-ctx.Done():
	}
}

// Config says what a cron does. All fields have to be set.
type Config struct {
	Entries []Entry
	Dial    func(context.Context) (*client.Conn, error) // connects to the server, and authenticates
	Clock   Clock
	Log     io.Writer
}

// A cron is a call of Run.
type cron struct {
	Config
	putUntil time.Time // up to here everything was put
}

// Run puts jobs until ctx ends. It returns an error if the first connection fails, if the server lacks unique keys,
// and if the client may not use a tube or put. A server that goes away is waited for.
func Run(ctx context.Context, cfg Config) error {
	c, err := cfg.Dial(ctx)
	if err != nil {
		return err
	}
	k := &cron{Config: cfg, putUntil: cfg.Clock.Now().Add(-putAgain).Truncate(time.Minute)}
	for wait := reconnectMin; ; wait = min(2*wait, reconnectMax) {
		if err == nil {
			before := k.putUntil
			err = k.serve(ctx, c)
			c.Close()
			if k.putUntil.After(before) {
				wait = reconnectMin
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		lacks, refused := (*client.LacksError)(nil), (*client.RefusedError)(nil)
		if errors.As(err, &lacks) || errors.As(err, &refused) && refused.Reply == "UNKNOWN_COMMAND" {
			return err
		}
		k.printf("%v; trying again", err)
		k.Clock.Wait(ctx, k.Clock.Now().Add(wait/2+rand.N(wait/2)))
		if ctx.Err() != nil {
			return nil
		}
		c, err = cfg.Dial(ctx)
	}
}

// serve puts what is due, again and again, until the connection fails or ctx ends.
func (k *cron) serve(ctx context.Context, c *client.Conn) error {
	if err := k.check(ctx, c); err != nil {
		return err
	}
	for ctx.Err() == nil {
		now := k.Clock.Now()
		if first := now.Add(-putAgain).Truncate(time.Minute); k.putUntil.Before(first) {
			k.printf("nothing was put for the times from %v to %v",
				k.putUntil.Add(time.Minute).UTC().Format(time.RFC3339), first.UTC().Format(time.RFC3339))
			k.putUntil = first
		}
		for next := k.putUntil.Add(time.Minute); !next.After(now); next = next.Add(time.Minute) {
			if err := k.putAll(ctx, c, next); err != nil {
				return err
			}
			k.putUntil = next
		}
		k.Clock.Wait(ctx, k.putUntil.Add(time.Minute))
	}
	return nil
}

// check fails if what the entries need will be refused, which would come to light in the night only.
func (k *cron) check(ctx context.Context, c *client.Conn) error {
	if has, err := c.Has(ctx, "idp"); err != nil || !has {
		return cmp.Or(err, error(&client.LacksError{Command: "idp"}))
	}
	for i := range k.Entries {
		if err := c.Use(ctx, k.Entries[i].Tube); err != nil {
			return err
		}
	}
	return nil
}

// putAll puts the jobs of all entries that fire at t.
func (k *cron) putAll(ctx context.Context, c *client.Conn, t time.Time) error {
	for i := range k.Entries {
		e := &k.Entries[i]
		if !e.schedule.fires(t.In(e.zone)) {
			continue
		}
		if err := k.put(ctx, c, e, t); err != nil {
			return err
		}
	}
	return nil
}

// put puts a job. It returns an error if that is to be tried again.
func (k *cron) put(ctx context.Context, c *client.Conn, e *Entry, t time.Time) error {
	at := t.In(e.zone).Format(time.RFC3339)
	err := c.Use(ctx, e.Tube)
	var put client.Inserted
	if err == nil {
		put, err = c.Put(ctx, e.job(t))
	}
	refused := (*client.RefusedError)(nil)
	switch {
	case err == nil && put.Duplicate != "":
		k.printf("line %d, %s: job %d of tube %s was there", e.Line, at, put.ID, e.Tube)
	case err == nil:
		k.printf("line %d, %s: job %d put into tube %s", e.Line, at, put.ID, e.Tube)
	case errors.As(err, &refused) && hopeless[refused.Reply]:
		k.printf("line %d, %s: nothing was put: %v", e.Line, at, err)
		return nil
	}
	return err
}

// hopeless are the replies to a put that would come again.
var hopeless = map[string]bool{"BAD_FORMAT": true, "JOB_TOO_BIG": true}

func (k *cron) printf(format string, args ...any) {
	fmt.Fprintf(k.Log, "trellis: "+format+"\n", args...)
}
