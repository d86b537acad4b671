package watch

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"trellis/cmd/internal/client"
)

type job struct {
	id    uint64
	pri   uint64
	state client.State
}

// A tube lists its jobs as a server does: ready and delayed ones by priority and id, reserved ones by id, buried ones as they
// came. (Delayed ones go by time on a server, which is another number as good as the priority.)
type tube struct {
	jobs  []job
	last  uint64
	lists int // calls
}

func (u *tube) put(pri uint64, s client.State) {
	u.last++
	u.jobs = append(u.jobs, job{u.last, pri, s})
}

func (u *tube) of(s client.State) (all []job) {
	for _, j := range u.jobs {
		if j.state == s {
			all = append(all, j)
		}
	}
	if s == client.Ready || s == client.Delayed {
		slices.SortStableFunc(all, func(a, b job) int { return cmp.Or(cmp.Compare(a.pri, b.pri), cmp.Compare(a.id, b.id)) })
	}
	return all
}

// ListJobs implements Lister.
func (u *tube) ListJobs(_ context.Context, _ string, s client.State, limit uint32, after uint64) (page []client.Fields, err error) {
	u.lists++
	all := u.of(s)
	switch i := slices.IndexFunc(all, func(j job) bool { return j.id == after }); {
	case after == 0:
	case s == client.Reserved:
		all = slices.DeleteFunc(all, func(j job) bool { return j.id <= after })
	case i < 0:
		return nil, client.ErrNotFound
	default:
		all = all[i+1:]
	}
	for _, j := range all[:min(len(all), int(limit))] {
		page = append(page, client.Fields{{Key: "id", Value: client.Value{Kind: client.Number, Text: strconv.FormatUint(j.id, 10)}}})
	}
	return page, nil
}

func TestEveryNewJobThatStaysIsToldOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := &tube{}
		state := rapid.SampledFrom(client.States)
		putSome := func() {
			s, pri := state.Draw(t, "state"), rapid.Uint64Range(0, 3).Draw(t, "pri")
			for range rapid.SampledFrom([]int{1, 3, 999, 1000, 1001, 2500}).Draw(t, "jobs") {
				u.put(pri, s)
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			putSome()
		}
		w, err := Start(t.Context(), u, "t", client.States)
		if err != nil {
			t.Fatal(err)
		}
		old := u.last
		told := make(map[uint64]bool)
		look := func() {
			u.lists = 0
			found, err := w.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if most := len(client.States) * (2 + tailPages); u.lists > most {
				t.Fatalf("%d lists in one look", u.lists)
			}
			for _, j := range found {
				if j.ID <= old || told[j.ID] {
					t.Fatalf("job %d is told; %d is the newest old one", j.ID, old)
				}
				told[j.ID] = true
			}
		}
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				putSome()
			case 1: // many are worked on
				to := state.Draw(t, "to")
				for i := range u.jobs {
					if u.jobs[i].id%3 == 0 {
						u.jobs[i].state = to
					}
				}
			case 2: // the ends of queues go
				for _, s := range client.States {
					if all := u.of(s); len(all) > 0 {
						last := all[len(all)-1].id
						u.jobs = slices.DeleteFunc(u.jobs, func(j job) bool { return j.id == last })
					}
				}
			case 3:
				look()
			}
		}
		for range len(u.jobs)/pageSize*2 + 4 {
			look()
		}
		for _, j := range u.jobs {
			if j.id > old && !told[j.id] {
				t.Fatalf("job %d (%s) of %d is not told", j.id, j.state, len(u.jobs))
			}
		}
	})
}

func TestAnOldJobIsNotNewInAnotherState(t *testing.T) {
	for _, from := range client.States {
		for _, to := range client.States {
			u := &tube{}
			u.put(0, from)
			w, err := Start(t.Context(), u, "t", []client.State{to})
			if err != nil {
				t.Fatal(err)
			}
			u.jobs[0].state = to
			u.put(0, to)
			if found, err := w.Look(t.Context()); err != nil || len(found) != 1 || found[0].ID != 2 {
				t.Errorf("%s, then %s: %v, %v, want job 2 alone", from, to, found, err)
			}
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	u := &tube{}
	w, err := Start(t.Context(), u, "t", client.States)
	if err != nil {
		t.Fatal(err)
	}
	told := uint64(0)
	for range 3*maxSeen/pageSize + 10 {
		u.jobs = nil
		for range pageSize - 1 {
			u.put(0, client.Ready)
		}
		found, err := w.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range found {
			if j.ID != told+1 {
				t.Fatalf("job %d is told behind %d", j.ID, told)
			}
			told = j.ID
		}
		if len(w.seenIDs) > maxSeen {
			t.Fatalf("%d ids are remembered", len(w.seenIDs))
		}
	}
	if told != u.last {
		t.Errorf("%d of %d jobs are told", told, u.last)
	}
}
