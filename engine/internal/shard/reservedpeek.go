package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A reservedPeek finds the reserved job of a tube with the smallest id. There is no queue of them, and by
// the time when all were looked at the first of them may not be reserved any more.
type reservedPeek struct {
	*Survey
	again int // how often it may still look again when none of the first ones is
}

const (
	peekCandidates = 64
	peekAgain      = 3
)

// Turn implements Work. At the end it appends the job, or returns reply.ErrNotFound.
func (p *reservedPeek) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	if !p.run(c, now) {
		return 0, true, nil
	}
	sh := p.shard
	defer sh.unlock(c)
	p.sort(len(p.found))
	for i := range p.found {
		if _, j := sh.find(p.found[i].id); j != nil && j.state == reserved && sh.tubes[j.tube].name == p.tube {
			sh.appendFound(out, j)
			return 1, false, nil
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
