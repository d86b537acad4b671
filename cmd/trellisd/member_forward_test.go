package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// standbys waits until all other members serve clients too, and returns them.
func (w *town) standbys(leader *townsman) []*townsman {
	w.t.Helper()
	others := slices.DeleteFunc(slices.Clone(w.nodes), func(n *townsman) bool { return n == leader || n.p == nil })
	w.eventually("all members serve clients", func() bool {
		return !slices.ContainsFunc(others, func(n *townsman) bool {
			status, _ := n.readyz()
			return status != http.StatusOK
		})
	})
	return others
}

func TestClientsWorkAtEveryMember(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		others := w.standbys(l)
		worker, err := beanstalk.DialTimeout("tcp", others[0].clients(), patience)
		no(t, err)
		defer worker.Close()
		producer, err := beanstalk.DialTimeout("tcp", others[1].clients(), patience)
		no(t, err)
		defer producer.Close()
		// One member's client waits for what another one's puts.
		done := make(chan error, 1)
		go func() {
			id, body, err := beanstalk.NewTubeSet(worker, "t").Reserve(patience)
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
		no(t, <-done)
		own := l.dial()
		if got := own.data("stats-job 1"); !strings.Contains(got, "state: buried") || !strings.Contains(got, "pri: 7") {
			t.Errorf("the leader's own client is told %s", got)
		}
		list := own.data("list-connections")
		for _, n := range others {
			if _, page := httpGet(t, "http://"+n.http+"/server"); !strings.Contains(page, "the leader executes their commands") || !strings.Contains(page, "a ping that was sent") {
				t.Errorf("%s shows %s", n.name, page)
			}
			if strings.Count(list, "via: \""+n.name+"\"") != 1 {
				t.Errorf("not one client of %s is listed: %s", n.name, list)
			}
		}
		_, err = beanstalk.NewTube(producer, "t").Kick(1)
		no(t, err)
		no(t, worker.Delete(1))
		// What is half-closed is answered.
		c := others[0].dial()
		c.send("put 0 0 60 1", "x", "list-tube-used")
		no(t, c.conn.(*net.TCPConn).CloseWrite())
		c.want("INSERTED 2", "USING default")
		c.wantEOF()
		// A body that is larger than all that may be under way.
		c = others[1].dial()
		big := strings.Repeat("b", 60_000)
		c.send("put 0 0 60 60000", big, "reserve", "delete 3", "quit")
		c.want("INSERTED 3", "RESERVED 2 1", "x", "DELETED")
		c.wantEOF()
		if jobs := w.settled(); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

// A standby lets clients in as its own files say, and what the leader denies them is told there.
func TestAStandbyKnowsItsClients(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		path := authFile(t, tokenLine("some", "right", "put,work", "a"), tokenLine("root", "root", "all", "*"))
		for _, n := range w.nodes {
			n.args = []string{"--auth-file=" + path}
		}
		w.startAll()
		l := w.leader()
		others := w.standbys(l)
		stranger := others[0].dial()
		stranger.send("put 0 0 60 1", "x")
		stranger.want("UNKNOWN_COMMAND")
		stranger.wantEOF()
		c := others[0].dial()
		addr := c.conn.LocalAddr().String()
		c.send("use auth/right", "use a", "put 0 0 60 1", "x", "pause-tube a 1", "delete 7", "list-tube-used")
		c.want("USING default", "USING a", "INSERTED 1", "UNKNOWN_COMMAND", "NOT_FOUND", "USING a")
		if err := others[0].p.await(`"client":"some","peer":"` + addr + `","command":"pause-tube","tube":"a","result":"UNKNOWN_COMMAND"`); err != nil {
			t.Error(err)
		}
		w.eventually("it is counted where the client is", func() bool {
			return strings.Contains(scrape(t, "http://"+others[0].http), "\nbeanstalkd_denied_commands_total 1\n")
		})
		root := others[1].dial()
		root.send("auth root")
		root.want("AUTHENTICATED")
		if list := root.data("list-connections"); !strings.Contains(list, `addr: "`+addr+`"`) {
			t.Errorf("no client at %s in %s", addr, list)
		}
		// Whose line has gone is disconnected by all members.
		writeAuthFile(t, path, tokenLine("root", "root", "all", "*"))
		c.wantEOF()
		root.send("list-tube-used")
		root.want("USING default")
	})
}

// A client of a standby keeps its connection, its job and its place as a waiting worker when another member
// leads.
func TestClientsOfAStandbyGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		n := w.standbys(l)[0]
		c := n.dial()
		c.send("use t", "put 0 0 60 1", "x", "watch t", "reserve")
		c.want("USING t", "INSERTED 1", "WATCHING 2", "RESERVED 1 1", "x")
		waits := n.dial()
		waits.send("watch t", "ignore default", "reserve")
		waits.want("WATCHING 2", "WATCHING 1")
		l.kill()
		c.send("touch 1", "put 0 0 60 1", "y", "list-tube-used", "delete 1")
		c.want("TOUCHED", "INSERTED 2", "USING t", "DELETED")
		waits.want("RESERVED 2 1", "y")
	})
}
