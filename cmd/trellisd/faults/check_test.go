package faults

import (
	"math/rand/v2"
	"testing"
)

// A search for an order of all commands of the seeds 21 and 35 takes longer than anybody waits,
// or seconds: it has gone wrong with an early one of those that have no reply.
func TestAnOrderIsFoundOfManyCommandsWithoutReplies(t *testing.T) {
	for _, seed := range []uint64{1, 21, 35} {
		if err := losses(rand.New(rand.NewPCG(seed, 1)), 200).check(checkTime); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// losses is what the clients of a job have seen who lose their connections again and again.
// Some of the commands without a reply were executed, and all of their sessions have ended at
// some time.
func losses(rng *rand.Rand, commands int) *family {
	f := &family{jobs: []*life{{}}}
	s := state{}
	now := int64(0)
	execute := func(o *Op, lost bool) {
		now += 100
		o.Call, o.Return = now-rng.Int64N(300), now+rng.Int64N(300)
		done, ok := s.do(o, others{open: true})
		switch {
		case lost:
			o.Return = never
		case !ok:
			o.Reply = "NOT_FOUND"
		default:
			o.Reply = "OK"
		}
		if ok {
			s = done
		}
		if o.Verb == StatsJob && o.Reply == "OK" {
			o.Stats = &Stats{
				State: s.phase.String(), Tube: s.tube, Pri: s.pri, Delay: s.delay,
				Releases: s.releases, Buries: s.buries, Kicks: s.kicks,
			}
		}
		f.all = append(f.all, input{o, 0})
	}
	execute(&Op{Verb: Put, Tube: "a", Session: 1}, false)
	verbs := []Verb{
		Reserve, Reserve, ReserveJob, Release, Bury, KickJob, Touch, StatsJob, PeekReady, Reserve, Release, Touch,
	}
	sessions, last := []int{1, 2, 3, 4}, 4
	var ends []*Op // of sessions that the server has not ended yet
	for range commands {
		i := rng.IntN(len(sessions))
		o := &Op{Verb: verbs[rng.IntN(len(verbs))], Session: sessions[i], Tube: "a"}
		lost := rng.IntN(8) == 0
		if lost && rng.IntN(2) == 0 { // it was not executed
			now += 100
			o.Call, o.Return = now, never
			f.all = append(f.all, input{o, 0})
		} else {
			execute(o, lost)
		}
		if lost {
			e := &Op{Verb: end, Session: sessions[i], Tube: "a", Call: now + 1, Return: never}
			f.all = append(f.all, input{e, 0})
			ends = append(ends, e)
			last++
			sessions[i] = last
		}
		for len(ends) > 0 && rng.IntN(4) == 0 {
			s, _ = s.do(ends[0], others{})
			ends = ends[1:]
		}
	}
	for _, e := range ends {
		s, _ = s.do(e, others{})
	}
	execute(&Op{Verb: StatsJob, Session: 1}, false)
	return f
}
