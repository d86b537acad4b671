package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	peers "trellis/binlog/replica/wire"
)

func init() { scales = append(scales, scale{"snapshot", scaleSnapshot}) }

// snapshotWaits is a cluster of which the leader is asked by probes.
type snapshotWaits struct {
	t *testing.T
	c *testCluster
	// away is the follower that is not there while jobs are put.
	leader, follower, away *clusterNode
}

// scaleSnapshot measures how long clients of a leader wait while it takes a snapshot, sends it to somebody who makes a
// backup, and sends it to a follower that has been away for longer than the log goes back. CLUSTER_JOBS says with how many
// jobs.
//
// The members share processors and a disk here, which they should not, and perhaps with others. So they run before others
// as far as this user may ask for that, the leader first, and there are probes that ask nobody but the machine.
func scaleSnapshot(t *testing.T) {
	jobs := 10_000_000
	if n, err := strconv.Atoi(os.Getenv(clusterJobs)); err == nil {
		jobs = n
	}
	c := startCluster(t, 3)
	m := &snapshotWaits{t: t, c: c, leader: c.leader()}
	m.away = anyOf(c.others(m.leader))
	m.follower = c.others(m.leader, m.away)[0]
	for _, of := range []struct {
		jobs int
		asks []question
	}{
		{jobs, []question{askUse, askPeek, askNobody}},
		{10_000, []question{askUse, askPut, askDisk}}, // an answer to a peek beside puts would wait for them
	} {
		at, err := c.status(m.away)
		if err != nil {
			t.Fatal(err)
		}
		c.stop(m.away)
		began := time.Now()
		pump(t, address{"tcp", m.leader.client}, of.jobs, "INSERTED", putting(100, "0"))
		row(t, "%d jobs of 100 bytes are put in %v", of.jobs, time.Since(began).Round(time.Second))
		m.rest()
		m.measure(at, of.asks)
	}
	c.agree()
	if l := c.leader(); l != m.leader {
		t.Errorf("%s leads, and %s was measured", l.name, m.leader.name)
	}
}

const snapshotTaken = "a snapshot was taken"

// rest waits until the leader takes no snapshot for its log's length.
func (m *snapshotWaits) rest() {
	for n := -1; n != m.leader.logged(snapshotTaken); {
		n = m.leader.logged(snapshotTaken)
		time.Sleep(5 * time.Second)
	}
}

// measure writes a row for each thing that the leader does with a snapshot. at is where the follower is that is away.
func (m *snapshotWaits) measure(at clusterStatus, asks []question) {
	t, c := m.t, m.c
	t.Helper()
	m.phase("nothing happens", asks, func() { time.Sleep(5 * time.Second) })
	taken := m.leader.logged(snapshotTaken)
	backup := make(chan error, 1)
	m.phase("the leader takes a snapshot", asks, func() {
		go func() {
			_, err := peers.Fetch(c.ctx, peers.ClientConfig{}, m.leader.listens, []byte(`{"op":"backup"}`), io.Discard)
			backup <- err
		}()
		c.await(func() error { return m.leader.logs(snapshotTaken, taken) })
	})
	m.phase("it is sent as a backup", asks, func() {
		if err := <-backup; err != nil {
			t.Fatal(err)
		}
	})
	c.await(func() error {
		s, err := c.status(m.leader)
		if err == nil && s.First <= at.Last+1 {
			err = fmt.Errorf("the log begins with entry %d, and the follower has %d", s.First, at.Last)
		}
		return err
	})
	m.phase("it is sent to the follower", asks, func() {
		c.start(m.away)
		m.preferAway(unix.SchedAttr{Nice: -15})
		c.await(func() error {
			s, err := c.status(m.away)
			if err == nil && s.Snapshot <= at.Last {
				err = fmt.Errorf("the follower's snapshot is of entry %d", s.Snapshot)
			}
			return err
		})
	})
	upTo, err := c.status(m.leader)
	if err != nil {
		t.Fatal(err)
	}
	m.phase("the follower loads it", asks, func() {
		c.await(func() error {
			s, err := c.status(m.away)
			if err == nil && s.Applied < upTo.Applied {
				err = fmt.Errorf("the follower has applied %d entries of %d", s.Applied, upTo.Applied)
			}
			return err
		})
	})
}

// longestPhase is how long a phase is measured, and others on this machine have to wait for it.
const longestPhase = 45 * time.Second

// phase does something while probes ask the leader, and writes a row.
func (m *snapshotWaits) phase(what string, asks []question, do func()) {
	m.t.Helper()
	pid := m.leader.cmd.Process.Pid
	var probes []*waitProbe
	for _, q := range asks {
		p := startProbe(m.t, m.leader.client, pid, q)
		prefer(m.t, p.cmd.Process.Pid, realTime(11))
		probes = append(probes, p)
	}
	m.prefer()
	limit := time.AfterFunc(longestPhase, func() {
		for _, p := range probes {
			p.in.Close()
		}
		m.preferNobody()
	})
	for _, p := range probes {
		p.begin(m.t)
	}
	began := time.Now()
	do()
	took := time.Since(began)
	told := ""
	for i, p := range probes {
		p.end(m.t)
		told += fmt.Sprintf("; %s (%d): %v, %v, %v", asks[i], p.n, p.p99.Round(time.Microsecond), p.p999.Round(time.Microsecond), p.longest.Round(time.Microsecond))
	}
	if limit.Stop() {
		m.preferNobody()
	} else {
		what = fmt.Sprintf("%s, the first %v", what, longestPhase)
	}
	row(m.t, "%s, of %v; p99, p99.9 and longest wait of each probe%s", what, took.Round(time.Millisecond), told)
}

// realTime is before all that is not.
func realTime(priority uint32) unix.SchedAttr {
	return unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: priority}
}

// prefer has the leader run before all but the probes, then the follower and the network between them, which is this
// process, and then the other follower. If that one were preferred as the others are, these would have no time left at
// times, and the system would take 50 ms for others.
func (m *snapshotWaits) prefer() {
	m.t.Helper()
	network := realTime(9)
	network.Flags = unix.SCHED_FLAG_RESET_ON_FORK // not for what this process starts
	prefer(m.t, os.Getpid(), network)
	prefer(m.t, m.follower.cmd.Process.Pid, realTime(9))
	prefer(m.t, m.leader.cmd.Process.Pid, realTime(10))
	m.preferAway(unix.SchedAttr{Nice: -15})
}

// preferNobody has all run as what others start does.
func (m *snapshotWaits) preferNobody() {
	m.t.Helper()
	prefer(m.t, os.Getpid(), unix.SchedAttr{})
	prefer(m.t, m.follower.cmd.Process.Pid, unix.SchedAttr{})
	prefer(m.t, m.leader.cmd.Process.Pid, unix.SchedAttr{})
	m.preferAway(unix.SchedAttr{})
}

func (m *snapshotWaits) preferAway(attr unix.SchedAttr) {
	m.t.Helper()
	if m.away.process != nil {
		prefer(m.t, m.away.cmd.Process.Pid, attr)
	}
}

// prefer has all threads of a process scheduled so, or tells that it may not.
func prefer(t *testing.T, pid int, attr unix.SchedAttr) {
	t.Helper()
	attr.Size = unix.SizeofSchedAttr
	for range 2 { // threads that begin meanwhile, too
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			if err == nil {
				err = unix.SchedSetAttr(tid, &attr, 0)
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
