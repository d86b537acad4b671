//go:build proof

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trellis/binlog/record"
	"trellis/binlog/replica"
	"trellis/binlog/vfs/faultfs"
)

// bodyFiles are the names of a member's body files, oldest first, without the one that may be written to.
func (r *rig) bodyFiles(i int) (names []string) {
	r.t.Helper()
	dir := filepath.Join(r.dirs[i], "bodies")
	list, err := r.disks[i].List(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range list {
		if record.FileIndex(e.Name) > 0 {
			names = append(names, filepath.Join(dir, e.Name))
		}
	}
	return names[:max(0, len(names)-1)]
}

// damage overwrites the header of a member's file, and some of the rest, in which there are bodies.
func (r *rig) damage(i int, name string) {
	r.t.Helper()
	f, err := r.disks[i].Open(name)
	for at, n := range map[int64]int{0: record.HeaderSize, 100_000: 50 * coldSize} {
		if err == nil {
			_, err = f.WriteAt(make([]byte, n), at)
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		r.t.Fatal(err)
	}
}

// A leader whose disk takes no bodies refuses puts when memory is used up, at once or after a moment. All else goes on,
// and so do puts when it has room.
func TestALeaderThatCannotSpillRefusesPuts(t *testing.T) {
	t.Parallel()
	r := coldRig(t, map[int]*faultfs.FS{})
	r.all()
	l, _ := r.leader(-1)
	r.disks[l].Hook(func(c faultfs.Call) faultfs.Fault {
		if slices.Contains([]string{"create", "allocate", "write"}, c.Op) && strings.HasPrefix(c.Name, r.dirs[l]+"/bodies/") {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	c, _ := r.must(l, "use default\r\n", "USING ")
	put := func(n int) string {
		line, err := c.say(fmt.Sprintf("put 0 0 100 %d\r\n%s\r\n", coldSize, coldBody(n)))
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	n := 0
	for ; strings.HasPrefix(put(n), "INSERTED "); n++ {
		if n > 2*coldLimit/coldSize {
			t.Fatal("memory has no end")
		}
	}
	if line := put(n); line != "OUT_OF_MEMORY\r\n" || n < coldLimit/coldSize/2 {
		t.Errorf("behind %d jobs a put is answered %q", n, line)
	}
	seen := map[int]bool{}
	r.takeCold(l, 10, seen)
	r.disks[l].Hook(nil)
	r.eventually("it takes jobs again", func() bool { return strings.HasPrefix(put(n), "INSERTED ") })
	r.putCold(l, n+1, 3*n)
	r.eventually("bodies leave memory", func() bool { return r.node(l).Bodies().Memory <= coldLimit })
	r.equal()
	r.takeCold(l, 3*n, seen)
}

// Jobs whose bodies a leader cannot read are buried, one by one and on record, and the others go on. Another member,
// which has them in files of its own, gives their bodies.
func TestJobsThatALeaderCannotReadAreBuriedForAll(t *testing.T) {
	t.Parallel()
	const jobs = 1200
	r := coldRig(t, map[int]*faultfs.FS{})
	r.all()
	l, _ := r.leader(-1)
	r.putCold(l, 0, jobs)
	r.equal()
	r.eventually("there are files", func() bool { return len(r.bodyFiles(l)) > 2 })
	r.damage(l, r.bodyFiles(l)[1])
	seen := map[int]bool{}
	c, _ := r.must(l, "watch default\r\n", "WATCHING ")
	say := func(line string) string {
		answer, err := c.say(line)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for {
		line := say("reserve-with-timeout 0\r\n")
		if line == "TIMED_OUT\r\n" {
			break
		}
		id, body, err := c.body(line, "RESERVED %d %d")
		n := -1
		if err == nil {
			_, err = fmt.Sscanf(body, "job %d ", &n)
		}
		if err != nil || body != coldBody(n) {
			t.Fatalf("job %d has the body %.20q: %v", id, body, err)
		}
		seen[n] = true
		if line := say(fmt.Sprintf("delete %d\r\n", id)); line != "DELETED\r\n" {
			t.Fatal(line)
		}
	}
	buried := jobs - len(seen)
	if b := r.node(l).Bodies(); buried == 0 || len(seen) < jobs/2 || b.Files.Unreadable < uint64(buried) {
		t.Errorf("%d jobs are taken, %d are not, and %d bodies were unreadable", len(seen), buried, b.Files.Unreadable)
	}
	r.transfer(l)
	next, _ := r.leader(l)
	c, _ = r.must(next, "use default\r\n", "USING ")
	if line, want := say("kick 10000\r\n"), fmt.Sprintf("KICKED %d\r\n", buried); line != want {
		t.Errorf("the next leader says %q, want %q", line, want)
	}
	r.takeCold(next, jobs, seen)
	r.putCold(next, jobs, jobs+10)
	r.equal()
}

// A member with a damaged body starts, and does not if it is to have all bodies in memory.
func TestAMemberWithADamagedBodyStartsOnlyIfItNeedNotReadIt(t *testing.T) {
	t.Parallel()
	const jobs = 1200
	r := coldRig(t, map[int]*faultfs.FS{})
	r.all()
	l, _ := r.leader(-1)
	r.putCold(l, 0, jobs)
	r.equal()
	s := r.others(l)[0]
	r.coldSnapshot(s)
	if err := r.stop(s); err != nil {
		t.Fatal(err)
	}
	bad := r.bodyFiles(s)[0]
	r.damage(s, bad)
	r.start(s, nil, listenLocally(t))
	r.all()
	r.eventually("it has applied all", func() bool {
		a, b := r.members[s].Status(), r.members[l].Status()
		return a != nil && a.Applied == b.Applied
	})
	if err := r.stop(s); err != nil {
		t.Fatal(err)
	}
	r.bodies = 0
	r.start(s, nil, listenLocally(t))
	if err := r.ended(s); !errors.Is(err, replica.ErrBodies) || !strings.Contains(err.Error(), bad) {
		t.Errorf("it does not end, or names no file: %v", err)
	}
	r.takeCold(r.others(-1)[0], jobs, map[int]bool{})
}
