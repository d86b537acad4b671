package shard

import (
	"fmt"
	"strings"
	"testing"
)

// Pages of stats-tubes show every tube that is there all the while once, by name, and let
// others have their turns.
func TestPagesOfTubesShowEachOnceAndLetOthersHaveTheirTurns(t *testing.T) {
	const n = 4321
	s := newSim(100, 1)
	c := s.open()
	c.putInTubes(t, n)
	l := slow(t, s)
	ask, seen := "stats-tubes 1000", []string(nil)
	for page := 0; ; page++ {
		l.round()
		c.start(t, "%s", ask)
		rounds := l.rounds()
		if l.most > roundBudget+roundBudget/4 {
			t.Errorf("a round takes up to %d", l.most)
		}
		if page == 0 && rounds < 2 {
			t.Errorf("a page of a thousand tubes takes %d rounds", rounds)
		}
		var names []string
		for line := range strings.Lines(c.took()) {
			if name, ok := strings.CutPrefix(line, "- name: "); ok {
				names = append(names, strings.Trim(name, "\"\n"))
			}
		}
		if len(names) == 0 {
			break
		}
		ask, seen = "stats-tubes 1000 "+names[len(names)-1], append(seen, names...)
	}
	if len(seen) != 1+n {
		t.Fatalf("%d names", len(seen))
	}
	for i := 1; i < len(seen); i++ {
		if seen[i-1] >= seen[i] {
			t.Fatalf("%s stands before %s", seen[i-1], seen[i])
		}
	}
}

// putInTubes puts a job into each of n tubes, whose names come behind "default".
func (c *simConn) putInTubes(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("t%05d", i*7919%n)
		c.expect(t, "USING "+name+"\r\n", "use %s\r\n", name)
		if !strings.HasPrefix(c.ask(t, "put 0 0 1 0\r\n\r\n"), "INSERTED ") {
			t.Fatal("no job")
		}
	}
}

// A tube that goes while its page is put together is left out.
func TestATubeThatGoesIsLeftOutOfItsPage(t *testing.T) {
	s := newSim(100, 1)
	c, other := s.open(), s.open()
	c.putInTubes(t, 1000)
	l := slow(t, s)
	l.round()
	if c.start(t, "stats-tubes 1000 u") != Wait && strings.Contains(c.took(), "name") {
		t.Fatal("there are tubes behind the last")
	}
	c.took()
	if c.start(t, "stats-tubes 1000") != Wait {
		t.Fatal("a page of a thousand tubes does not mind that the round is over")
	}
	for i := range 1000 {
		if i*7919%1000 < 500 {
			continue // it may be described already
		}
		if other.start(t, "delete %d", i+1); other.took() != "DELETED\r\n" {
			t.Fatal("a job stays")
		}
	}
	l.rounds()
	if n := strings.Count(c.took(), "- name: "); n != 1+500 {
		t.Errorf("%d tubes are shown", n)
	}
}
