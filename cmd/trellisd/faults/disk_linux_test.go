//go:build proof

package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// resize gives a disk of smallDisk's so many bytes beyond those that are used. Who writes to it meanwhile may use more
// than it is to have: then it is tried again.
func resize(t *testing.T, disk string, free int64) {
	t.Helper()
	for end := time.Now().Add(servertest.Patience); ; time.Sleep(time.Millisecond) {
		var st unix.Statfs_t
		err := unix.Statfs(disk, &st)
		if err == nil {
			used := (int64(st.Blocks) - int64(st.Bfree)) * st.Bsize
			err = unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used+free))
		}
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINVAL) || time.Now().After(end) {
			t.Fatalf("giving %s %d bytes more than it uses: %v", disk, free, err)
		}
	}
}

// producer puts jobs into a cluster, wherever that serves.
type producer struct {
	c     *testCluster
	at    *clustertest.Node // where it connects; nil for any
	conn  net.Conn          // nil when it was lost
	in    *bufio.Reader
	acked int // jobs
}

// connected reports whether there is a connection, after an attempt to make one.
func (p *producer) connected() bool {
	addrs := p.c.Addrs()
	if p.at != nil {
		addrs = []string{p.at.Client}
	}
	for _, addr := range addrs {
		if p.conn != nil {
			break
		}
		if conn, err := net.Dial("tcp", addr); err == nil {
			p.conn, p.in = conn, bufio.NewReader(conn)
		}
	}
	if p.conn == nil {
		time.Sleep(10 * time.Millisecond)
		return false
	}
	return p.conn.SetDeadline(time.Now().Add(servertest.Patience)) == nil
}

// ask sends commands that are answered by one line each, and returns the lines that have
// come: fewer if the connection was lost.
func (p *producer) ask(commands ...string) (lines []string) {
	if !p.connected() {
		return nil
	}
	_, err := io.WriteString(p.conn, strings.Join(commands, "\r\n")+"\r\n")
	for range commands {
		var line string
		if err == nil {
			line, err = p.in.ReadString('\n')
		}
		if err != nil {
			_ = p.conn.Close()
			p.conn = nil
			break
		}
		lines = append(lines, strings.TrimSuffix(line, "\r\n"))
	}
	return lines
}

// reply sends a command, and returns its reply with what that announces; "" if the
// connection was lost.
func (p *producer) reply(command string) string {
	lines := p.ask(command)
	if len(lines) == 0 {
		return ""
	}
	f := strings.Fields(lines[0])
	if f[0] != "OK" && f[0] != "RESERVED" && f[0] != "FOUND" {
		return lines[0]
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		p.c.T.Fatalf("%s: %q", command, lines[0])
	}
	body := make([]byte, n+2)
	if _, err := io.ReadFull(p.in, body); err != nil {
		_ = p.conn.Close()
		p.conn = nil
		return ""
	}
	return lines[0] + "\n" + string(body[:n])
}

// put tries to put jobs and returns the replies that have come.
func (p *producer) put(size, jobs int) (replies []string) {
	body := strings.Repeat("x", size)
	replies = p.ask(slices.Repeat([]string{fmt.Sprintf("put 5 0 100 %d\r\n%s", size, body)}, jobs)...)
	for _, r := range replies {
		if strings.HasPrefix(r, "INSERTED") {
			p.acked++
		}
	}
	return replies
}

// fill puts large jobs until a member says that its disk is full. That the member gives up its reserve for them is of no
// use for long: what it has freed is taken away.
func (p *producer) fill(n *clustertest.Node) {
	p.c.T.Helper()
	before := n.Logged(full)
	p.c.Await(func() error {
		setFree(p.c.T, n, 0)
		p.put(60_000, 20)
		return n.Logs(full, before)
	})
}

// answered puts small jobs until one is answered like that.
func (p *producer) answered(want string) {
	p.c.T.Helper()
	p.c.Await(func() error {
		if got := p.put(1, 1); len(got) == 0 || !strings.HasPrefix(got[0], want) {
			return fmt.Errorf("a put is answered %q, not %s", got, want)
		}
		return nil
	})
}

