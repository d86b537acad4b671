package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"trellis/bench"
)

// A Drain takes the jobs out of a server that loads before it have left there.
type Drain struct {
	depth  int
	bodies *bodies
	conns  []*control
}

// NewDrain connects to a server. Each of cfg.Conns connections watches all tubes of loads that there are, and will have
// cfg.Depth reserves in flight, at most 128, and then as many deletes. The jobs were put with cfg.Size and cfg.Seed.
func NewDrain(cfg *bench.Config) (*Drain, error) {
	d := &Drain{depth: cfg.Depth, bodies: newBodies(cfg.Size, cfg.Seed)}
	for range cfg.Conns {
		c, err := dialControl(&cfg.Addr, cfg.Token, controlTimeout)
		if err == nil {
			d.conns = append(d.conns, c)
			err = c.watchLoads()
		}
		if err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// watchLoads watches all tubes of loads and no others.
func (c *control) watchLoads() error {
	r, err := c.ask("list-tubes", replyOK)
	if err != nil {
		return err
	}
	var tubes []string
	for line := range strings.Lines(string(r.body)) {
		if tube := strings.TrimPrefix(strings.TrimSpace(line), "- "); strings.HasPrefix(tube, tubesOfLoads) {
			tubes = append(tubes, tube)
		}
	}
	if len(tubes) == 0 {
		return errors.New("no load has left a tube")
	}
	return c.watchOnly(tubes)
}

func (d *Drain) close() {
	for _, c := range d.conns {
		_ = c.Close()
	}
}

// Run takes out all jobs that are ready, closes the connections, and returns how many jobs there were. It fails if one
// has not the body that it was put with, or comes twice. When ctx ends, it fails too.
func (d *Drain) Run(ctx context.Context) (jobs int, err error) {
	stop := context.AfterFunc(ctx, d.close)
	defer stop()
	defer d.close()
	taken, failed := make([][]uint64, len(d.conns)), make([]error, len(d.conns))
	var all sync.WaitGroup
	for i, c := range d.conns {
		all.Go(func() { taken[i], failed[i] = d.take(c) })
	}
	all.Wait()
	ids := slices.Concat(taken...)
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n < len(ids) {
		return 0, fmt.Errorf("%d of %d jobs came twice", len(ids)-n, len(ids))
	}
	return len(ids), errors.Join(failed...)
}

// take takes out what a connection gets, until it gets nothing.
func (d *Drain) take(c *control) (all []uint64, err error) {
	for {
		before := len(all)
		err := c.pipeline(d.depth, func(b []byte, _ int) []byte {
			return append(b, "reserve-with-timeout 0\r\n"...)
		}, func(_ int, r *reply) error {
			switch _, intact := d.bodies.check(r.body); {
			case r.kind == replyTimedOut:
				return nil
			case r.kind != replyReserved:
				return fmt.Errorf("reserve: the server answered %q", r.line)
			case !intact:
				return fmt.Errorf("the body of job %d (%d bytes) is not the one that was put", r.id, len(r.body))
			}
			all = append(all, r.id)
			return nil
		})
		if err != nil || len(all) == before {
			return all, err
		}
		err = c.eachJob("delete ", all[before:], func(id uint64, r *reply) {
			if r.kind != replyDeleted {
				err = fmt.Errorf("delete %d: the server answered %q", id, r.line)
			}
		})
		if err != nil {
			return all, err
		}
	}
}
