package cluster

import (
	"fmt"
	"strings"
	"testing"

	"trellis/binlog/replica"
)

// lingers has a client of a member reserve a job in a tube that lingers, and returns both.
func (r *rig) lingers(i int, tube string) (c *asideClient, job uint64) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("a client of member %d has a job in a tube that lingers", i), func() bool {
		c = r.hold(i, tube)
		if line, err := c.say(fmt.Sprintf("set-tube %s linger=600\r\n", tube)); err != nil || line != "TUBE_SET\r\n" {
			return false
		}
		line, err := c.say("put 0 0 1000 4\r\nmine\r\n")
		if err != nil || !strings.HasPrefix(line, "INSERTED ") {
			return false
		}
		if line, err = c.say("reserve\r\n"); err != nil {
			return false
		}
		job, _, err = c.body(line, "RESERVED %d %d")
		return err == nil
	})
	return c, job
}

// Who has lost a member, be it the leader or another one, goes on with its job at any that is left.
func TestClientsOfAMemberThatIsKilledGoOnWithTheirJobsElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the leader", "another member"} {
		t.Run(name, func(t *testing.T) {
			r := newCutRig(t, 3)
			r.all()
			killed, _ := r.leader(-1)
			if name != "the leader" {
				killed = r.others(killed)[0]
			}
			_, job := r.lingers(killed, "t")
			r.kill(killed)
			for _, i := range r.others(killed) { // each client leaves the job to the next one
				r.eventually(fmt.Sprintf("a client of member %d works on the job", i), func() bool {
					c, line, err := r.try(i, false, fmt.Sprintf("touch %d\r\n", job))
					if err != nil || line != "TOUCHED\r\n" {
						return false
					}
					return c.Close() == nil
				})
			}
			r.eventually("the job is done", func() bool {
				_, line, err := r.try(r.others(killed)[0], false, fmt.Sprintf("delete %d\r\n", job))
				return err == nil && line == "DELETED\r\n"
			})
		})
	}
}

// A member that cannot read that jobs linger keeps them from that. When it can, they do.
func TestLingerWaitsForTheLastMemberThatCannotReadIt(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, false, 0, replica.VersionOfTrunks, 0)
	r.all()
	l, _ := r.leader(-1)
	r.must(l, "set-tube default linger=10\r\n", "OUT_OF_MEMORY\r\n")
	r.must(l, "list-settings\r\n", "OK 4\r\n")
	if err := r.stop(1); err != nil {
		t.Fatal(err)
	}
	r.newest[1] = 0
	r.start(1, nil, listenLocally(t))
	r.eventually("jobs may linger", func() bool {
		l, _ := r.leader(-1)
		_, line, err := r.try(l, false, "set-tube default linger=10\r\n")
		return err == nil && line == "TUBE_SET\r\n"
	})
}