const (
	// diskSize is what a member's disk has beyond what is used, unless that is full.
	diskSize = 2 << 30
	// full is what a member says that waits for space.
	full = "the disk is full"
)

// startOnDisks starts a new cluster of nodes with disks of their own.
func startOnDisks(t *testing.T, size int) *testCluster {
	t.Helper()
	var disks []string
	for range size {
		disks = append(disks, servertest.SmallDisk(t, diskSize))
	}
	return startCluster(t, size, disks...)
}

// setFree gives a node's disk so many bytes beyond those that are used.
func setFree(t *testing.T, n *clustertest.Node, free int64) {
	t.Helper()
	resize(t, filepath.Dir(n.Dir), free)
}

// A member with a full disk waits for space. A follower is waited for by nobody; a leader
// steps down. With little space on most disks new jobs are refused, and what
// there is can be worked on.
func TestFullDisksOfMembers(t *testing.T) {
	t.Parallel()
	c := startOnDisks(t, 3)
	p := &producer{c: c}

	l := c.Leader()
	f := clustertest.AnyOf(c.Others(l))
	p.fill(f)
	p.answered("INSERTED")
	setFree(t, f, diskSize)
	c.Agree()

	l = c.Leader()
	p.fill(l)
	c.Leader(c.Others(l)...)
	p.answered("INSERTED")
	setFree(t, l, diskSize)
	c.Agree()

	for _, n := range c.Nodes[:2] {
		setFree(t, n, 0)
	}
	c.Await(func() error {
		if slices.Contains(p.put(60_000, 20), "OUT_OF_MEMORY") {
			return nil
		}
		return errors.New("jobs are not refused")
	})
	deleted := 0
	c.Await(func() error {
		id := strconv.Itoa(deleted + 1)
		switch got := p.ask("delete " + id); {
		case len(got) == 0:
		case got[0] == "DELETED", got[0] == "NOT_FOUND": // or by an attempt without a reply
			deleted++
		default:
			t.Fatalf("a delete is answered %q", got)
		}
		if deleted < 5 {
			return errors.New("jobs cannot be deleted")
		}
		return nil
	})
	for _, n := range c.Nodes[:2] {
		setFree(t, n, diskSize)
	}
	p.answered("INSERTED")
	c.Agree()
	if left := int(c.jobs()); left < p.acked-deleted {
		t.Errorf("there are %d jobs, and %d were acknowledged and %d deleted", left, p.acked, deleted)
	}
	_ = p.conn.Close()
}

// fullDiskOf fills the disk of the leader, or of another member.
func fullDiskOf(leads bool) change {
	return change{"a full disk of " + whom(leads), func(w *crew) {
		n := w.deposes(leads)
		p := &producer{c: w.c, at: clustertest.AnyOf(w.c.Others(n))}
		w.without(func() {
			w.Full.Store(true)
			p.fill(n)
			w.elects(w.c.Others(n)...)
		}, func() { setFree(w.c.T, n, diskSize) }, n)
		if p.conn != nil {
			_ = p.conn.Close()
		}
	}}
}

func TestClientsOfOthersDoNotNoticeAFullDisk(t *testing.T) {
	if os.Getenv(clustertest.TimeEnv) == "" {
		t.Skip("writes gigabytes: make cluster runs it")
	}
	all := []change{fullDiskOf(true), fullDiskOf(false)}
	startOnDisks(t, 3).meet(10, inTurn(all))
}

// jobs is how many jobs a node has, when all have the same.
func (c *testCluster) jobs() (n uint64) {
	c.T.Helper()
	c.Await(func() error {
		s, err := c.Ask(c.Nodes[0], `{"op":"status","digest":true}`)
		if err == nil && s.Digest == nil {
			err = errors.New("there is no digest")
		}
		if err == nil {
			n = s.Digest.Jobs
		}
		return err
	})
	return n
}
