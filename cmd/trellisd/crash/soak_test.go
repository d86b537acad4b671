//go:build proof

package crash

import (
	"os"
	"testing"
	"time"
)

// TestSoakOfKills kills servers that have a binlog, one after another, for as long as make soak says in SOAK.
func TestSoakOfKills(t *testing.T) {
	v := os.Getenv("SOAK")
	if v == "" {
		t.Skip("make soak runs it; TestNothingAcknowledgedIsLostByAKilledServer is the same, but shorter")
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	t.Parallel()
	c := newCrash(t)
	kills := 0
	for began := time.Now(); kills == 0 || time.Since(began) < d; kills++ {
		c.round(crashModes[kills%len(crashModes)])
	}
	t.Logf("%d kills, %d commands acknowledged, %d not, of which %d had been done", kills, c.acked, c.unacked, c.done)
}
