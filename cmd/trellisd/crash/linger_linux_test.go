//go:build proof

package crash

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
)

// Workers at all members of a cluster whose leader is killed again and again do no job twice, either.
func TestJobsOfAClusterWhoseLeaderGoesAreDoneOnce(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clustertest.TimeEnv))
	lab := clustertest.StartLab(t, 3)
	c := &workplace{addrs: lab.Addrs(), done: map[uint64]int{}}
	c.open(t, 30)
	kills := 0
	for began := time.Now(); kills < 3 || long == nil && time.Since(began) < limit; kills++ {
		for _, n := range lab.Nodes {
			lab.AwaitServed(n)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(300 * time.Millisecond)))) // at any moment
		n := lab.Leader()
		lab.Stop(n)
		lab.Leader(lab.Others(n)...)
		lab.Start(n)
	}
	done, twice := c.close(t)
	if t.Logf("%d kills, %d jobs done", kills, done); twice != 0 {
		t.Errorf("%d of them were done more than once", twice)
	}
	lab.Agree()
}
