package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resize gives a disk of smallDisk's so many bytes beyond those that are used.
func resize(t *testing.T, disk string, free int64) {
	t.Helper()
	var st unix.Statfs_t
	err := unix.Statfs(disk, &st)
	if err == nil {
		used := (int64(st.Blocks) - int64(st.Bfree)) * st.Bsize
		err = unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used+free))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// producer puts large jobs into a cluster, wherever that serves.
type producer struct {
	c     *testCluster
	conn  net.Conn // nil when it was lost
	in    *bufio.Reader
	acked int
}

// put tries once and returns the reply, "" if none has come.
func (p *producer) put(size int) (reply string) {
	t := p.c.t
	t.Helper()
	if p.conn == nil {
		for _, addr := range p.c.addrs() {
			if conn, err := net.Dial("tcp", addr); err == nil {
				p.conn, p.in = conn, bufio.NewReader(conn)
				break
			}
		}
		if p.conn == nil {
			time.Sleep(10 * time.Millisecond)
			return ""
		}
	}
	if err := p.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.conn, "put 0 0 100 %d\r\n%s\r\n", size, strings.Repeat("x", size)); err == nil {
		line, err := p.in.ReadString('\n')
		if err == nil {
			if strings.HasPrefix(line, "INSERTED") {
				p.acked++
			}
			return strings.TrimSpace(line)
		}
	}
	_ = p.conn.Close()
	p.conn = nil
	return ""
}

// until puts large jobs until something is so.
func (p *producer) until(so func() error) {
	p.c.t.Helper()
	p.c.await(func() error {
		for range 20 {
			p.put(60_000)
		}
		return so()
	})
}

// answered puts small jobs until one is answered like that.
func (p *producer) answered(want string) {
	p.c.t.Helper()
	p.c.await(func() error {
		if got := p.put(1); !strings.HasPrefix(got, want) {
			return fmt.Errorf("a put is answered %q, not %s", got, want)
		}
		return nil
	})
}

// logs tells whether a node has logged something more often than before.
func (n *clusterNode) logs(text string, before int) error {
	if n.logged(text) > before {
		return nil
	}
	return fmt.Errorf("%s has not logged %q", n.name, text)
}

func (n *clusterNode) logged(text string) (times int) {
	for _, l := range n.log() {
		if strings.Contains(l, text) {
			times++
		}
	}
	return times
}

// A member with a full disk waits for space. A follower is waited for by nobody; a leader
// gives up its office. With little space on most disks new jobs are refused, and what
// there is can be worked on.
func TestFullDisksOfMembers(t *testing.T) {
	t.Parallel()
	const size = 2 << 30
	var disks []string
	for range 3 {
		disks = append(disks, smallDisk(t, size))
	}
	c := startCluster(t, 3, disks...)
	disk := func(n *clusterNode) string {
		for i, x := range c.nodes {
			if x == n {
				return disks[i]
			}
		}
		panic("a node without a disk")
	}
	p := &producer{c: c}
	const full = "the disk is full"

	l := c.leader()
	f := anyOf(c.others(l))
	resize(t, disk(f), 0)
	p.until(func() error { return f.logs(full, 0) })
	p.answered("INSERTED")
	if s, err := c.status(l); err != nil || !s.Serves {
		t.Errorf("the leader does not serve because %s has no space: %v", f.name, err)
	}
	resize(t, disk(f), size)
	c.agree()

	l = c.leader()
	before := l.logged(full)
	resize(t, disk(l), 0)
	p.until(func() error { return l.logs(full, before) })
	c.leader(c.others(l)...)
	p.answered("INSERTED")
	resize(t, disk(l), size)
	c.agree()

	l = c.leader()
	for _, n := range c.others(l) {
		resize(t, disk(n), 100<<20)
	}
	p.answered("OUT_OF_MEMORY")
	w := dial(t, address{"tcp", c.leader().client})
	w.send("reserve", "delete 1")
	if line := w.line(); !strings.HasPrefix(line, "RESERVED 1 ") {
		t.Fatal(line)
	}
	w.line()
	w.want("DELETED")
	for _, n := range c.others(l) {
		resize(t, disk(n), size)
	}
	p.answered("INSERTED")
	c.agree()
	left := number(t, stats(dial(t, address{"tcp", c.leader().client}))["current-jobs-ready"])
	if left < float64(p.acked-1) {
		t.Errorf("%v jobs are ready, and %d were acknowledged and not deleted", left, p.acked-1)
	}
	_ = p.conn.Close()
}
