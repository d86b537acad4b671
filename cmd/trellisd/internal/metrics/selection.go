package metrics

import (
	"cmp"

	"trellis/engine"
)

// defaultTube always exists and is always shown.
const defaultTube = "default"

// showFirst is the order in which tubes are chosen to be shown one by one: the default
// tube, and then those with the most jobs. Of equals, those that were shown last time come
// first, so that the series do not change with each scrape, and then the first by name.
func showFirst(before map[string]struct{}) func(a, b *engine.TubeSnapshot) int {
	return func(a, b *engine.TubeSnapshot) int {
		if a.Name == defaultTube || b.Name == defaultTube {
			return cmp.Compare(oneIf(b.Name == defaultTube), oneIf(a.Name == defaultTube))
		}
		if n := cmp.Compare(jobsOf(b), jobsOf(a)); n != 0 {
			return n
		}
		_, aBefore := before[a.Name]
		_, bBefore := before[b.Name]
		if aBefore != bBefore {
			return cmp.Compare(oneIf(bBefore), oneIf(aBefore))
		}
		return cmp.Compare(a.Name, b.Name)
	}
}

func jobsOf(t *engine.TubeSnapshot) int { return t.Ready + t.Reserved + t.Delayed + t.Buried }
