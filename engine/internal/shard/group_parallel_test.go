package shard

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"trellis/codec"
)

// Members of many groups lie in all shards, and clients of eight loops delete, bury and move them at
// once: every job that waits for a group comes once, and not before the last member of its group was
// on its way out.
func TestEachJobThatWaitsForAGroupComesOnceAndNotTooSoon(t *testing.T) {
	rounds, groups := 5, 5000
	switch {
	case raceEnabled:
		rounds, groups = 1, 300
	case !proof:
		rounds, groups = 1, 2000
	}
	r := &groupRun{t: t, crew: newCrew(t, 8, 16), tubes: numbered(64)}
	for round := range rounds {
		r.play(round, groups)
	}
	r.crew.stop()
}

// A groupRun is groups whose members are put, and then deleted.
type groupRun struct {
	t      *testing.T
	crew   *crew
	tubes  []string
	groups []runGroup
	done   *ledger // jobs that have waited
}

const membersOfRun = 4

type runGroup struct {
	ids     [membersOfRun]uint64
	deletes atomic.Int32 // that were sent
	settled atomic.Int32 // members for which a delete or bury was sent
}

func (r *groupRun) play(round, groups int) {
	r.groups, r.done = make([]runGroup, groups), newLedger(r.t, "done", 2*groups)
	var all sync.WaitGroup
	for i := range len(r.crew.loops) {
		all.Go(func() { r.put(rand.New(rand.NewPCG(uint64(round), uint64(i))), i) })
	}
	r.crew.within(all.Wait)
	for i := range len(r.crew.loops) {
		rnd := rand.New(rand.NewPCG(uint64(round), 100+uint64(i)))
		if i < membersOfRun {
			all.Go(func() { r.end(rnd, i) })
		} else {
			all.Go(func() { r.move(rnd, i-membersOfRun) })
		}
		all.Go(func() { r.collect(i) })
	}
	r.crew.within(all.Wait)
}

func (r *groupRun) tube(rnd *rand.Rand) string { return r.tubes[rnd.IntN(len(r.tubes))] }

// put puts every eighth group, and two jobs that wait for it.
func (r *groupRun) put(rnd *rand.Rand, first int) {
	h := r.crew.hire()
	defer h.close()
	for g := first; g < len(r.groups); g += len(r.crew.loops) {
		name := fmt.Appendf(nil, "group%d", g)
		for m := range membersOfRun {
			h.use(r.tube(rnd))
			id, _, _ := strings.Cut(strings.TrimPrefix(h.tagged(0, 0, longTTR, "", codec.Tags{Group: name}), "INSERTED "), "\r\n")
			r.groups[g].ids[m], _ = strconv.ParseUint(id, 10, 64)
		}
		for _, settled := range []bool{false, true} {
			h.use("callbacks" + strconv.Itoa(rnd.IntN(len(r.crew.loops))))
			got := h.tagged(0, rnd.Uint32N(2), longTTR, fmt.Sprint(g, " ", settled), codec.Tags{After: name, Settled: settled})
			if !strings.HasPrefix(got, "INSERTED ") {
				r.t.Errorf("put: %q", got)
			}
		}
	}
}

// end deletes one member of each group, and buries some of them before.
func (r *groupRun) end(rnd *rand.Rand, member int) {
	h := r.crew.hire()
	defer h.close()
	for _, g := range rnd.Perm(len(r.groups)) {
		x := &r.groups[g]
		id := x.ids[member]
		reserved := rnd.IntN(2) == 0 && strings.HasPrefix(h.with(codec.OpReserveJob, id), "RESERVED ")
		x.settled.Add(1)
		if reserved {
			h.with(codec.OpBury, id)
		}
		x.deletes.Add(1)
		if got := h.with(codec.OpDelete, id); got != codec.ReplyDeleted {
			r.t.Errorf("delete of job %d: %q", id, got)
		}
	}
}

// move moves a member of each group, if it is still there.
func (r *groupRun) move(rnd *rand.Rand, member int) {
	h := r.crew.hire()
	defer h.close()
	for _, g := range rnd.Perm(len(r.groups)) {
		h.do(codec.Command{Op: codec.OpMoveJob, ID: r.groups[g].ids[member], Tube: []byte(r.tube(rnd))})
	}
}

// collect takes the jobs that have waited.
func (r *groupRun) collect(tube int) {
	h := r.crew.hire()
	defer h.close()
	h.watchOnly("callbacks" + strconv.Itoa(tube))
	for {
		select {
		case <-r.done.full:
			return
		default:
		}
		id, body := h.reserveFor(1)
		if id == 0 {
			continue
		}
		group, settled, _ := strings.Cut(body, " ")
		g, _ := strconv.Atoi(group)
		n := &r.groups[g].deletes
		if settled == "true" {
			n = &r.groups[g].settled
		}
		if n.Load() != membersOfRun {
			r.t.Errorf("group %d: %q came when %d members were done with", g, body, n.Load())
		}
		h.with(codec.OpDelete, id)
		r.done.note(id)
	}
}
