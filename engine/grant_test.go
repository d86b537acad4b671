package engine

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"trellis/codec"
)

func TestAGrantPermitsItsNamesAndWhatBeginsWithItsPrefixes(t *testing.T) {
	for _, x := range []struct {
		tubes    string
		yes, not []string
	}{
		{"*", []string{"default", "a", "auth", strings.Repeat("x", 200)}, []string{"auth/", "auth/token"}},
		{"a", []string{"a"}, []string{"", "aa", "a*", "b", "default"}},
		{"a*", []string{"a", "aa", "a/b"}, []string{"b", "ba"}},
		{"b,a/*,z", []string{"a/", "a/x", "b", "z"}, []string{"a", "ab", "b/", "y"}},
	} {
		g := NewGrant("", RightAll, strings.Split(x.tubes, ","))
		for _, tube := range x.yes {
			if !g.permits(tube) {
				t.Errorf("%s does not permit %q", x.tubes, tube)
			}
		}
		for _, tube := range x.not {
			if g.permits(tube) {
				t.Errorf("%s permits %q", x.tubes, tube)
			}
		}
	}
}

// A command that is added to the protocol must not slip through.
func TestEveryCommandIsDeniedToSomebodyWithoutRights(t *testing.T) {
	s := newSim(100, 1)
	c := s.openAs(NewGrant("", 0, nil))
	for op := range codec.Op(255) {
		allowed := c.session.mayExecute(&codec.Command{Op: op, Tube: []byte("a")})
		switch op {
		case codec.OpQuit, codec.OpCapabilities, codec.OpStatsOwnConn, codec.OpListTubeUsed, codec.OpListTubesWatched,
			codec.OpUnknown, codec.OpAuth, codec.OpHTTP, codec.OpBadFormat:
			if !allowed {
				t.Errorf("%v is denied", op)
			}
		default:
			if allowed {
				t.Errorf("%v is allowed", op)
			}
		}
	}
}

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
		if c.session.incoming != nil {
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

// What access control costs, those pay who use it.
func TestAGrantMakesNoOtherSessionBigger(t *testing.T) {
	if n := unsafe.Sizeof(Session{}); n > 112+unsafe.Sizeof(subscription{}) {
		t.Errorf("a session has %d bytes", n)
	}
	if n := unsafe.Sizeof(wait{}); n > 144 { // what the allocator gives anyway
		t.Errorf("what a waiting session has besides has %d bytes", n)
	}
}

func TestHotCommandsOfARestrictedSessionDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPlant(t, 1)
	t.Cleanup(p.clear)
	c := &plantClient{tb: t, loop: p.loops[0]}
	c.loop.OpenGranted(&c.session, NewGrant("", RightAll, []string{"default", "a/*"}), 0)
	c.cycle(0)
	pause := codec.Command{Op: codec.OpPauseTube, Tube: []byte("b")}
	for name, op := range map[string]func(){
		"cycle":       func() { c.cycle(0) },
		"reserve-job": func() { id := c.put(0, 0); c.reserveJob(id); c.delete(id) },
		"peek": func() {
			c.must(&codec.Command{Op: codec.OpPeek, ID: c.put(0, 0)}, "FOUND")
			c.delete(c.reserve())
		},
		"a denied pause": func() { c.must(&pause, "UNKNOWN_COMMAND") },
	} {
		if allocs := testing.AllocsPerRun(1000, op); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
