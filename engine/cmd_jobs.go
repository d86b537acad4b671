package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// listingJobs is a list-jobs: a survey, then the list in parts.
type listingJobs struct{ *shard.Survey }

// listJobs lists the first jobs of a tube in one state, or those behind the job with the
// command's id.
func (s *Session) listJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	v, err := s.loop.tx.Survey(
		now, &s.client, cmd.Tube, cmd.State, int(cmd.Bound), cmd.ID, s.permits(), out)
	if err != nil {
		out.Answer(err, "")
		return Done
	}
	return listingJobs{v}.turn(s, now, out)
}

func (li listingJobs) turn(s *Session, now Time, out *Output) Outcome {
	pos, more := li.Turn(&s.loop.tx, now)
	if more {
		return s.yield(li)
	}
	return (&listing{items: &jobItems{found: li.Survey}, counted: &jobItems{found: li.Survey}, pos: pos}).turn(s, now, out)
}

// jobItems are the jobs in a list.
type jobItems struct {
	found *shard.Survey
	at    int // the next one
}

func (ji *jobItems) next(b []byte) (_ []byte, ok bool) {
	x, ok := ji.found.At(ji.at)
	if !ok {
		return b, false
	}
	ji.at++
	y := yaml(b)
	y.number("- id", x.ID)
	y.number("  pri", uint64(x.Pri))
	y.number("  age", uint64(x.Age.Whole()))
	y.number("  size", uint64(x.Size))
	if x.Left >= 0 {
		y.number("  time-left", uint64(x.Left.Whole()))
	}
	return y, true
}
