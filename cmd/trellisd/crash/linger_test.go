package crash

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// Workers of a server that is killed and started again connect anew, and go on with the job that they have, with the
// commands of stock clients. In a tube that lingers no job is done twice by that.
func TestJobsOfAKilledServerThatLingerAreDoneOnce(t *testing.T) {
	if !servertest.Proof {
		t.Skip("it takes longer than a second")
	}
	kills := 20
	if n, err := strconv.Atoi(os.Getenv(crashKills)); err == nil {
		kills = n
	}
	t.Parallel()
	if done, twice := killWorkersServer(t, kills, 10); twice != 0 {
		t.Errorf("of %d jobs, %d were done more than once", done, twice)
	}
	if done, twice := killWorkersServer(t, min(kills, 10), 0); twice == 0 {
		t.Errorf("without lingering, none of %d jobs was done twice: the test shows nothing", done)
	}
}

// killWorkersServer has workers work at a server that is killed so often, and then until nothing is left to do. It
// returns how many jobs were done, and how many of them more than once.
func killWorkersServer(t *testing.T, kills, linger int) (done, twice int) {
	dir := t.TempDir()
	c := &workplace{done: map[uint64]int{}}
	p := c.start(t, dir)
	c.open(t, linger)
	for range kills {
		time.Sleep(20*time.Millisecond + time.Duration(rand.Int64N(int64(80*time.Millisecond))))
		p.Kill()
		p = c.start(t, dir)
	}
	done, twice = c.close(t)
	t.Logf("linger=%d: %d kills, %d jobs done, %d of them more than once", linger, kills, done, twice)
	return done, twice
}

// A workplace is where workers find servers, and the book of what they have done.
type workplace struct {
	people sync.WaitGroup

	mu     sync.Mutex
	addrs  []string
	ending bool           // nothing is put any more
	over   bool           // nor is anything left to do
	done   map[uint64]int // how often each job was, by id
}

// start starts the next server of a directory.
func (c *workplace) start(t *testing.T, dir string) *servertest.Process {
	p, err := servertest.Spawn(exec.Command(servertest.Binary, "-l127.0.0.1", "-p0", "-V", "--log-format=json", "-s65536", "-b", dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	s, err := servertest.AwaitReady(p)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs = []string{s.Addrs[0].String()}
	c.mu.Unlock()
	return p
}

// open has jobs linger, and workers begin.
func (c *workplace) open(t *testing.T, linger int) {
	servertest.Await(t, "jobs linger", func() bool { // members of a cluster have to know of each other that they can
		line, err := c.askOnce(fmt.Sprint("set-tube default linger=", linger))
		return err == nil && line == "TUBE_SET\r\n"
	})
	for range 8 {
		c.people.Go(c.work)
	}
	c.people.Go(c.put)
}

// close has workers do what is left, and go. It returns how many jobs were done, and how many of them more than once.
func (c *workplace) close(t *testing.T) (done, twice int) {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	servertest.Await(t, "all jobs are done", c.isIdle)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.people.Wait()
	for _, n := range c.done {
		if n > 1 {
			twice++
		}
	}
	return len(c.done), twice
}

// isIdle reports whether one of the servers says that no job waits or is worked on. One that was started just now does
// not listen yet, and one without a leader ends the connection.
func (c *workplace) isIdle() bool {
	conn := c.connect()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
		return false
	}
	replies, err := newWire(conn).ask([]string{"stats"})
	if err != nil {
		return false
	}
	n := parseStats(replies[0].body)
	return n["current-jobs-ready"] == "0" && n["current-jobs-reserved"] == "0"
}

// isOver reports whether nothing is left to do.
func (c *workplace) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// connect connects to one of the servers. It returns nil when it is over.
func (c *workplace) connect() net.Conn {
	for !c.isOver() {
		c.mu.Lock()
		addr := c.addrs[rand.IntN(len(c.addrs))]
		c.mu.Unlock()
		if conn, err := net.Dial("tcp", addr); err == nil {
			return conn
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// askOnce is ask on a connection of its own.
func (c *workplace) askOnce(command string) (string, error) {
	conn := c.connect()
	defer conn.Close()
	return ask(conn, bufio.NewReader(conn), command)
}

// ask sends a command and returns the first line of the reply. The error is that of a connection that has ended.
func ask(conn net.Conn, r *bufio.Reader, command string) (string, error) {
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	return r.ReadString('\n')
}

// work does jobs until it is over. Whatever becomes of the connection, a job is done to its end and then deleted.
func (c *workplace) work() {
	var has uint64 // the job that is done and not known to be deleted
	for {
		conn := c.connect()
		if conn == nil {
			return
		}
		r := bufio.NewReader(conn)
		for !c.isOver() {
			if has != 0 {
				if _, err := ask(conn, r, fmt.Sprint("delete ", has)); err != nil {
					break
				}
				has = 0 // by this delete, or by one before that nobody has answered
			}
			line, err := ask(conn, r, "reserve-with-timeout 1")
			if err != nil {
				break
			}
			var id uint64
			var size int
			if n, _ := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); n < 2 {
				continue
			}
			if _, err := io.CopyN(io.Discard, r, int64(size)+2); err != nil {
				break // it is nobody's until it has lingered
			}
			time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
			c.mu.Lock()
			c.done[id]++
			c.mu.Unlock()
			has = id
		}
		_ = conn.Close()
	}
}

// put puts jobs until it is to end.
func (c *workplace) put() {
	for {
		conn := c.connect()
		if conn == nil {
			return
		}
		r := bufio.NewReader(conn)
		for {
			c.mu.Lock()
			ending := c.ending
			c.mu.Unlock()
			if ending {
				_ = conn.Close()
				return
			}
			if _, err := ask(conn, r, "put 0 0 60 4\r\nwork"); err != nil {
				break
			}
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
		}
		_ = conn.Close()
	}
}
