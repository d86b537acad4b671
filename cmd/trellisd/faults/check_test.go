package faults

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// agree checks that a search comes to the result that porcupine comes to, and returns that.
func agree(t *testing.T, f *family) porcupine.CheckResult {
	t.Helper()
	want, got := f.porcupine(0), porcupine.Ok
	switch stuck, undecided := newSearch(f).run(); {
	case undecided:
		got = porcupine.Unknown
	case stuck != nil:
		got = porcupine.Illegal
	}
	if got != want {
		t.Errorf("the search says %s, and porcupine %s:\n%s", got, want, f)
	}
	return want
}

// agreeOn is agree for all families of a history.
func agreeOn(t *testing.T, history []Op) {
	t.Helper()
	jobs, err := jobsOf(history)
	if err != nil {
		return // nobody looks for an order
	}
	for _, f := range familiesOf(jobs) {
		f.collect(history)
		agree(t, f)
	}
}

// A search is right: so says somebody who has no part in it.
func TestASearchAgreesWithPorcupine(t *testing.T) {
	count := map[porcupine.CheckResult]int{}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		f := losses(rng, 5+rng.IntN(12))
		for range seed % 2 { // one reply is another one, perhaps
			switch o := f.all[rng.IntN(len(f.all))].Op; o.Reply {
			case "OK":
				o.Reply, o.Stats = "NOT_FOUND", nil
			case "NOT_FOUND":
				o.Reply = "OK"
			}
		}
		count[agree(t, f)]++
	}
	if count[porcupine.Ok] < 100 || count[porcupine.Illegal] < 50 {
		t.Errorf("there were %v", count)
	}
}

// A search for an order of all commands of the seeds 21 and 35 takes longer than anybody waits,
// or seconds: it has gone wrong with an early one of those that have no reply.
func TestAnOrderIsFoundOfManyCommandsWithoutReplies(t *testing.T) {
	for _, seed := range []uint64{1, 21, 35} {
		if err := losses(rand.New(rand.NewPCG(seed, 1)), 200).check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// What a connection brings is executed in its order, also if all its replies come at once.
func TestCommandsOfASessionAreInOrder(t *testing.T) {
	reserved := `
		1 put 7 10-20 INSERTED
		1 reserve 7 30-40 RESERVED`
	touched := `
		1 touch 7 30-40 TOUCHED`
	if err := Check(script(t, reserved+touched)); err != nil {
		t.Error(err)
	}
	put, reserve, _ := strings.Cut(reserved, "INSERTED")
	if err := Check(script(t, put+"INSERTED"+touched+reserve)); err == nil {
		t.Error("a job was touched before it was reserved, and nothing is wrong")
	}
}

// losses is what the clients of a job have seen who lose their connections again and again.
// Some of the commands without a reply were executed, and all of their sessions have ended at
// some time.
func losses(rng *rand.Rand, commands int) *family {
	f := &family{jobs: []*life{{put: &Op{TTR: longTTR}}}}
	s := state{}
	now := int64(0)
	free := map[int]int64{} // when each session has its last reply
	execute := func(o *Op, lost bool) {
		now = max(now+100, free[o.Session]+1)
		o.Call, o.Return = max(now-rng.Int64N(300), free[o.Session]+1), now+rng.Int64N(300)
		free[o.Session] = o.Return
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
			now = max(now+100, free[o.Session]+1)
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
			s = s.ended(ends[0])
			ends = ends[1:]
		}
	}
	for _, e := range ends {
		s = s.ended(e)
	}
	execute(&Op{Verb: StatsJob, Session: 1}, false)
	f.sort()
	return f
}

// ended is the job when the server has ended a session.
func (s state) ended(o *Op) state {
	if next := s.ends(o); len(next) > 0 {
		return next[0]
	}
	return s
}
