package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A reservedPeek finds the reserved job of a tube with the smallest id. There is no queue of them, and by
// the time when all were looked at the first of them may not be reserved any more.
type reservedPeek struct {
	*Survey
	of    *Client
	first uint64 // the job that was found, and whose body had to be loaded; 0 for none
	again int    // how often it may still look again when none of the first ones is
}

const (
	peekCandidates = 64
	peekAgain      = 3
)

// Turn implements Work. At the end it appends the job, or returns reply.ErrNotFound.
func (p *reservedPeek) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	sh := p.shard
	if p.first != 0 {
		sh.lock(c, now)
		if j := p.find(p.first); j != nil {
			err = c.show(p.of, sh, j, out)
			sh.unlock(c)
			return 1, false, err
		}
		p.first = 0
		sh.unlock(c)
	}
	if !p.run(c, now) {
		return 0, true, nil
	}
	defer sh.unlock(c)
	p.sort(len(p.found))
	for i := range p.found {
		if j := p.find(p.found[i].id); j != nil {
			if err = c.show(p.of, sh, j, out); err != nil {
				p.first, p.Survey = j.ID, newSurvey(sh, p.tube, reserved, peekCandidates)
			}
			return 1, false, err
		}
	}
	if len(p.found) > 0 && p.again > 0 {
		p.Survey = newSurvey(sh, p.tube, reserved, peekCandidates)
		p.again--
		return 0, true, nil
	}
	// Reservations here are so short that the first ones are over before all are known.
	out.DependOn(sh.dependsOnEnds())
	return 0, false, reply.ErrNotFound
}

// find is the job of that id if it is reserved in the tube, otherwise nil. The shard is locked.
func (p *reservedPeek) find(id uint64) *job {
	_, j := p.shard.find(id)
	if j == nil || j.state != reserved || p.shard.tubes[j.tube].name != p.tube {
		return nil
	}
	return j
}
