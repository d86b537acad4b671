//go:build proof

package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

const (
	coldLimit = 1 << 18 // bytes of bodies in memory
	coldSize  = 2000    // bytes of a body
)

// coldBody is a body that names its job among those that were put.
func coldBody(n int) string {
	text := fmt.Sprintf("job %d ", n)
	return strings.Repeat(text, coldSize/len(text)+1)[:coldSize]
}

// coldRig is a cluster whose bodies leave memory, on such disks as r.disks has.
func coldRig(t *testing.T, disks map[int]*faultfs.FS) *rig {
	r := &rig{
		t: t, net: newNetwork(true), newest: make([]uint32, 3), trunks: map[int]uint16{}, bodies: coldLimit, every: 1 << 19,
		disks: disks,
	}
	r.startAll()
	return r
}

// putCold puts jobs from one number up to another by way of a member, each once at least.
func (r *rig) putCold(by, from, to int) {
	r.t.Helper()
	c, _ := r.must(by, "use default\r\n", "USING ")
	for n := from; n < to; {
		switch line, err := c.say(fmt.Sprintf("put 0 0 100 %d\r\n%s\r\n", coldSize, coldBody(n))); {
		case err != nil: // the leader is another one
			c, _ = r.must(by, "use default\r\n", "USING ")
		case strings.HasPrefix(line, "INSERTED "):
			n++
		case line != "OUT_OF_MEMORY\r\n":
			r.t.Fatalf("job %d: %q", n, line)
		}
	}
}

// takeCold reserves and deletes jobs by way of a member until so many numbers were seen, each with its body.
func (r *rig) takeCold(by, total int, seen map[int]bool) {
	r.t.Helper()
	c, _ := r.must(by, "watch default\r\n", "WATCHING ")
	for len(seen) < total {
		line, err := c.say("reserve-with-timeout 1\r\n")
		var id uint64
		var body string
		if err == nil {
			if line == "TIMED_OUT\r\n" {
				continue // a client whose connection has ended may have had it
			}
			id, body, err = c.body(line, "RESERVED %d %d")
		}
		if err == nil {
			var n int
			if _, err := fmt.Sscanf(body, "job %d ", &n); err != nil || body != coldBody(n) {
				r.t.Fatalf("job %d has the body %.20q", id, body)
			}
			seen[n] = true
			_, err = c.say(fmt.Sprintf("delete %d\r\n", id))
		}
		if err != nil {
			c, _ = r.must(by, "watch default\r\n", "WATCHING ")
		}
	}
}

// disk is that of a member.
func (r *rig) disk(i int) vfs.FS {
	if d := r.disks[i]; d != nil {
		return d
	}
	return vfs.OS{}
}

// node is the node of a member.
func (r *rig) node(i int) *replica.Node { return r.members[i].node.Load() }

// equal waits until all members have the same jobs, body by body.
func (r *rig) equal() {
	r.t.Helper()
	r.eventually("all members have the same jobs", func() bool {
		var first replica.Digest
		for i, run := range r.runs {
			if run == nil {
				continue
			}
			d := r.queues[i].Digest(0)
			d.Holds = 0
			if first.Jobs == 0 {
				first = d
			}
			if d.Jobs == 0 || d != first {
				return false
			}
		}
		return true
	})
}

// coldSnapshot waits until a member's current snapshot has bodies in body files.
func (r *rig) coldSnapshot(i int) {
	r.t.Helper()
	r.eventually("a snapshot with places", func() bool {
		m, _, err := snapshot.Find(r.disk(i), r.dirs[i]+"/snapshots")
		return err == nil && len(m.Files) > 0
	})
}

// restart ends a member and starts it again.
func (r *rig) restart(i int) {
	r.t.Helper()
	if err := r.stop(i); err != nil {
		r.t.Fatal(err)
	}
	r.start(i, nil, listenLocally(r.t))
	r.eventually("it is there again", func() bool { return r.node(i) != nil && r.queues[i].Present() != nil })
}

// A member that is sent a snapshot has its bodies twice only until they are in files, however short the log is then.
func TestAMemberThatWasSentBodiesTakesASnapshotWithoutThem(t *testing.T) {
	t.Parallel()
	const jobs = 1200
	r := coldRig(t, nil)
	r.all()
	r.putCold(0, 0, jobs)
	l, _ := r.leader(-1)
	listener := listenLocally(t)
	self := member.Node{Name: "n4", Addr: listener.Addr().String()}
	r.run(self, slices.Clone(r.nodes), listener)
	if err := r.members[l].add(t.Context(), r.node(l), r.node(l).Status(), self.String()); err != nil {
		t.Fatal(err)
	}
	r.equal()
	r.coldSnapshot(len(r.members) - 1)
}

