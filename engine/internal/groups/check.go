package groups

import (
	"fmt"

	"trellis/engine/internal/ids"
)

// A Counts is what is counted of a group.
type Counts struct {
	Members, Buried int
	Held            [Conditions]uint32
	In              [Conditions]ids.Set // the shards that have a list of jobs held for it
}

// Check returns what is wrong with the table, and calls f for each group. Nobody else uses the table. It is for tests.
func (gs *Table) Check(f func(name string, n Counts)) (errs []error) {
	for i := range gs.parts {
		s := &gs.parts[i]
		if err := s.table.Check(); err != nil {
			errs = append(errs, err)
		}
		blocked := 0
		for g := range s.table.All() {
			if g != s.find(g.Name, g.Hash) {
				errs = append(errs, fmt.Errorf("group %s is not found", g.Name))
			}
			blocked += g.blocked()
			f(g.Name, Counts{g.members, g.buried, g.held, g.in})
		}
		if blocked != s.blocked {
			errs = append(errs, fmt.Errorf("%d jobs wait for buried members, %d are counted", blocked, s.blocked))
		}
	}
	return errs
}

// Check returns what is wrong with the lists, and calls f for each.
func (ls *Lists) Check(f func(name string, c Condition, jobs int)) (errs []error) {
	if err := ls.table.Check(); err != nil {
		errs = append(errs, err)
	}
	for l := range ls.table.All() {
		if err := l.jobs.Check(); err != nil {
			errs = append(errs, fmt.Errorf("jobs that are held for %s: %w", l.Group.Name, err))
		}
		for i := range l.jobs.Len() {
			if h := l.jobs.At(i); h.index != i || h.list != l || h.Group != l.Group || h.Condition != l.Condition {
				errs = append(errs, fmt.Errorf("job %d stands at %d for %s, knows %+v", h.ID, i, l.Group.Name, *h.Held))
			}
		}
		if _, due := l.First(); due && !l.firing {
			errs = append(errs, fmt.Errorf("jobs that are held for %s are to be fired, and nobody does", l.Group.Name))
		}
		f(l.Group.Name, l.Condition, l.jobs.Len())
	}
	return errs
}

// Has reports whether a held job stands in the lists.
func (ls *Lists) Has(h *Held) bool {
	l := ls.Find(h.Group, h.Condition)
	return l != nil && h.list == l && h.index < l.jobs.Len() && l.jobs.At(h.index).Held == h
}
