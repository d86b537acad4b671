package client

import (
	"context"
	"errors"
	"fmt"

	"trellis/codec"
)

const maxTubeName = 200

// CheckTube tells what is wrong with a name of a tube. Servers refuse such names, or take
// a part of them for something else.
func CheckTube(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a tube needs a name")
	case len(name) > maxTubeName:
		return fmt.Errorf("the name of a tube has at most %d bytes, this one %d", maxTubeName, len(name))
	case !codec.ValidTubeName([]byte(name)):
		return fmt.Errorf("%q cannot be the name of a tube, which has letters, digits and -+/;.$_(), "+
			"and does not begin with -", name)
	}
	return nil
}

// CheckGroup reports whether a group of jobs may have that name.
func CheckGroup(name string) error {
	const most = 64
	if len(name) > most {
		return fmt.Errorf("the name of a group has at most %d bytes, this one %d", most, len(name))
	}
	if CheckTube(name) != nil {
		return fmt.Errorf("%q cannot be the name of a group, which has letters, digits and -+/;.$_(), "+
			"and does not begin with -", name)
	}
	return nil
}

// Tubes are the names of all tubes that the client may see.
func (c *Conn) Tubes(ctx context.Context) ([]string, error) {
	return fetch(c, ctx, "list-tubes", parseNames)
}

// StatsTube are statistics of a tube.
func (c *Conn) StatsTube(ctx context.Context, tube string) (Fields, error) {
	return fetch(c, ctx, "stats-tube "+tube, parseFields)
}

// StatsTubeX are statistics of a tube with what beanstalkd does not count, such as limited-by. Needs the extension
// stats-tube-x.
func (c *Conn) StatsTubeX(ctx context.Context, tube string) (Fields, error) {
	return fetch(c, ctx, "stats-tube-x "+tube, parseFields)
}

// StatsTubes are statistics of many tubes, in the order of the names. Those of a tube that
// does not exist (any more) are nil.
func (c *Conn) StatsTubes(ctx context.Context, tubes []string) ([]Fields, error) {
	return statsEach(ctx, c, "stats-tube", tubes)
}

// StatsTubesX are those of StatsTubeX, of many tubes as StatsTubes has them.
func (c *Conn) StatsTubesX(ctx context.Context, tubes []string) ([]Fields, error) {
	return statsEach(ctx, c, "stats-tube-x", tubes)
}

// statsEach are the answers to a command about each of many things; nil for one that does not exist (any more).
func statsEach[T string | uint64](ctx context.Context, c *Conn, command string, of []T) ([]Fields, error) {
	all := make([]Fields, len(of))
	err := c.Pipeline(ctx, len(of), func(i int) Command { return Command{Line: fmt.Sprint(command, " ", of[i])} },
		func(i int, r Reply) (err error) {
			all[i], err = c.FieldsOf(command, r)
			return err
		})
	return all, err
}

// MaxStatsTubes is how many tubes a server tells of at most in one answer to stats-tubes.
const MaxStatsTubes = 1000

// FieldsOf understands the reply to stats, or to stats of a thing: statistics, nil for NOT_FOUND.
func (c *Conn) FieldsOf(command string, r Reply) (Fields, error) {
	f, err := understand(c, command, &r, parseFields)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return f, err
}

// Use makes a tube the one that later puts go into. The tube exists while it is used.
func (c *Conn) Use(ctx context.Context, tube string) error {
	if tube == c.usedTube {
		return nil
	}
	_, err := c.call(ctx, "USING", "use "+tube)
	return err
}

// using calls do while tube is the used one, for commands that work on the used tube. It
// fails if there is no such tube, since use would make it, and afterwards uses the former
// tube again, so that this one can go.
func (c *Conn) using(ctx context.Context, tube string, do func() error) error {
	if tube == c.usedTube {
		return do()
	}
	if _, err := c.StatsTube(ctx, tube); err != nil {
		return err
	}
	before := c.usedTube
	if err := c.Use(ctx, tube); err != nil {
		return err
	}
	return errors.Join(do(), c.Use(ctx, before))
}

