package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// said is what a sim's audit was told of since it was asked last.
func (s *sim) said() (all []string) {
	for _, d := range s.deeds {
		line := fmt.Sprintf("%s@%s %v", d.Client, d.Peer(), d.Op)
		for _, x := range []string{d.Tube, d.To} {
			if x != "" {
				line += " " + x
			}
		}
		if d.ID != 0 {
			line += fmt.Sprint(" #", d.ID)
		}
		if d.Denied {
			line += " denied"
		}
		all = append(all, line+": "+d.Result)
	}
	s.deeds = nil
	return all
}

func (s *sim) wantSaid(t *testing.T, want ...string) {
	t.Helper()
	if got := s.said(); !slices.Equal(got, want) {
		t.Errorf("told of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheAuditIsToldWhatWasDoneAndWhatCameOfIt(t *testing.T) {
	s := newSim(100, 2)
	root, other := s.open(), s.openAs(NewGrant("other", RightAll|RightAdmin, []string{"*"}))
	root.say("use a", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "reserve-with-timeout 0", "peek 1", "kick 1", "stats", "delete 1")
	s.wantSaid(t) // what clients do with their own is nobody's business
	root.say("move-job 2 b", "move-tube a ready auth/token 5", "set-dlq a 1 b", "pause-tube a 7", "kick-tube a 1", "delete-tube-jobs b ready 1", "flush-tube none")
	s.wantSaid(t,
		"@[::1]:12345 move-job b #2: MOVED", "@[::1]:12345 move-tube a auth/: MOVED 1", "@[::1]:12345 set-dlq a b: DLQ_SET",
		"@[::1]:12345 pause-tube a: PAUSED", "@[::1]:12345 kick-tube a: KICKED 0", "@[::1]:12345 delete-tube-jobs b: DELETED 1",
		"@[::1]:12345 flush-tube none: NOT_FOUND")
	other.say("drain", "drain status", "undrain", "kick-connection 1", "kick-connection 7", "kick-connection 2")
	s.wantSaid(t,
		"other@[::1]:12345 drain: DRAINING", "other@[::1]:12345 undrain: NOT_DRAINING", "other@[::1]:12345 kick-connection #1: KICKED",
		"other@[::1]:12345 kick-connection #7: NOT_FOUND", "other@[::1]:12345 kick-connection #2: KICKED")
}

func TestTheAuditIsToldOfALongCommandWhenItEnds(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	const n = 3 * roundBudget
	c.say("use a")
	c.putMany(t, 1, n, "put 0 0 9 0\r\n\r\n")
	for _, whole := range []bool{false, true} {
		if c.start(t, "flush-tube a") != Wait {
			t.Fatal("it is done at once")
		}
		s.wantSaid(t)
		if !whole {
			c.end()
			s.wantSaid(t, "@[::1]:12345 flush-tube a: (unfinished)")
			s.Settle()
			c = s.open()
			continue
		}
		slow(t, s).rounds()
		s.wantSaid(t, "@[::1]:12345 flush-tube a: "+strings.TrimSuffix(c.took(), "\r\n"))
	}
}

func TestTheAuditIsToldWhatWasDeniedAndOnWhichTube(t *testing.T) {
	s := newSim(100, 1)
	root := s.open()
	root.say("use secret", "put 0 0 9 1", "x", "use auth/token", "put 0 0 9 1", "x")
	root.expect(t, "INSERTED 3\r\n", "put 0 0 9 1\r\nx\r\n")
	c := s.openAs(NewGrant("c", RightPut|RightWork|RightRead|RightManage, []string{"a"}))
	no := "UNKNOWN_COMMAND\r\n"
	c.expect(t, no, "put 0 0 9 1\r\nx\r\n")
	c.expect(t, "", "put 0 0 9 1\r\nx") // what is missing comes later
	c.expect(t, no, "\r\n")
	c.expect(t, no, "put 0 0 9 101\r\n%s\r\n", strings.Repeat("x", 101))
	c.expect(t, "NOT_FOUND\r\n", "delete 1\r\n")
	c.expect(t, "NOT_FOUND\r\n", "move-job 1 a\r\n")
	c.expect(t, "NOT_FOUND\r\n", "peek 2\r\n")
	c.expect(t, "NOT_FOUND\r\n", "delete 4\r\n") // there is no such job
	c.expect(t, no, "kick 1\r\n")
	c.expect(t, no, "move-tube a ready b 1\r\n")
	c.expect(t, no, "drain\r\n")
	c.expect(t, no, "kick-connection 1\r\n")
	c.expect(t, no, "use auth/token\r\n")
	var want []string
	for _, line := range []string{
		"put default", "put default", "put default", "delete secret #1", "move-job secret a #1", "peek auth/ #2",
		"kick default", "move-tube a b", "drain", "kick-connection #1", "use auth/",
	} {
		result := "UNKNOWN_COMMAND"
		if strings.Contains(line, "secret") || strings.Contains(line, "peek") {
			result = "NOT_FOUND"
		}
		want = append(want, "c@[::1]:12345 "+line+" denied: "+result)
	}
	s.wantSaid(t, want...)
}

func TestADenialIsToldOfWhereTheClientIsConnected(t *testing.T) {
	s := newSim(100, 1)
	c := s.openAs(NewGrant("anna", RightPut|RightManage, []string{"a"}))
	c.via = "n2"
	s.open().say("use b", "put 0 0 9 1", "x")
	c.say("pause-tube a 1", "pause-tube b 1", "move-tube a ready b 5", "delete 1", "use auth/secret")
	s.wantSaid(t, "anna@[::1]:12345 pause-tube a: NOT_FOUND")
	for _, d := range c.denied {
		s.deeds = append(s.deeds, Deed{Client: d.Client, Op: d.Op, Tube: d.Tube, To: d.To, ID: d.ID, Result: d.Result, Denied: d.Denied}.At("192.0.2.1:7"))
	}
	s.wantSaid(t,
		"anna@192.0.2.1:7 pause-tube b denied: UNKNOWN_COMMAND",
		"anna@192.0.2.1:7 move-tube a b denied: UNKNOWN_COMMAND",
		"anna@192.0.2.1:7 delete b #1 denied: NOT_FOUND",
		"anna@192.0.2.1:7 use auth/ denied: UNKNOWN_COMMAND")
}
