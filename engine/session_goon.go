package engine

import (
	"errors"
	"fmt"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/weights"
)

// Interests are what a client has asked for in its session, besides jobs.
type Interests struct {
	Used    string
	Watched []string // in their order
	Weights []uint16 // of those; nil if the client has given none
	Mode    codec.Mode
	Info    bool // it is told more of each job that it reserves
	Abort   bool // its waits for a job end when it sends more
}

// errInterests tells of interests that no session can have.
var errInterests = errors.New(
	"a session watches at least one tube, each of them once, and gives a weight to all or none")

// Interests are what the session's client has asked for.
func (s *Session) Interests() Interests { return s.detached().Interests() }

// Interests are what the session's client has asked for.
func (d *Detached) Interests() Interests {
	x := Interests{Used: d.used, Watched: d.watched, Mode: codec.FIFO}
	x.Info, x.Abort = d.flags&isInformed != 0, d.flags&aborts != 0
	if d.weights != nil {
		x.Weights = d.weights.All()
	}
	if d.flags&isWeighted != 0 {
		if x.Mode = codec.Weighted; d.weights.Fair() {
			x.Mode = codec.WeightedFair
		}
	}
	return x
}

// Absent is a session on record of which another server has told: the client has these interests, and has
// waited that long for the reply to what it sends next.
func Absent(id uint64, g *Grant, x Interests, age Time) (*Detached, error) {
	d := &Detached{id: id, grant: g, used: x.Used, watched: x.Watched, opened: Always, age: age}
	known := make(map[string]struct{}, len(x.Watched))
	for _, name := range x.Watched {
		known[name] = struct{}{}
	}
	weighted := x.Mode == codec.Weighted || x.Mode == codec.WeightedFair
	n := len(x.Watched)
	if n == 0 || len(known) < n || x.Weights != nil && len(x.Weights) != n || weighted && x.Weights == nil {
		return nil, errInterests
	}
	if x.Info {
		d.flags |= isInformed
	}
	if x.Abort {
		d.flags |= aborts
	}
	if x.Weights != nil {
		d.weights = weights.Of(x.Weights, id)
		d.weights.BeFair(x.Mode == codec.WeightedFair)
		d.flags |= hasWeights
		for _, w := range x.Weights {
			if w == 0 {
				return nil, errInterests
			}
		}
	}
	if weighted {
		d.flags |= isWeighted
	}
	return d, nil
}

// ID is that of a session on record, by which Absent tells another server of it. It is 0 for other sessions.
func (d *Detached) ID() uint64 { return d.id }

// Wait is the shortest command that means the one that the session waits in: a wait for a job, since WaitsSince, or one
// that waits for room in the journal and has changed nothing. It is nil if the session does not wait, or the command is
// not known any more.
func (d *Detached) Wait() []byte {
	switch t := d.again.(type) {
	case *retry:
		return t.line()
	case *peeking:
		return t.line()
	case ending:
		if b, ok := d.Put(); ok {
			return append(b, "\r\n"...)
		}
		return nil
	}
	limit := int64(0)
	if d.until != MaxTime {
		limit = int64((d.until - d.since) / clock.Second)
	}
	switch {
	case d.flags&isWaiting == 0:
		return nil
	case d.batch != 0:
		return fmt.Appendf(nil, "reserve-batch %d %d\r\n", d.batch, limit)
	case d.until != MaxTime:
		return fmt.Appendf(nil, "reserve-with-timeout %d\r\n", limit)
	}
	return []byte("reserve\r\n")
}

// line is the command, nil if it takes more than a line.
func (r *retry) line() []byte {
	switch r.Op {
	case codec.OpRelease:
		return fmt.Appendf(nil, "release %d %d %d\r\n", r.ID, r.Pri, r.Delay)
	case codec.OpBury:
		return fmt.Appendf(nil, "bury %d %d\r\n", r.ID, r.Pri)
	case codec.OpDelete:
		return fmt.Appendf(nil, "delete %d\r\n", r.ID)
	case codec.OpKickJob:
		return fmt.Appendf(nil, "kick-job %d\r\n", r.ID)
	case codec.OpReserveJob:
		return fmt.Appendf(nil, "reserve-job %d\r\n", r.ID)
	case codec.OpPeek:
		return fmt.Appendf(nil, "peek %d\r\n", r.ID)
	}
	return nil
}

// line is the command.
func (p *peeking) line() []byte {
	if p.tube != nil {
		states := [...]string{codec.Ready: "ready", codec.Delayed: "delayed", codec.Buried: "buried"}
		return fmt.Appendf(nil, "%s %s %s\r\n", p.op, p.tube, states[p.state])
	}
	return fmt.Appendf(nil, "%s\r\n", p.op)
}
