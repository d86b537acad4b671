//go:build proof

package crash

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/replica/offline"
	"trellis/binlog/replica/snapshot"
	peers "trellis/binlog/replica/wire"
	"trellis/binlog/vfs"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

const (
	coldLimit   = 64_000_000 // bytes of bodies in the memory of a member
	coldJobs    = 24_000     // of 8,500 bytes
	coldClients = 8
)

// coldCluster is a cluster whose members have most bodies on the disk only.
type coldCluster struct {
	*clustertest.Lab
	books *backlog
}

// connect connects a client with some member.
func (c *coldCluster) connect() *servertest.Client {
	for {
		addrs := c.Addrs()
		conn, err := net.DialTimeout("tcp", addrs[rand.IntN(len(addrs))], servertest.Patience)
		if err == nil {
			return servertest.ClientOn(c.T, conn)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// each has something done by each client, and returns what waits for that.
func (c *coldCluster) each(do func(client int)) (wait func()) {
	var running sync.WaitGroup
	for i := range coldClients {
		running.Go(func() { do(i) })
	}
	return running.Wait
}

// fill has the clients put all jobs.
func (c *coldCluster) fill() (wait func()) {
	const part = coldJobs / coldClients
	return c.each(func(i int) {
		for n := i * part; n < (i+1)*part && c.Ctx.Err() == nil; {
			n = c.books.fill(c.connect(), n, (i+1)*part)
		}
	})
}

// drain has the clients take jobs until so many are left.
func (c *coldCluster) drain(left int) (wait func()) {
	return c.each(func(int) {
		for c.books.left() > left && c.Ctx.Err() == nil {
			c.books.drain(c.connect(), left)
		}
	})
}

// when waits until the books say so, and looks at some members meanwhile: their bodies never take much more memory than
// they may.
func (c *coldCluster) when(what string, so func() bool, among ...*clustertest.Node) {
	c.T.Helper()
	c.Await(func() error {
		for _, n := range among {
			if bytes := c.metric(n, "beanstalkd_bodies_memory_bytes"); bytes > coldLimit*9/8+4<<20 {
				c.T.Errorf("bodies take %.1f MB of the memory of %s", bytes/1e6, n.Name)
			}
		}
		if !so() {
			return fmt.Errorf("%s: not yet", what)
		}
		return nil
	})
}

// put reports whether so many jobs were put.
func (c *coldCluster) put(jobs int) func() bool {
	return func() bool {
		c.books.mu.Lock()
		defer c.books.mu.Unlock()
		return len(c.books.put) >= jobs
	}
}

// left reports whether so few jobs are left.
func (c *coldCluster) left(jobs int) func() bool {
	return func() bool { return c.books.left() <= jobs }
}

// tell has the leader do something.
func (c *coldCluster) tell(request string) {
	c.T.Helper()
	c.Await(func() error { _, err := c.Ask(c.Leader(), request); return err })
}

// metric is a metric of a member, 0 where it has none.
func (c *coldCluster) metric(n *clustertest.Node, name string) (v float64) {
	c.T.Helper()
	n.WaitText(`"listening for HTTP"`)
	_, url, _ := strings.Cut(strings.Join(n.Log(), "\n"), `"msg":"listening for HTTP","addr":"`)
	url, _, _ = strings.Cut(url, `"`)
	_, text, _ := strings.Cut(servertest.Scrape(c.T, "http://"+url), "\n"+name+" ")
	_, _ = fmt.Sscan(text, &v)
	return v
}

// bounded waits until members have most bodies on the disk only, and looks at their processes.
func (c *coldCluster) bounded(among ...*clustertest.Node) {
	c.T.Helper()
	for _, n := range among {
		c.Await(func() error {
			bytes, cold := c.metric(n, "beanstalkd_bodies_memory_bytes"), c.metric(n, "beanstalkd_bodies_cold_jobs")
			if bytes > coldLimit || cold < float64(c.books.left())/2 {
				return fmt.Errorf("%s has %.1f MB of bodies in memory, and %v not", n.Name, bytes/1e6, cold)
			}
			return nil
		})
		rss := c.metric(n, "process_resident_memory_bytes")
		c.T.Logf("%s has %.0f MB of memory, and %.0f MB of body files", n.Name, rss/1e6, c.metric(n, "beanstalkd_bodies_files_bytes")/1e6)
		if rss > 1.25*coldLimit+200e6 {
			c.T.Errorf("%s takes %.0f MB", n.Name, rss/1e6)
		}
	}
}

// again kills a member, and starts it again.
func (c *coldCluster) again(n *clustertest.Node) {
	c.T.Helper()
	c.Stop(n)
	c.Start(n)
}

// backup has a member take a snapshot, and writes a binlog of it.
func (c *coldCluster) backup(n *clustertest.Node, dir string) {
	c.T.Helper()
	c.Await(func() error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		r, w := io.Pipe()
		go func() {
			_, err := peers.Fetch(c.Ctx, peers.ClientConfig{}, n.Listens, []byte(`{"op":"backup"}`), w)
			w.CloseWithError(err)
		}()
		_, err := offline.Backup(vfs.OS{}, dir, r)
		r.CloseWithError(err)
		return err
	})
}

// Members that have three times as much as may be in their memory are killed, stopped for a while, wiped, and started
// without the limit: every body is the one that was put, and none is lost.
func TestABacklogBeyondMemoryOutlivesMembers(t *testing.T) {
	t.Parallel()
	c := &coldCluster{clustertest.NewLab(t), newBacklog(t)}
	add := func() *clustertest.Node {
		n := c.Add(t.TempDir())
		n.Args = []string{"--http=127.0.0.1:0", fmt.Sprint("--body-memory=", coldLimit)}
		return n
	}
	for range 3 {
		add()
	}
	c.StartAll()

	filled := c.fill()
	c.when("an eighth", c.put(coldJobs/8), c.Nodes...)
	c.again(c.Leader())
	c.when("a quarter", c.put(coldJobs/4), c.Nodes...)
	lags := clustertest.AnyOf(c.Others(c.Leader()))
	c.Stop(lags)
	c.when("half", c.put(coldJobs/2), c.Others(lags)...)
	c.Start(lags)
	leader := c.Leader()
	c.when("five eighths", c.put(coldJobs*5/8), c.Nodes...)
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, clustertest.AnyOf(c.Others(leader)).Name))
	stopped := clustertest.AnyOf(c.Others(c.Leader()))
	stopped.Signal(syscall.SIGSTOP)
	c.when("three quarters", c.put(coldJobs*3/4), c.Others(stopped)...)
	stopped.Signal(syscall.SIGCONT)
	filled()
	c.bounded(c.Nodes...)
	c.Agree()

	dir := filepath.Join(t.TempDir(), "backup")
	for _, n := range c.Nodes {
		c.backup(n, dir) // for which it takes a snapshot, from which it starts
		c.again(n)
	}
	c.Agree()
	c.bounded(c.Nodes...)
	s, _ := servertest.Monitored(t, "-b", dir, "--body-memory", fmt.Sprint(coldLimit))
	copied := newBacklog(t)
	copied.put = c.books.put
	if copied.drain(s.Dial(0), 0); copied.left() > 0 {
		t.Errorf("of %d jobs %d are not in the backup", len(copied.put), copied.left())
	}
	s.Kill()

	wiped := clustertest.AnyOf(c.Others(c.Leader()))
	c.Stop(wiped)
	c.Wipe(wiped)
	c.tell(fmt.Sprintf(`{"op":"remove","node":%q}`, wiped.Name))
	c.Nodes = c.Others(wiped)
	added := add()
	c.Start(added)
	c.tell(fmt.Sprintf(`{"op":"add","node":"%s=%s"}`, added.Name, added.Addr))
	c.Agree()
	c.bounded(c.Nodes...)

	all := clustertest.AnyOf(c.Others(added, c.Leader()))
	c.Stop(all)
	all.Args = all.Args[:1]
	c.Start(all)
	c.Agree()
	if n := c.metric(all, "beanstalkd_bodies_memory_limit_bytes"); n != 0 {
		t.Errorf("%s has all bodies in memory, and a limit of %v bytes", all.Name, n)
	}
	c.Await(func() error {
		m, _, err := snapshot.Find(vfs.OS{}, filepath.Join(all.Dir, "snapshots"))
		if err == nil && len(m.Files) > 0 {
			err = fmt.Errorf("%s has a snapshot with %d body files, which no earlier program reads", all.Name, len(m.Files))
		}
		return err
	})

	drained := c.drain(coldJobs / 4)
	c.when("three quarters", c.left(coldJobs*3/4))
	c.again(c.Leader())
	c.when("half", c.left(coldJobs/2))
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, all.Name))
	drained()
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, added.Name))
	c.Agree()
	c.drain(0)()
	c.Await(func() error {
		c.books.drain(c.connect(), 0) // what was put and not acknowledged, and what clients have lost that were cut off
		s, err := c.Ask(c.Leader(), `{"op":"status","digest":true}`)
		if err == nil && s.Digest.Jobs > 0 {
			err = fmt.Errorf("%d jobs are left", s.Digest.Jobs)
		}
		return err
	})
	c.Agree()
	if len(c.books.put) < coldJobs*3/4 {
		t.Errorf("%d jobs were put", len(c.books.put))
	}
}
