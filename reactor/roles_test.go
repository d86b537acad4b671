package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/relay"
)

// Clients of a leader that hands over notice nothing, with jobs or without, whatever they are about, if it leads
// again.
func TestClientsKeepTheirJobsThroughRoles(t *testing.T) {
	t.Parallel()
	for _, forwards := range []bool{false, true} {
		directNetworks(t, func(t *testing.T, network string) {
			k := newCluster(t)
			k.stopped = true
			ts := k.server(network, hooks{}, func(*Config) {})
			big := strings.Repeat("b", 100_000)
			add := func(send, expect string) *client {
				c := ts.dial()
				c.do("list-tube-used\r\n", "USING default\r\n")
				c.send(send)
				c.expect(expect)
				return c
			}
			producer := add("", "")
			worker := add("", "")
			id := producer.put("x")
			worker.do("reserve\r\n", reserved(id, "x"))
			idle := add("use u\r\nwatch b\r\nwatch a\r\nignore default\r\n", "USING u\r\nWATCHING 2\r\nWATCHING 3\r\nWATCHING 2\r\n")
			waits := add("watch w\r\nignore default\r\nreserve\r\nlist-tube-used\r\nput 0 0 9 1\r\nx\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
			batch := add("watch s\r\nignore default\r\nreserve-batch 3 1000\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
			short := add("watch n\r\nignore default\r\nreserve-with-timeout 1000\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
			soon := add("watch n\r\nignore default\r\nreserve-with-timeout 300\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
			gone := add("watch n\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
			read := ts.sum().BytesIn
			body := add("use half\r\nput 0 0 9 100000\r\n"+big[:60_000], "USING half\r\n")
			line := add("list-tube-u", "")
			end := add("use half\r\nput 0 0 9 5\r\nabcde\r", "USING half\r\n")
			ts.untilSeenWaiting(5)
			ts.until("all that was sent has come", func() bool { return ts.sum().BytesIn >= read+60_000+100 })

			k.putAhead(ts, 50*time.Second)
			k.resign(ts)
			before := ts.sum().BytesIn
			idle.send("list-tube-used\r\n")
			gone.closeWrite()
			line.send("sed\r\n")
			ts.until("more has come", func() bool { return ts.sum().BytesIn >= before+21 && ts.sum().Ending == 1 })
			if forwards {
				ts.Forward(noLeader)
			}
			k.putAhead(ts, 3*time.Second)
			late := ts.dial()
			late.send("use l\r\n")
			body.send(big[60_000:70_000])
			if p := idle.pending() + gone.pending() + late.pending(); p != "" {
				t.Errorf("%q was sent by no engine", p)
			}
			k.lead(ts)

			late.expect("USING l\r\n")
			gone.expect("TIMED_OUT\r\n")
			gone.expectEOF()
			idle.expect("USING u\r\n")
			idle.do("list-tubes-watched\r\n", "OK 12\r\n---\n- a\n- b\n\r\n")
			line.expect("USING default\r\n")
			worker.do(fmt.Sprintf("release %d 1 0\r\n", id), "RELEASED\r\n")
			worker.do("reserve\r\n", reserved(id, "x"))
			worker.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
			body.send(big[70_000:] + "\r\npeek-ready\r\n")
			if _, err := fmt.Sscanf(body.line(), "INSERTED %d", &id); err != nil {
				t.Fatal(err)
			}
			body.expect(fmt.Sprintf("FOUND %d 100000\r\n%s\r\n", id, big))
			body.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
			end.send("\npeek-ready\r\n")
			if _, err := fmt.Sscanf(end.line(), "INSERTED %d", &id); err != nil {
				t.Fatal(err)
			}
			end.expect(fmt.Sprintf("FOUND %d 5\r\nabcde\r\n", id))
			ts.untilSeenWaiting(4)
			k.putAhead(ts, 246*time.Second)
			if p := soon.pending(); p != "" {
				t.Errorf("%q was sent before the time is over", p)
			}
			k.putAhead(ts, 2*time.Second)
			soon.expect("TIMED_OUT\r\n")
			idle.do("use s\r\n", "USING s\r\n")
			id = idle.put("s")
			batch.expect(fmt.Sprintf("RESERVED_BATCH 1\r\nRESERVED %d 1\r\ns\r\n", id))
			k.putAhead(ts, 701*time.Second)
			idle.do("use w\r\n", "USING w\r\n")
			short.expect("TIMED_OUT\r\n")
			id = idle.put("w")
			waits.expect(reserved(id, "w") + "USING default\r\n")
			if got := waits.line(); !strings.HasPrefix(got, "INSERTED") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// What a leader has executed for a gateway's clients, and what they were not answered, is answered by the gateway when
// that leads itself: once.
func TestAGatewayThatLeadsAnswersWhatWasExecuted(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		k := newCluster(t)
		k.stopped = true
		leader := k.server("unix", hooks{}, func(*Config) {})
		ts := k.gateway(network, hooks{}, func(*Config) {})
		add := func(send, expect string) *client {
			c := ts.dial()
			c.do("list-tube-used\r\n", "USING default\r\n")
			c.send(send)
			c.expect(expect)
			return c
		}
		setup := leader.dial()
		for _, tube := range []string{"d", "r", "r", "b", "t", "w"} {
			setup.do("use "+tube+"\r\n", "USING "+tube+"\r\n")
			setup.put(tube)
		}
		producer := add("use p\r\n", "USING p\r\n")
		deletes := add("watch d\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n"+reserved(1, "d"))
		releases := add("watch r\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n"+reserved(2, "r"))
		buries := add("watch b\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n"+reserved(4, "b"))
		touches := add("watch t\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n"+reserved(5, "t"))
		waits := add("watch n\r\nignore default\r\nreserve-with-timeout 100\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		half := add("use h\r\nput 0 0 9 10\r\n01234", "USING h\r\n")
		reserves := add("watch w\r\nignore default\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		leader.untilSeenWaiting(1)

		j := k.tape
		j.atOnce.Store(false)
		had := j.recorded.Load()
		producer.send("put 0 0 9 1\r\nx\r\n")
		deletes.send("delete 1\r\n")
		releases.send("release 2 5 0\r\nreserve\r\n")
		buries.send("bury 4 7\r\n")
		touches.send("touch 5\r\nlist-tube-used\r\n")
		reserves.send("reserve\r\n")
		j.untilRecorded(leader, had+7) // all of them, none of which is committed there
		id := j.lastID()
		k.leader.Store(nil)
		leader.Abort()
		j.atOnce.Store(true)
		k.apply(ts)
		k.putAhead(ts, 4*time.Second)
		k.lead(ts)

		producer.expect(fmt.Sprintf("INSERTED %d\r\n", id))
		deletes.expect("DELETED\r\n")
		releases.expect("RELEASED\r\n" + reserved(3, "r"))
		buries.expect("BURIED\r\n")
		touches.expect("TOUCHED\r\nUSING default\r\n")
		reserves.expect(reserved(6, "w"))
		half.send("56789\r\npeek-ready\r\n")
		if _, err := fmt.Sscanf(half.line(), "INSERTED %d", &id); err != nil {
			t.Fatal(err)
		}
		half.expect(fmt.Sprintf("FOUND %d 10\r\n0123456789\r\n", id))
		n := ts.engine.Snapshot(0)
		if n.Ready != 3 || n.Reserved != 3 || n.Buried != 1 {
			t.Errorf("there are %d jobs ready, %d reserved, %d buried, want 3, 3 and 1", n.Ready, n.Reserved, n.Buried)
		}
		k.putAhead(ts, 95*time.Second)
		if p := waits.pending(); p != "" {
			t.Errorf("%q was sent before the time is over", p)
		}
		k.putAhead(ts, 2*time.Second)
		waits.expect("TIMED_OUT\r\n")
		reserves.do("delete 6\r\n", "DELETED\r\n")
		if n := ts.sum().Resumed; n != 8 {
			t.Errorf("%d sessions have gone on, want 8", n)
		}
	})
}

// Who is in the middle of a long body goes on with it, whichever way the role of its server changes.
func TestALongBodyOutlivesRoles(t *testing.T) {
	t.Parallel()
	const most, size, first = 8 << 20, 7 << 20, 6 << 20 // the first part is longer than what may wait otherwise
	body := strings.Repeat("b", size)
	one := func(c *Config) { c.Loops = 1 }
	networks := []string{"tcp"}
	if proof {
		networks = append(networks, "tls")
	}
	for _, leads := range []bool{false, true} {
		for _, network := range networks {
			k := newCluster(t)
			k.stopped, k.maxJobSize = true, most
			leader := k.server(network, hooks{}, one)
			ts := k.gateway(network, hooks{}, one)
			c := leader.dial()
			if leads {
				c = ts.dial()
			}
			c.do("use u\r\n", "USING u\r\n")
			read := leader.sum().BytesIn
			c.send(fmt.Sprintf("put 0 0 9 %d\r\n", size) + body[:first])
			leader.until("it has come", func() bool { return leader.sum().BytesIn-read >= first })
			if leads {
				k.leader.Store(nil)
				leader.Abort()
				k.apply(ts)
				k.lead(ts)
			} else {
				k.handOver(ts)
			}
			c.send(body[first:] + "\r\n")
			if got := c.line(); !strings.HasPrefix(got, "INSERTED") {
				t.Fatalf("got %q", got)
			}
		}
	}
}

// Who was handed a job just before a server handed over is told by the next leader, however long the server then takes to
// apply its log again.
func TestAJobThatWasHandedOverWaitsForNoFence(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		k := newCluster(t)
		k.stopped = true
		ts := k.server("tcp", hooks{}, func(*Config) {})
		other := k.gateway("unix", hooks{}, func(c *Config) { c.Loops = 1 })
		waits, producer := ts.dialOn(0), ts.dialOn(1)
		waits.send("reserve\r\n")
		ts.untilSeenWaiting(1)

		// One loop is held before the other, and does not tell what that hands over.
		held := make(chan struct{})
		ts.loops[0].call(func(l *loop) { l.held = true; close(held) })
		<-held
		id := producer.put("x")
		k.leader.Store(nil)
		k.resign(ts)
		if lost {
			ts.EffectsLost()
		}
		k.forward(ts)
		k.apply(other)
		k.lead(other)
		k.term.Add(1)
		k.leader.Store(other)
		waits.expect(reserved(id, "x"))
		waits.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
	}
}

// A command whose line comes in two parts waits from when it has come, and not from when it has begun.
func TestAWaitBeginsWhenItsLineHasCome(t *testing.T) {
	t.Parallel()
	for _, between := range []bool{true, false} { // whether the leader changes between the parts, or behind them
		k := newCluster(t)
		k.stopped = true
		one := func(c *Config) { c.Loops = 1 }
		leader, ts := k.server("unix", hooks{}, one), k.gateway("tcp", hooks{}, one)
		c := ts.dial()
		c.do("use u\r\n", "USING u\r\n")
		send := func(to *testServer, s string) {
			read := to.sum().BytesIn
			c.send(s)
			to.until("it has come", func() bool { return to.sum().BytesIn-read == uint64(len(s)) })
		}
		change := func() {
			k.leader.Store(nil)
			leader.Abort()
			k.apply(ts)
			k.lead(ts)
		}
		send(leader, "reserve-with-timeout 5")
		k.ahead.Add(int64(4 * time.Second))
		if between {
			change()
			k.ahead.Add(int64(4 * time.Second))
			send(ts, "\r\n")
		} else {
			send(leader, "\r\n")
			leader.untilSeenWaiting(1)
			change()
		}
		ts.untilSeenWaiting(1)
		k.putAhead(ts, 4*time.Second)
		if p := c.pending(); p != "" {
			t.Errorf("%q was sent before the time is over", p)
		}
		k.putAhead(ts, 2*time.Second)
		c.expect("TIMED_OUT\r\n")
	}
}

// A body that does not go on is not kept for ever, also if it has begun under another leader.
func TestABodyThatHasBegunUnderAnotherLeaderIsLimited(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	limited := func(c *Config) { c.Loops, c.BodyTimeout = 1, 5*time.Second }
	leader, ts := k.server("unix", hooks{}, limited), k.gateway("tcp", hooks{}, limited)
	c := ts.dial()
	c.do("use u\r\n", "USING u\r\n")
	read := leader.sum().BytesIn
	c.send("put 0 0 9 10\r\n01234")
	leader.until("it has come", func() bool { return leader.sum().BytesIn-read >= 19 })
	k.leader.Store(nil)
	leader.Abort()
	k.apply(ts)
	k.lead(ts)
	ts.until("it has gone on", func() bool { return ts.sum().PendingInput == 0 })
	k.putAhead(ts, 4*time.Second)
	if n := ts.sum().Connections; n != 1 {
		t.Fatalf("%d connections are left", n)
	}
	k.putAhead(ts, 2*time.Second)
	c.expectEOF()
}

// A server that has led for long is without a leader only since it forwards its clients: the port stays open.
func TestAServerThatHasLedHasNoTrunkSinceItForwards(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	ts := k.server("unix", hooks{}, func(*Config) {})
	for range 2 {
		k.putAhead(ts, time.Hour)
		k.resign(ts)
		ts.Forward(noLeader)
		k.ahead.Add(int64(time.Second))
		if loops, without := ts.Forwarding(); loops != 0 || without != time.Second {
			t.Errorf("it forwards on %d trunks, and does not since %v", loops, without)
		}
		k.lead(ts)
	}
}

// A put of which this server has taken the line is not sent to a leader that may take that for another one, and its body
// for commands.
func TestHalfAPutIsNotSentToALeaderWithOtherTerms(t *testing.T) {
	t.Parallel()
	for what, other := range map[string]func(*Config){
		"extensions": func(c *Config) { c.Extensions = false },
		"job size":   func(c *Config) { c.MaxJobSize = 10 },
	} {
		k := newCluster(t)
		k.stopped = true
		ts := k.server("unix", hooks{}, func(*Config) {})
		next := k.gateway("unix", hooks{}, other)
		victim, c, idle := ts.dial(), ts.dial(), ts.dial()
		victim.put("victim")
		idle.do("use u\r\n", "USING u\r\n")
		read := ts.sum().BytesIn
		const half = "put 0 0 9 18 idp:k\r\ndelete 1\r\n"
		c.send(half)
		ts.until("half has come", func() bool { return ts.sum().BytesIn-read == uint64(len(half)) })
		k.handOver(next)
		c.expectReset("whose body would be executed: " + what)
		idle.do("list-tube-used\r\n", "USING u\r\n")
		victim.do("peek 1\r\n", "FOUND 1 6\r\nvictim\r\n")
	}
}

// Commands that wait for room in the journal, and have changed nothing, are executed by whoever leads next.
func TestWhoWaitsForRoomGoesOn(t *testing.T) {
	t.Parallel()
	for _, forwards := range []bool{false, true} {
		k := newCluster(t)
		k.stopped = true
		one := func(c *Config) { c.Loops = 1 }
		ts, next := k.server("tcp", hooks{}, one), k.gateway("tcp", hooks{}, one)
		large := strings.Repeat("l", 200_000)
		var clients [6]*client
		for i := range clients {
			clients[i] = ts.dial()
		}
		for i, c := range clients[:4] { // a job of each: to be released, buried, kicked, and taken
			c.do(fmt.Sprintf("use t%d\r\nwatch t%d\r\nignore default\r\n", i, i), fmt.Sprintf("USING t%d\r\nWATCHING 2\r\nWATCHING 1\r\n", i))
			id := c.put("x")
			c.do("reserve\r\n", reserved(id, "x"))
			if i >= 2 {
				c.do(fmt.Sprintf("bury %d 1\r\n", id), "BURIED\r\n")
			}
		}
		clients[4].do("use k\r\n", "USING k\r\n")
		k.tape.cramped.Store(true)
		for i, s := range []string{
			"release 1 5 7\r\n", "bury 2 9\r\nlist-tube-used\r\n", "kick-job 3\r\n", "reserve-job 4\r\ndelete 4\r\n",
			"put 3 0 9 1 idp:k\r\nx\r\npeek-ready\r\n", "put 0 0 9 200000\r\n" + large + "\r\n",
		} {
			clients[i].send(s)
		}
		waits := func(ts *testServer) {
			n := 0
			ts.until("all wait", func() bool {
				ts.onLoops(func(l *loop) {
					n = 0
					for _, c := range l.conns {
						if c.phase == waiting {
							n++
						}
					}
				})
				return n >= len(clients)-1 // a job that is taken need not be on record
			})
		}
		waits(ts)
		leader := ts
		if forwards {
			k.handOver(next)
			leader = next
		} else {
			k.resign(ts)
			k.lead(ts)
			waits(ts)
		}
		k.tape.cramped.Store(false)
		leader.engine.Room()
		clients[0].expect("RELEASED\r\n")
		clients[1].expect("BURIED\r\nUSING t1\r\n")
		clients[2].expect("KICKED\r\n")
		clients[3].expect(reserved(4, "x") + "DELETED\r\n")
		var id, other int
		if _, err := fmt.Sscanf(clients[4].line(), "INSERTED %d", &id); err != nil {
			t.Fatal(err)
		}
		clients[4].expect(fmt.Sprintf("FOUND %d 1\r\nx\r\n", id))
		if _, err := fmt.Sscanf(clients[5].line(), "INSERTED %d", &other); err != nil {
			t.Fatal(err)
		}
		clients[4].send("put 3 0 9 1 idp:k\r\nx\r\n")
		if got := clients[4].line(); !strings.HasPrefix(got, fmt.Sprintf("INSERTED %d READY", id)) {
			t.Errorf("got %q", got)
		}
		clients[5].do(fmt.Sprintf("peek %d\r\n", other), fmt.Sprintf("FOUND %d 200000\r\n%s\r\n", other, large))
	}
}

// A command of which a part was executed is ended before its leader hands over.
func TestCommandsThatHaveBegunEndBeforeAChangeOfRole(t *testing.T) {
	t.Parallel()
	const jobs = 3
	begin := func(t *testing.T, finish time.Duration) (k *cluster, ts *testServer, kicks *client) {
		k = newCluster(t)
		k.stopped = true
		ts = k.server("tcp", hooks{finish: finish}, func(c *Config) { c.Loops = 1 })
		kicks = ts.dial()
		for range jobs {
			id := kicks.put("x")
			kicks.do("reserve\r\n", reserved(id, "x"))
			kicks.do(fmt.Sprintf("bury %d 0\r\n", id), "BURIED\r\n")
		}
		k.tape.room.Store(1)
		k.tape.cramped.Store(true)
		kicks.send("kick 9\r\nlist-tube-used\r\n")
		ts.until("one is kicked", func() bool { return k.tape.room.Load() < 0 })
		return k, ts, kicks
	}
	t.Run("with room", func(t *testing.T) {
		k, ts, kicks := begin(t, 2*testTimeout)
		next := k.gateway("tcp", hooks{}, func(*Config) {})
		waits := ts.dial()
		waits.do("watch w\r\nignore default\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		waits.send("reserve\r\n")
		ts.untilSeenWaiting(1)
		e, given := ts.engine, make(chan struct{})
		go func() {
			defer close(given)
			for !ts.finishes() {
				time.Sleep(time.Millisecond)
			}
			k.tape.cramped.Store(false)
			e.Room()
		}()
		k.handOver(next)
		<-given
		kicks.expect(fmt.Sprintf("KICKED %d\r\nUSING default\r\n", jobs))
		producer := next.dial()
		producer.do("use w\r\n", "USING w\r\n")
		waits.expect(reserved(producer.put("y"), "y"))
	})
	t.Run("never", func(t *testing.T) {
		k, ts, kicks := begin(t, time.Millisecond)
		other := ts.dial()
		other.do("use o\r\n", "USING o\r\n")
		k.resign(ts)
		k.lead(ts)
		kicks.expectReset("whose command was executed in part")
		other.do("list-tube-used\r\n", "USING o\r\n")
	})
}

// A gateway that leads with other terms than the leader before ends those of whose commands that has had a part.
func TestAGatewayThatLeadsOnOtherTermsResetsWhoIsNotAnswered(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	leader := k.server("unix", hooks{}, func(c *Config) { c.MaxJobSize = 100 })
	ts := k.gateway("tcp", hooks{}, func(*Config) {})
	c, idle := ts.dial(), ts.dial()
	idle.do("use u\r\n", "USING u\r\n")
	read := leader.sum().BytesIn
	const half = "put 0 0 9 18\r\ndelete 1\r\n"
	c.send(half)
	leader.until("half has come", func() bool { return leader.sum().BytesIn-read == uint64(len(half)) })
	k.leader.Store(nil)
	leader.Abort()
	k.apply(ts)
	k.lead(ts)
	c.expectReset("whose body may be executed")
	idle.do("list-tube-used\r\n", "USING u\r\n")
}

// What a gateway's client held that has gone while nobody led is ready when the gateway leads.
func TestAGatewayThatLeadsEndsTheSessionsOfWhoHasGone(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	leader := k.server("unix", hooks{}, func(*Config) {})
	ts := k.gateway("tcp", hooks{}, func(c *Config) { c.Loops = 1 })
	c, other := ts.dial(), ts.dial()
	id := other.put("x")
	c.do("reserve\r\n", reserved(id, "x"))
	k.leader.Store(nil)
	leader.Abort()
	ts.until("there is no leader", func() bool { n, _ := ts.Forwarding(); return n == 0 })
	c.reset()
	ts.until("it has gone", func() bool { return ts.sum().Connections == 1 })
	k.apply(ts)
	k.lead(ts)
	other.do("reserve\r\n", reserved(id, "x"))
}

// Who has sent commands of which the log tells, and goes on with another engine before they are answered, is reset: nothing
// is executed twice.
func TestWhoIsNotAnsweredYetDoesNotGoOnAgain(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	ts := k.server("tcp", hooks{}, func(c *Config) { c.Loops = 1 })
	c := ts.dial()
	c.do("use u\r\n", "USING u\r\n")
	ts.onLoops(func(l *loop) {
		x := journal.Effect{Session: session(1), Offset: 100, ID: 77, Kind: journal.EffectPut, State: journal.Ready}
		l.replay(l.conns[0], relay.NewReplay(80, []journal.Effect{x}, 0))
	})
	k.resign(ts)
	k.lead(ts)
	c.expectReset("of whose commands some are done")
}

// Half a body is copied when its server goes on with another engine, as far as there is room for such copies.
func TestBodiesAreCopiedUpToALimit(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	ts := k.server("tcp", hooks{copied: 50_000}, func(c *Config) { c.Loops = 1 })
	small := ts.dial()
	read := ts.sum().BytesIn
	half := "put 0 0 9 60000\r\n" + strings.Repeat("b", 40_000)
	small.send(half)
	ts.until("a half has come", func() bool { return ts.sum().BytesIn-read >= uint64(len(half)) })
	large := ts.dial()
	large.send(half)
	ts.until("both have come", func() bool { return ts.sum().BytesIn-read >= uint64(2*len(half)) })
	k.resign(ts)
	k.lead(ts)
	large.expectReset("whose body is one too many")
	small.send(strings.Repeat("b", 20_000) + "\r\n")
	if got := small.line(); !strings.HasPrefix(got, "INSERTED") {
		t.Errorf("got %q", got)
	}
}

// A wait has lasted at the next leader as long as at those before.
func TestAWaitLastsUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	leader := k.server("unix", hooks{}, func(*Config) {})
	ts, next := k.gateway("tcp", hooks{}, func(*Config) {}), k.gateway("unix", hooks{}, func(*Config) {})
	c := ts.dial()
	c.do("use u\r\n", "USING u\r\n")
	c.send("reserve-with-timeout 5\r\n")
	leader.untilSeenWaiting(1)
	k.ahead.Add(int64(4 * time.Second))
	k.handOver(next)
	k.apply(ts)
	next.untilSeenWaiting(1)
	if p := c.pending(); p != "" {
		t.Errorf("%q was sent before the time is over", p)
	}
	k.putAhead(next, 2*time.Second)
	c.expect("TIMED_OUT\r\n")
}

// A leader closes gateways' clients that do nothing for too long, unless they wait for a job.
func TestIdleClientsOfGatewaysAreClosed(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.stopped = true
	leader := k.server("unix", hooks{}, func(c *Config) { c.IdleTimeout = 5 * time.Second })
	ts := k.gateway("tcp", hooks{}, func(*Config) {})
	c, waits := ts.dial(), ts.dial()
	c.do("use u\r\n", "USING u\r\n")
	waits.send("reserve\r\n")
	leader.untilSeenWaiting(1)
	k.putAhead(leader, 4*time.Second)
	c.do("use v\r\n", "USING v\r\n")
	k.putAhead(leader, 4*time.Second)
	c.do("use w\r\n", "USING w\r\n")
	k.putAhead(leader, 6*time.Second)
	c.expectEOF()
	if n := ts.sum().Connections; n != 1 {
		t.Errorf("%d connections are left", n)
	}
}
