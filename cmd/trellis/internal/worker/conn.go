package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"trellis/cmd/internal/client"
)

// A conn is a slot's connection, which watches the tubes. It belongs to the goroutine of its slot,
// apart from what observe does.
type conn struct {
	*client.Conn
	nc net.Conn
}

// connect connects and watches the tubes, and no other.
func connect(ctx context.Context, cfg *Config) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	nc, err := cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{client.New(nc, cfg.Addr), nc}
	if cfg.Token != "" {
		err = c.Auth(ctx, cfg.Token)
	}
	if err == nil {
		err = c.subscribe(ctx, cfg)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *conn) subscribe(ctx context.Context, cfg *Config) error {
	ignored := "default"
	for _, t := range cfg.Tubes {
		var err error
		if t.Weight == 0 {
			err = c.Watch(ctx, t.Name)
		} else {
			err = c.WatchWeight(ctx, t.Name, t.Weight)
		}
		if err != nil {
			return err
		}
		if t.Name == ignored {
			ignored = ""
		}
	}
	if ignored != "" {
		if err := c.Ignore(ctx, ignored); err != nil {
			return err
		}
	}
	if cfg.Mode == "" {
		return nil
	}
	return c.ReserveMode(ctx, cfg.Mode)
}

// observe reads from the connection while no reply is due. The channel is closed when the connection ends, and
// when something comes that nobody has asked for. The connection must not be used before stop has returned, nor
// after stop has returned an error.
func (c *conn) observe() (ended <-chan struct{}, stop func() error) {
	_ = c.nc.SetReadDeadline(time.Time{})
	read := make(chan struct{})
	var err error // to be read after read
	go func() {
		defer close(read)
		if _, err = c.nc.Read(make([]byte, 1)); err == nil {
			err = errors.New("a reply to nothing")
		}
	}()
	return read, func() error {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-read
		_ = c.nc.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return &client.ConnError{Addr: c.Addr(), Err: err}
	}
}

// A reservation is a job that a slot has reserved.
type reservation struct {
	client.Job
	stats client.Fields
}

// reserve waits for a job. The error is client.ErrNotFound when none came within reserveFor, or when the job was
// deleted before its statistics were asked for.
func (c *conn) reserve(ctx context.Context, timeout time.Duration) (*reservation, error) {
	bounded, cancel := context.WithTimeout(ctx, reserveFor+timeout)
	defer cancel()
	job, err := c.Reserve(bounded, uint32(reserveFor/time.Second))
	if err != nil {
		return nil, err
	}
	stats, err := c.StatsJob(bounded, job.ID)
	if err != nil {
		return nil, fmt.Errorf("job %d: %w", job.ID, err)
	}
	return &reservation{job, stats}, nil
}
