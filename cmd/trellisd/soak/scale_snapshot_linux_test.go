//go:build proof

package soak

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/binlog/replica"
	peers "trellis/binlog/replica/wire"
	"trellis/cmd/internal/control"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

func init() { scales = append(scales, scale{"snapshot", scaleSnapshot}) }

// snapshotBody is the size of the jobs. All that the members have of them in memory and in
// files, which may be in memory as well, is to fit into it.
const snapshotBody = 10

// snapshotWaits is a cluster of which the leader is asked by probes.
type snapshotWaits struct {
	t *testing.T
	c *clustertest.Lab
	// away is the follower that is not there while jobs are put.
	leader, follower, away *clustertest.Node
}

// scaleSnapshot measures how long clients of a leader wait while it takes a snapshot, sends it to somebody who makes a
// backup, and sends it to a follower that has been away for longer than the log goes back. CLUSTER_JOBS says with how many
// jobs.
//
// The members share processors and a disk here, which they should not, and perhaps with others. So they run before others
// as far as this user may ask for that, the leader first, and there are probes that ask nobody but the machine.
func scaleSnapshot(t *testing.T) {
	jobs := 10_000_000
	if n, err := strconv.Atoi(os.Getenv("CLUSTER_JOBS")); err == nil {
		jobs = n
	}
	c := clustertest.StartLab(t, 3)
	c.Ctx = t.Context() // it takes as long as it takes
	m := &snapshotWaits{t: t, c: c, leader: c.Leader()}
	m.away = clustertest.AnyOf(c.Others(m.leader))
	m.follower = c.Others(m.leader, m.away)[0]
	for _, of := range []struct {
		jobs int
		asks []question
	}{
		{jobs, []question{askUse, askPeek}},
		{10_000, []question{askUse, askPut, askDisk}}, // an answer to a peek beside puts would wait for them
	} {
		at, err := c.Status(m.away)
		if err != nil {
			t.Fatal(err)
		}
		c.Stop(m.away)
		began := time.Now()
		pump(t, servertest.AddrOn("tcp", m.leader.Client), of.jobs, "INSERTED", putting(snapshotBody, "0"))
		row(t, "%d jobs of %d bytes are put in %v", of.jobs, snapshotBody, time.Since(began).Round(time.Second))
		m.rest()
		m.measure(at, of.asks)
	}
	m.compare()
	if l := c.Leader(); l != m.leader {
		t.Errorf("%s leads, and %s was measured", l.Name, m.leader.Name)
	}
}

// compare compares the jobs of all members. Nobody changes them any more, but entries that tell the time come every 10 s,
// and a digest may take longer than that.
func (m *snapshotWaits) compare() {
	var first *replica.Digest
	for _, n := range m.c.Nodes {
		b, err := peers.Call(m.c.Ctx, peers.ClientConfig{}, n.Listens, []byte(`{"op":"status","digest":true}`))
		var s control.Status
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err != nil || s.Digest == nil {
			m.t.Fatalf("%+v, %v", s, err)
		}
		if first == nil {
			first = s.Digest
		}
		if *s.Digest != *first {
			m.t.Errorf("%s has the jobs %+v, and %s %+v", m.c.Nodes[0].Name, first, n.Name, s.Digest)
		}
		if s.Contradictions != 0 {
			m.t.Errorf("%s has met %d contradictions between records of reservations", n.Name, s.Contradictions)
		}
	}
}

const snapshotTaken = "a snapshot was taken"

// rest waits until the leader takes no snapshot for its log's length.
func (m *snapshotWaits) rest() {
	for n := -1; n != m.leader.Logged(snapshotTaken); {
		n = m.leader.Logged(snapshotTaken)
		time.Sleep(5 * time.Second)
	}
}

// measure writes a row for each thing that the leader does with a snapshot. at is where the follower is that is away.
func (m *snapshotWaits) measure(at control.Status, asks []question) {
	t, c := m.t, m.c
	t.Helper()
	m.phase("nothing happens", asks, func() { time.Sleep(5 * time.Second) })
	taken := m.leader.Logged(snapshotTaken)
	backup := make(chan error, 1)
	m.phase("the leader takes a snapshot", asks, func() {
		go func() {
			_, err := peers.Fetch(c.Ctx, peers.ClientConfig{}, m.leader.Listens, []byte(`{"op":"backup"}`), io.Discard)
			backup <- err
		}()
		c.Await(func() error { return m.leader.Logs(snapshotTaken, taken) })
	})
	m.phase("it is sent as a backup", asks, func() {
		if err := <-backup; err != nil {
			t.Fatal(err)
		}
	})
	c.Await(func() error {
		s, err := c.Status(m.leader)
		if err == nil && s.First <= at.Last+1 {
			err = fmt.Errorf("the log begins with entry %d, and the follower has %d", s.First, at.Last)
		}
		return err
	})
	m.phase("it is sent to the follower", asks, func() {
		c.Start(m.away)
		c.Await(func() error {
			s, err := c.Status(m.away)
			if err == nil && s.Snapshot <= at.Last {
				err = fmt.Errorf("the follower's snapshot is of entry %d", s.Snapshot)
			}
			return err
		})
	})
	upTo, err := c.Status(m.leader)
	if err != nil {
		t.Fatal(err)
	}
	m.phase("the follower loads it", asks, func() {
		c.Await(func() error {
			s, err := c.Status(m.away)
			if err == nil && s.Applied < upTo.Applied {
				err = fmt.Errorf("the follower has applied %d entries of %d", s.Applied, upTo.Applied)
			}
			return err
		})
	})
}

