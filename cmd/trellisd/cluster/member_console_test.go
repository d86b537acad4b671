//go:build proof

package cluster

import (
	"encoding/json"
	"net/http"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A leader that is cut off goes on to execute commands until it notices.
func TestTheConsoleOfALeaderShowsNothingThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		c := l.Dial()
		c.Send("put 0 0 60 1", "x")
		c.Want("INSERTED 1")
		// ready is how many jobs the console shows, -1 if it shows none.
		ready := func() (n int) {
			status, text := servertest.Get(t, "http://"+l.HTTP+"/api/v1/tubes")
			if status != http.StatusOK {
				return -1
			}
			var list struct {
				Tubes []struct {
					Ready int `json:"current-jobs-ready"`
				}
			}
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatal(err)
			}
			for _, tube := range list.Tubes {
				n += tube.Ready
			}
			return n
		}
		for _, n := range w.Nodes {
			if n != l {
				n.Process.Signal(syscall.SIGSTOP)
				defer n.Process.Signal(syscall.SIGCONT)
			}
		}
		for range 100 {
			c.Send("put 0 0 60 1", "y")
		}
		w.Eventually("the leader has noticed", func() bool {
			// The first list is made now, for one that was there would be shown for some seconds.
			if n := ready(); n > 1 {
				t.Fatalf("the console shows %d jobs, of which 1 is committed", n)
			}
			status, _ := l.Leaderz()
			return status != http.StatusOK
		})
	})
}
