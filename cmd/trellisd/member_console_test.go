//go:build proof

package main

import (
	"encoding/json"
	"net/http"
	"syscall"
	"testing"
)

// A leader that is cut off goes on to execute commands until it notices.
func TestTheConsoleOfALeaderShowsNothingThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		c := l.dial()
		c.send("put 0 0 60 1", "x")
		c.want("INSERTED 1")
		// ready is how many jobs the console shows, -1 if it shows none.
		ready := func() (n int) {
			status, text := httpGet(t, "http://"+l.http+"/api/v1/tubes")
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
		for _, n := range w.nodes {
			if n != l {
				n.p.signal(syscall.SIGSTOP)
				defer n.p.signal(syscall.SIGCONT)
			}
		}
		for range 100 {
			c.send("put 0 0 60 1", "y")
		}
		w.eventually("the leader has noticed", func() bool {
			// The first list is made now, for one that was there would be shown for some seconds.
			if n := ready(); n > 1 {
				t.Fatalf("the console shows %d jobs, of which 1 is committed", n)
			}
			status, _ := l.leaderz()
			return status != http.StatusOK
		})
	})
}