// longestPhase is how long a phase is measured, and others on this machine have to wait for it.
const longestPhase = 25 * time.Second

// phase does something while probes ask the leader, and writes a row.
func (m *snapshotWaits) phase(what string, asks []question, do func()) {
	m.t.Helper()
	m.prefer()
	limit := time.AfterFunc(longestPhase, m.preferNobody)
	took, told := probed(m.t, m.leader.Client, m.leader.Cmd.Process.Pid, asks, do)
	if limit.Stop() {
		m.preferNobody()
	} else {
		what = fmt.Sprintf("%s, the first %v", what, longestPhase)
	}
	row(m.t, "%s, of %v; p99, p99.9, longest, and longest without the machine's of each probe%s", what, took.Round(time.Millisecond), told)
}

// probed does something while probes ask a server, for longestPhase at most. It returns what they tell. On each processor
// there is one more probe, which asks nobody. What is left of a wait when the time is taken off it that any of these was
// kept waiting for a processor is what the server and its peers have taken.
func probed(t *testing.T, address string, pid int, asks []question, do func()) (took time.Duration, told string) {
	t.Helper()
	var probes []*waitProbe
	start := func(q question) *waitProbe {
		p := startProbe(t, address, pid, q)
		prefer(t, p.cmd.Process.Pid, -20)
		probes = append(probes, p)
		return p
	}
	for _, q := range asks {
		start(q)
	}
	for cpu := range runtime.NumCPU() {
		bindProcess(t, start(askNobody).cmd.Process.Pid, cpu)
	}
	limit := time.AfterFunc(longestPhase, func() {
		for _, p := range probes {
			p.in.Close()
		}
	})
	defer limit.Stop()
	for _, p := range probes {
		p.begin(t)
	}
	began := time.Now()
	do()
	took = time.Since(began)
	var kept []interval
	longest := time.Duration(0)
	for _, p := range probes {
		p.end(t)
	}
	for _, p := range probes[len(asks):] {
		kept = append(kept, p.slow...)
		longest = max(longest, p.longest)
	}
	slices.SortFunc(kept, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	for i, q := range asks {
		p := probes[i]
		told += fmt.Sprintf("; %s (%d): %v, %v, %v, %v", q, p.n, round(p.p99), round(p.p999), round(p.longest), round(alone(p.slow, kept)))
	}
	return took, told + fmt.Sprintf("; nobody: %v", round(longest))
}

// bindProcess has all threads of a process run on one processor.
func bindProcess(t *testing.T, pid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	eachThread(t, pid, func(tid int) error { return unix.SchedSetaffinity(tid, &set) })
}

// prefer makes the leader run before what others have started, and then the follower and the network between them, which
// is this process. The probes run before all of them. The follower that was away gets no preference, as on a machine of its own
// it would not compete with the leader.
func (m *snapshotWaits) prefer() {
	m.t.Helper()
	prefer(m.t, m.leader.Cmd.Process.Pid, -15)
	prefer(m.t, os.Getpid(), -12)
	prefer(m.t, m.follower.Cmd.Process.Pid, -12)
}

// preferNobody lets all run as what others start does.
func (m *snapshotWaits) preferNobody() {
	m.t.Helper()
	prefer(m.t, os.Getpid(), 0)
	prefer(m.t, m.follower.Cmd.Process.Pid, 0)
	prefer(m.t, m.leader.Cmd.Process.Pid, 0)
}

// prefer gives all threads of a process this nice value, or tells that it may not. The system may look at it among the
// processes of one session only: see autogroups in sched(7).
func prefer(t *testing.T, pid, nice int) {
	t.Helper()
	eachThread(t, pid, func(tid int) error { return unix.Setpriority(unix.PRIO_PROCESS, tid, nice) })
}

// eachThread does something to all threads of a process, or tells that it may not.
func eachThread(t *testing.T, pid int, do func(tid int) error) {
	t.Helper()
	for range 2 { // threads that begin meanwhile, too
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			if err == nil {
				err = do(tid)
			}
			if errors.Is(err, unix.ESRCH) {
				err = nil
			}
		}
		if err != nil {
			t.Logf("process %d runs as it did: %v", pid, err)
			return
		}
	}
}
