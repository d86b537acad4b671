package engine

import "trellis/codec"

// listingJobs is a list-jobs: a survey, then the list in parts.
type listingJobs struct{ *survey }

// listJobs lists the first jobs of a tube in one state, or those behind the job with the
// command's id.
func (s *Session) listJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	l := s.loop
	v, err := l.tx.Survey(now, cmd.Tube, cmd.State, int(cmd.Bound), cmd.ID, l.listed[s], s.permits(), out)
	if err != nil {
		out.Answer(err, "")
		return Done
	}
	return listingJobs{v}.turn(s, now, out)
}

func (li listingJobs) turn(s *Session, now Time, out *Output) Outcome {
	l := s.loop
	if li.Turn(&l.tx, now) {
		return s.yield(li)
	}
	if end, ok := li.End(); ok {
		if l.listed == nil {
			l.listed = make(map[*Session]listEnd)
		}
		l.listed[s] = end
	}
	jobs, pos := li.Jobs()
	return (&listing{items: &jobItems{jobs}, counted: &jobItems{jobs}, pos: pos}).turn(s, now, out)
}

// jobItems are the jobs in a list.
type jobItems struct{ foundJobs }

func (ji *jobItems) next(b []byte) (_ []byte, ok bool) {
	x, ok := ji.Next()
	if !ok {
		return b, false
	}
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
