package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

func TestClientsWorkAtEveryMember(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		others := w.Standbys(l)
		worker, err := beanstalk.DialTimeout("tcp", others[0].Clients(), servertest.Patience)
		servertest.NoError(t, err)
		defer worker.Close()
		producer, err := beanstalk.DialTimeout("tcp", others[1].Clients(), servertest.Patience)
		servertest.NoError(t, err)
		defer producer.Close()
		// One member's client waits for what another one's puts.
		done := make(chan error, 1)
		go func() {
			id, body, err := beanstalk.NewTubeSet(worker, "t").Reserve(servertest.Patience)
			if err == nil && (id != 1 || string(body) != "hello") {
				err = fmt.Errorf("got job %d, %q", id, body)
			}
			if err == nil {
				err = worker.Bury(id, 7)
			}
			done <- err
		}()
		id, err := beanstalk.NewTube(producer, "t").Put([]byte("hello"), 0, 0, time.Minute)
		if err != nil || id != 1 {
			t.Fatalf("put: %d, %v", id, err)
		}
		servertest.NoError(t, <-done)
		own := l.Dial()
		if got := own.Data("stats-job 1"); !strings.Contains(got, "state: buried") || !strings.Contains(got, "pri: 7") {
			t.Errorf("the leader's own client is told %s", got)
		}
		list := own.Data("list-connections")
		for _, n := range others {
			if _, page := servertest.Get(t, "http://"+n.HTTP+"/server"); !strings.Contains(page, "the leader executes their commands") || !strings.Contains(page, "a ping that was sent") {
				t.Errorf("%s shows %s", n.Name, page)
			}
			if strings.Count(list, "via: \""+n.Name+"\"") != 1 {
				t.Errorf("not one client of %s is listed: %s", n.Name, list)
			}
		}
		_, err = beanstalk.NewTube(producer, "t").Kick(1)
		servertest.NoError(t, err)
		servertest.NoError(t, worker.Delete(1))
		// What is half-closed is answered.
		c := others[0].Dial()
		c.Send("put 0 0 60 1", "x", "list-tube-used")
		servertest.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		c.Want("INSERTED 2", "USING default")
		c.WantEOF()
		// A body that is larger than all that may be under way.
		c = others[1].Dial()
		big := strings.Repeat("b", 60_000)
		c.Send("put 0 0 60 60000", big, "reserve", "delete 3", "quit")
		c.Want("INSERTED 3", "RESERVED 2 1", "x", "DELETED")
		c.WantEOF()
		if jobs := w.Settled(); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

// A standby lets clients in as its own files say, and what the leader denies them is told there.
func TestAStandbyKnowsItsClients(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		path := servertest.AuthFile(t, servertest.TokenLine("some", "right", "put,work", "a"), servertest.TokenLine("root", "root", "all", "*"))
		for _, n := range w.Nodes {
			n.Args = []string{"--auth-file=" + path}
		}
		w.StartAll()
		l := w.Leader()
		others := w.Standbys(l)
		stranger := others[0].Dial()
		stranger.Send("put 0 0 60 1", "x")
		stranger.Want("UNKNOWN_COMMAND")
		stranger.WantEOF()
		c := others[0].Dial()
		addr := c.Conn.LocalAddr().String()
		c.Send("use auth/right", "use a", "put 0 0 60 1", "x", "pause-tube a 1", "delete 7", "list-tube-used")
		c.Want("USING default", "USING a", "INSERTED 1", "UNKNOWN_COMMAND", "NOT_FOUND", "USING a")
		if err := others[0].Process.Await(`"client":"some","peer":"` + addr + `","command":"pause-tube","tube":"a","result":"UNKNOWN_COMMAND"`); err != nil {
			t.Error(err)
		}
		w.Eventually("it is counted where the client is", func() bool {
			return strings.Contains(servertest.Scrape(t, "http://"+others[0].HTTP), "\nbeanstalkd_denied_commands_total 1\n")
		})
		root := others[1].Dial()
		root.Send("auth root")
		root.Want("AUTHENTICATED")
		if list := root.Data("list-connections"); !strings.Contains(list, `addr: "`+addr+`"`) {
			t.Errorf("no client at %s in %s", addr, list)
		}
		// Whose line has gone is disconnected by all members.
		servertest.WriteAuthFile(t, path, servertest.TokenLine("root", "root", "all", "*"))
		c.WantEOF()
		root.Send("list-tube-used")
		root.Want("USING default")
	})
}

// A client of a standby keeps its connection, its job and its place as a waiting worker when another member
// leads.
func TestClientsOfAStandbyGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		n := w.Standbys(l)[0]
		c := n.Dial()
		c.Send("use t", "put 0 0 60 1", "x", "watch t", "reserve")
		c.Want("USING t", "INSERTED 1", "WATCHING 2", "RESERVED 1 1", "x")
		waits := n.Dial()
		waits.Send("watch t", "ignore default", "reserve")
		waits.Want("WATCHING 2", "WATCHING 1")
		l.Kill()
		c.Send("touch 1", "put 0 0 60 1", "y", "list-tube-used", "delete 1")
		c.Want("TOUCHED", "INSERTED 2", "USING t", "DELETED")
		waits.Want("RESERVED 2 1", "y")
	})
}
