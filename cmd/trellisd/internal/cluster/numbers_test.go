package cluster

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/reactor"
)

// A number is for the process of the member that has asked for it, and for nobody else.
func TestALeaderTakesTrunksOfNumbersThatItHasGiven(t *testing.T) {
	t.Parallel()
	old := uint32(replica.VersionOfTrunks - 1) // nobody forwards clients, and asks for numbers
	r := newRigOf(t, false, old, old, old)
	id := func(i int) member.ID { return r.members[i].Status().Self }
	var numbers []uint32
	var l, g int
	r.eventually("a member is given numbers", func() bool { // again where another one leads by now
		l, _ = r.leader(-1)
		g = r.others(l)[0]
		first, err := r.members[g].askNumbers(t.Context(), id(l), 77, 3)
		if err != nil {
			return false
		}
		numbers, err = r.members[g].askNumbers(t.Context(), id(l), 77, 3)
		if err != nil {
			return false
		}
		if len(numbers) != 3 || first[0] != numbers[0] || first[2] != numbers[2] {
			t.Fatalf("%v, and asked again %v", first, numbers)
		}
		return true
	})
	for name, h := range map[string]wire.TrunkHello{
		"another process": {Version: 1, Number: numbers[0], Nonce: 78, Count: 1},
		"another number":  {Version: 1, Number: numbers[2] + 1000, Nonce: 77, Count: 1},
	} {
		r.eventually(name+" is refused", func() bool {
			k, err := r.members[g].transport.DialTrunk(t.Context(), id(l), h)
			if err == nil {
				k.End(nil)
				t.Fatalf("%s has a trunk", name)
			}
			l, _ = r.leader(-1)
			return strings.Contains(err.Error(), "was not given to this process")
		})
	}
	ask := func(from wire.Caller, q numbersRequest) error {
		q.Op = opNumbers
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.members[l].control(t.Context(), from, b, nil)
		return err
	}
	good := numbersRequest{Member: id(g), Nonce: 77, Loops: 3}
	stranger := wire.Caller{Member: errors.New("no member's certificate")}
	if err := ask(stranger, good); !errors.Is(err, stranger.Member) {
		t.Errorf("a stranger: %v", err)
	}
	for name, change := range map[string]func(*numbersRequest){
		"no nonce":      func(q *numbersRequest) { q.Nonce = 0 },
		"no loops":      func(q *numbersRequest) { q.Loops = 0 },
		"many loops":    func(q *numbersRequest) { q.Loops = reactor.MaxLoops + 1 },
		"who is nobody": func(q *numbersRequest) { q.Member = 1 },
	} {
		q := good
		change(&q)
		if err := ask(wire.Caller{}, q); err == nil || errors.Is(err, errNotServing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAMemberWhoseNumbersAreGoneTakesOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	r.eventually("numbers of a gateway are gone", func() bool {
		l, _ := r.leader(-1)
		g := r.others(l)[0]
		_, err := r.members[g].askNumbers(t.Context(), r.members[l].Status().Self, 77, 1)
		return err == nil
	})
	r.all()
	for i := range r.members {
		r.must(i, "use x\r\n", "USING x\r\n")
	}
}

// A gateway that reads in the log that its numbers are gone resets its clients, whatever its trunks say.
func TestClientsEndWithTheNumberOfTheirLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	var c *asideClient
	r.eventually("a gateway's numbers are gone", func() bool { // again where another member leads by then
		l, _ := r.leader(-1)
		g := r.others(l)[0]
		var err error
		if c, _, err = r.try(g, false, "use x\r\n"); err != nil {
			return false
		}
		s, f := r.queues[l].serving(), r.queues[g].forwarded()
		if s == nil || f == nil {
			return false
		}
		var pos journal.Pos
		for _, n := range f.self.all() { // past the engine, which waits for the ends of their trunks
			if pos, err = s.leadership.Numbers(&journal.Numbers{First: n, Count: 1}); err != nil {
				return false
			}
		}
		return s.await(s.ended, pos)
	})
	if got := c.ended(t); got != "" {
		t.Errorf("the client is told %q", got)
	}
}
