package shard

import (
	"fmt"
	"strings"
	"testing"
)

// What is denied for the group that it names is denied to the end of its body, and nothing of
// that is executed or kept.
func TestTheBodyOfADeniedPutIsDiscarded(t *testing.T) {
	s := newSim(65535, 1)
	c := s.openAs(NewGrant("", RightPut|RightRead, []string{"default", "a"}))
	size := 3*bodyStep + 20
	for _, tags := range []string{"grp:b", "aft:b:settled", "aft:a grp:b"} {
		c.expect(t, "", "put 0 0 9 %d %s\r\n", size, tags)
		for left := size; left > 0; {
			piece := "list-tubes\r\nlist-tubes\r\n" + strings.Repeat("x", bodyStep)
			piece = piece[:min(left, len(piece))]
			c.expect(t, "", "%s", piece)
			left -= len(piece)
		}
		c.expect(t, "UNKNOWN_COMMAND\r\n", "\r\n")
		if c.session.incomingPut() != nil {
			t.Error("something of the body is kept")
		}
	}
	c.expect(t, "", "put 0 0 9 %d grp:b\r\n", size)
	c.end()
	d := s.openAs(NewGrant("", RightPut|RightRead, []string{"default", "a"}))
	d.expect(t, "INSERTED 1\r\n", "put 0 0 9 1 grp:a\r\nx\r\n") // no id was used up
	s.noErrors(t)
}

// A list would begin at the priority of the job that it is to go on behind.
func TestAListGoesOnBehindNoJobOfATubeThatIsNotTheClients(t *testing.T) {
	s := newSim(100, 1)
	root := s.open()
	root.say("use secret", "put 5 0 9 1", "x", "use a", "put 7 0 9 1", "x")
	c := s.openAs(NewGrant("", RightRead, []string{"a"}))
	c.expect(t, "NOT_FOUND\r\n", "list-jobs a ready 9 1\r\n")
	c.expect(t, "NOT_FOUND\r\n", "list-jobs a ready 9 3\r\n") // there is none
	c.expect(t, "OK 4\r\n---\n\r\n", "list-jobs a ready 9 2\r\n")
}

// Whose list is short because most tubes are not the client's does not keep others
// from their turn.
func TestAListOfGrantedTubesIsMadeInTurns(t *testing.T) {
	const n = 3 * roundBudget
	s := newSim(100, 1)
	other := s.open()
	want := "---\n"
	for i := range n {
		name := fmt.Sprintf("t%d", i)
		other.ask(t, "watch %s\r\n", name)
		if strings.HasPrefix(name, "t77") {
			want += "- " + name + "\n"
		}
	}
	c := s.openAs(NewGrant("", RightRead, []string{"t77*"}))
	l := slow(t, s)
	if c.start(t, "list-tubes") != Wait {
		t.Fatal("the list comes at once")
	}
	if rounds := l.rounds(); rounds < 4 || l.most > roundBudget+wakeCost {
		t.Errorf("%d rounds of up to %d steps", rounds, l.most)
	}
	if got, want := c.took(), fmt.Sprintf("OK %d\r\n%s\r\n", len(want), want); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASessionWithAGrantLeavesNothingBehind(t *testing.T) {
	for _, loops := range []int{1, 2} {
		s := newSim(100, loops)
		for id := 1; id <= 10; id++ {
			c := s.openAs(NewGrant("", RightAll, []string{"a"}))
			c.expect(t, fmt.Sprintf("USING a\r\nINSERTED %d\r\nWATCHING 2\r\nRESERVED %[1]d 1\r\nx\r\n", id), "use a\r\nput 0 0 9 1\r\nx\r\nwatch a\r\nreserve\r\n")
			c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
			c.ask(t, "reserve\r\n") // in vain
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			for _, err := range (&census{engine: s.engine}).run() {
				t.Error(err)
			}
			if e := s.engine.emptyTube; e.using != 0 || e.watching != 0 || e.waiting != 0 || e.firstWaiting != nil {
				t.Fatalf("the empty tube is left with %+v", e)
			}
		}
	}
}
