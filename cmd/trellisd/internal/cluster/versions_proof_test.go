//go:build proof

package cluster

import (
	"fmt"
	"testing"
)

// A member whose trunks are of version 1, beside others: its clients end with their trunk, and those of a leader of that
// version with its leadership, as ever. Nobody is told anything false, and what they held is free.
func TestMembersOfAnEarlierVersionOfTrunks(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, true, make([]uint32, 3)...)
	const old = 1
	r.all()
	if err := r.stop(old); err != nil {
		t.Fatal(err)
	}
	r.trunks[old] = 1
	r.start(old, nil, listenLocally(t))
	for n := range 6 {
		r.all()
		l, _ := r.leader(-1)
		tube := fmt.Sprint("tube", n)
		var clients []*asideClient
		for i := range r.queues {
			clients = append(clients, r.hold(i, tube))
		}
		if n%2 == 0 {
			r.transfer(l)
		} else {
			r.members[l].resign("a test")
		}
		r.all()
		free := 0
		for i, c := range clients {
			line, err := c.say("list-tube-used\r\n")
			switch {
			case err != nil:
				free++
			case line != "USING "+tube+"\r\n":
				t.Errorf("a client of member %d is told %q", i, line)
			default:
				_ = c.Close() // what it holds is free, too
				free++
			}
		}
		for range free {
			r.free(r.others(old)[0], tube)
		}
	}
}
