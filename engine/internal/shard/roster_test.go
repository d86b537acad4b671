package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The list of tubes is in the order of their creation, but the last takes the
// place of one that goes.
func TestTheRosterMovesTheLastTubeIntoAGap(t *testing.T) {
	e := New(Config{Shards: 4, Info: testInfo})
	var list []*tube
	for _, sh := range e.shards {
		for _, t := range sh.byName {
			list = append(list, t) // the default tube
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range 500 {
		if i := rnd.IntN(len(list)); i > 0 && rnd.IntN(2) == 0 {
			gone := list[i]
			gone.shard.removeIfUnused(gone)
			last := len(list) - 1
			list[i] = list[last]
			list = list[:last]
			if gone.shard.byName[gone.name] != nil {
				t.Fatalf("tube %s is still there", gone.name)
			}
		} else {
			name := []byte(fmt.Sprint("tube", n))
			list = append(list, e.shardFor(name).tube(name, false))
		}
		if !slices.Equal(e.allTubes(), list) {
			t.Fatalf("after %d steps the list is wrong", n)
		}
	}
}

// A tube stays for as long as anything needs it, whatever that is, and comes back
// as a new one.
func TestATubeGoesWithTheLastThatNeedsIt(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(c, other *simConn) }{
		"a session that uses it": {
			func(c, _ *simConn) { c.say("use t") },
			func(c, _ *simConn) { c.say("use default") },
		},
		"a session that watches it": {
			func(c, _ *simConn) { c.say("watch t") },
			func(c, _ *simConn) { c.say("ignore t") },
		},
		"a session that waits": {
			func(c, _ *simConn) { c.say("watch t", "reserve") },
			func(c, _ *simConn) { _ = c.Close() },
		},
		"a put that has not ended": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 100", "...") },
			func(c, _ *simConn) { _ = c.Close() },
		},
		"a ready job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a delayed job": {
			func(c, _ *simConn) { c.say("use t", "put 0 9 9 0", "", "use default") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a reserved job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default", "reserve-job 1") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a buried job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default", "reserve-job 1", "bury 1 0") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a job whose holder leaves": {
			func(c, other *simConn) { c.say("use t", "put 0 0 9 0", "", "use default"); other.say("reserve-job 1") },
			func(c, other *simConn) { _ = other.Close(); c.say("delete 1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(1000, 1)
			c1, c2, watcher := s.open(), s.open(), s.open()
			c.begin(c1, c2)
			if got := watcher.say("pause-tube t 100"); got != "PAUSED\r\n" {
				t.Fatalf("pausing the tube: %q", got)
			}
			c.end(c1, c2)
			if got := watcher.say("stats-tube t"); got != "NOT_FOUND\r\n" {
				t.Fatalf("it is still there: %q", got)
			}
			watcher.say("use t")
			got := watcher.say("stats-tube t")
			fresh := newSim(1000, 1).open()
			fresh.say("use t")
			if want := fresh.say("stats-tube t"); got != want {
				t.Fatalf("it came back as %q, want %q", got, want)
			}
		})
	}
}

// say sends lines and returns the replies.
func (c *simConn) say(lines ...string) string {
	for _, line := range lines {
		_ = c.Send([]byte(line + "\r\n"))
	}
	reply, _ := c.Pending()
	return string(reply)
}