// A member may end before it has a queue again after its office, as one that has led before the first job.
func TestAMemberEndsWithoutTheQueueWithWhichItHasLed(t *testing.T) {
	t.Parallel()
	r := coldRig(t, nil)
	r.all()
	l, _ := r.leader(-1)
	r.transfer(l)
	if err := r.stop(l); err != nil {
		t.Error(err)
	}
}

// Members have most bodies in files only, and lose none when they are started again, with the limit or without, when
// another one leads, and to a backup.
func TestMembersWhoseBodiesLeaveMemoryLoseNone(t *testing.T) {
	t.Parallel()
	r := coldRig(t, nil)
	r.all()
	const jobs = 1200
	seen := map[int]bool{}
	r.putCold(0, 0, jobs)
	r.equal()
	for i := range r.runs {
		r.eventually("bodies leave memory", func() bool {
			b := r.node(i).Bodies()
			return b != nil && b.Spilled > 0 && b.Memory <= coldLimit
		})
		r.coldSnapshot(i)
	}
	r.takeCold(0, 50, seen)

	l, _ := r.leader(-1)
	s, o := r.others(l)[0], r.others(l)[1]
	r.restart(s)
	r.equal()
	r.eventually("it has no more bodies in memory than it may", func() bool {
		b := r.node(s).Bodies()
		return b != nil && b.Memory <= coldLimit
	})
	r.all()
	r.transfer(l)
	r.all()
	r.takeCold(s, 100, seen)
	r.equal()

	var b bytes.Buffer
	if _, err := r.node(o).Backup(t.Context(), 0, &b); err != nil {
		t.Fatal(err)
	}
	fs := faultfs.New("backup")
	if m, err := snapshot.Extract(fs, "backup", &b); err != nil || m.Fulls < jobs-100 || m.Bytes < (jobs-100)*coldSize {
		t.Errorf("a backup of %d jobs in %d bytes, %v", m.Fulls, m.Bytes, err)
	}

	r.bodies = 0
	r.restart(o)
	r.equal()
	if r.node(o).Bodies() != nil {
		t.Error("bodies leave memory, though they may not")
	}
	r.eventually("a snapshot with all bodies, which an earlier program reads", func() bool {
		m, _, err := snapshot.Find(vfs.OS{}, r.dirs[o]+"/snapshots")
		return err == nil && len(m.Files) == 0 && m.Records > jobs/2
	})
	r.all()
	r.takeCold(s, jobs, seen)
}

// A member that was away for longer than the logs go back is sent the bodies that it lacks; one that is new, all of them
// into its files; one without the limit, all of them. In the middle of it the leader is another one.
func TestAMemberThatWasAwayIsSentTheBodiesThatItLacks(t *testing.T) {
	t.Parallel()
	r := coldRig(t, nil)
	r.all()
	jobs := 1200
	r.putCold(0, 0, jobs)
	r.equal()
	for i := range r.runs {
		r.coldSnapshot(i)
	}
	l, _ := r.leader(-1)
	away := r.others(l)[0]
	for _, limit := range []int64{coldLimit, 0} {
		if err := r.stop(away); err != nil {
			t.Fatal(err)
		}
		before := r.rests.Load()
		l, _ = r.leader(away)
		logs := func() uint64 { return r.node(l).Status().Snapshot }
		was := logs()
		r.eventually("a log that goes not so far back", func() bool {
			r.putCold(l, jobs, jobs+1500)
			jobs += 1500
			return logs() > was+100
		})
		if limit > 0 {
			r.transfer(l)
		}
		r.bodies = limit
		r.start(away, nil, listenLocally(t))
		r.eventually("it is there again", func() bool { return r.node(away) != nil && r.queues[away].Present() != nil })
		r.equal()
		if n := r.rests.Load() - before; (n > 0) != (limit > 0) {
			t.Errorf("%d snapshots came without bodies, with a limit of %d", n, limit)
		}
	}
	seen := map[int]bool{}
	r.takeCold(away, jobs, seen)
}
