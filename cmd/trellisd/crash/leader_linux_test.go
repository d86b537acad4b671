//go:build proof

package crash

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// The crash test's books over a cluster whose leader is killed or stopped again
// and again: what clients were told that it has, the next leader has.
func TestNothingAcknowledgedIsLostByAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clustertest.TimeEnv))
	c := clustertest.StartLab(t, 3)
	awaitTags(c)
	books := newCrash(t)
	goes := []func(n *clustertest.Node) (end func()){ // a transfer ends no connection: see Crew
		func(n *clustertest.Node) func() {
			c.Stop(n)
			return func() { c.Start(n) }
		},
		func(n *clustertest.Node) func() {
			n.Signal(syscall.SIGSTOP)
			c.Leader(c.Others(n)...)
			return func() { n.Signal(syscall.SIGCONT) }
		},
	}
	for began, round := time.Now(), 0; round < len(goes) || long == nil && time.Since(began) < limit; round++ {
		s := auditLeader(c, books)
		over := make(chan error, 1)
		go func() { over <- books.work(s) }()
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond)))) // at any moment
		end := goes[round%len(goes)](c.Leader())
		end() // a leader that was stopped ends its connections when it is back
		if err := <-over; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	books.over = true // jobs that expire while members are compared would make a difference
	auditLeader(c, books)
	c.Agree()
	t.Logf("%d commands acknowledged, %d not, of which %d had been done", books.acked, books.unacked, books.done)
}

// awaitTags waits until all members are known to read records of jobs with groups. The next
// leader knows that as well: it is on record, before the job.
func awaitTags(c *clustertest.Lab) {
	c.Await(func() error {
		conn, err := net.DialTimeout("tcp", c.Leader().Client, servertest.Patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
			return err
		}
		got, err := newWire(conn).ask([]string{"put 0 0 60 1 grp:first\r\nx", "flush-tube default"})
		if err == nil && !strings.HasPrefix(got[0].line, "INSERTED ") {
			err = fmt.Errorf("the reply to a put with a tag is %q", got[0].line)
		}
		return err
	})
}

// auditLeader compares the leader's jobs with the books, and returns the leader. One that loses its
// leadership meanwhile, as on a busy machine, is followed by the next: so the first audit is given
// up at any moment, as if that had happened.
func auditLeader(c *clustertest.Lab, books *crash) (s *servertest.Server) {
	c.T.Helper()
	limit := time.Duration(rand.Int64N(int64(50 * time.Millisecond)))
	c.Await(func() error {
		n := c.Leader()
		s = &servertest.Server{Process: n.Process, Addrs: []net.Addr{servertest.AddrOn("tcp", n.Client)}}
		err := books.audit(s, limit)
		limit = 5 * servertest.Patience
		return err
	})
	return s
}