// PeekTube is the first job of a tube in a state. In the state reserved it needs the
// extension peek-tube.
func (c *Conn) PeekTube(ctx context.Context, tube string, state State) (j Job, err error) {
	has, err := c.Has(ctx, "peek-tube")
	switch {
	case err != nil:
		return j, err
	case has:
		return c.job(ctx, "FOUND", fmt.Sprintf("peek-tube %s %s", tube, state))
	case state == Reserved:
		return j, &LacksError{"peek-tube"}
	}
	err = c.using(ctx, tube, func() error {
		j, err = c.job(ctx, "FOUND", "peek-"+string(state))
		return err
	})
	return j, err
}

// KickTube makes at most bound buried jobs of a tube ready, or, if it has none, delayed ones.
func (c *Conn) KickTube(ctx context.Context, tube string, bound uint32) (n uint64, err error) {
	has, err := c.Has(ctx, "kick-tube")
	switch {
	case err != nil:
		return 0, err
	case has:
		return c.count(ctx, "KICKED", fmt.Sprintf("kick-tube %s %d", tube, bound))
	}
	err = c.using(ctx, tube, func() error {
		n, err = c.count(ctx, "KICKED", fmt.Sprintf("kick %d", bound))
		return err
	})
	return n, err
}

// Pause has a tube hand out no jobs for so many seconds; 0 ends that.
func (c *Conn) Pause(ctx context.Context, tube string, seconds uint32) error {
	_, err := c.call(ctx, "PAUSED", fmt.Sprintf("pause-tube %s %d", tube, seconds))
	return err
}

// MoveTube moves at most bound jobs of a tube that are in a state, the first ones first, to
// another tube. The state cannot be reserved. Needs the extension move-tube.
func (c *Conn) MoveTube(ctx context.Context, from string, state State, to string, bound uint32) (uint64, error) {
	return c.count(ctx, "MOVED", fmt.Sprintf("move-tube %s %s %s %d", from, state, to, bound))
}

// DeleteTubeJobs deletes at most bound jobs of a tube that are in a state, the first ones
// first. Needs the extension delete-tube-jobs.
func (c *Conn) DeleteTubeJobs(ctx context.Context, tube string, state State, bound uint32) (uint64, error) {
	return c.count(ctx, "DELETED", fmt.Sprintf("delete-tube-jobs %s %s %d", tube, state, bound))
}

// FlushTube deletes all jobs of a tube, whoever has reserved them. Needs the extension
// flush-tube.
func (c *Conn) FlushTube(ctx context.Context, tube string) (uint64, error) {
	return c.count(ctx, "FLUSHED", "flush-tube "+tube)
}

// MaxListJobs is how many jobs a server lists at most at once.
const MaxListJobs = 10_000

// ListJobs lists at most limit jobs of a tube that are in a state, in the order in which
// they would be taken (reserved ones by id): id, pri, age, size, and time-left of delayed
// and reserved ones. After is the last id of the page before, 0 for the first one. The server
// knows where that was if it was this connection's last list, even if the job has gone; if it
// does not know, the error is ErrNotFound. Needs the extension list-jobs.
func (c *Conn) ListJobs(ctx context.Context, tube string, state State, limit uint32, after uint64) ([]Fields, error) {
	line := fmt.Sprintf("list-jobs %s %s %d", tube, state, limit)
	if after != 0 {
		line = fmt.Sprintf("%s %d", line, after)
	}
	return c.page(ctx, line, uint64(limit))
}

// EntriesOf understands the reply to list-jobs or stats-tubes: statistics of each job or tube.
func (c *Conn) EntriesOf(command string, r Reply) ([]Fields, error) {
	return understand(c, command, &r, parseEntries)
}

// NamesOf understands the reply to list-tubes.
func (c *Conn) NamesOf(command string, r Reply) ([]string, error) {
	return understand(c, command, &r, parseNames)
}
