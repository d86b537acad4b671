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
