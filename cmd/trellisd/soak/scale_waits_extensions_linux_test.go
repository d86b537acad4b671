//go:build proof

package soak

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"sync"

	"trellis/cmd/trellisd/internal/servertest"
)

// manyJobs is how many jobs the extension commands of extensionWaits are about.
const manyJobs = 1_000_000

// manyKeys lets them have as many keys as they like.
var manyKeys = []string{"--max-keys=0"}

// Puts of manyJobs, each with an empty body.
var (
	readyJobs   = putLine("put 0 0 600 0\r\n\r\n")
	delayedJobs = putLine("put 0 4000000 600 0\r\n\r\n")
	uniqueJobs  = func(b []byte, i int) []byte { return fmt.Appendf(b, "put 0 0 600 0 idp:key-%d\r\n\r\n", i) }
	limitedJobs = func(b []byte, i int) []byte { return fmt.Appendf(b, "put 0 0 600 0 con:key-%d\r\n\r\n", i) }
	// groupedJobs have a thousand limited keys, and a unique one each.
	groupedJobs = func(b []byte, i int) []byte {
		return fmt.Appendf(b, "put 0 0 600 0 idp:key-%d con:key-%d:2\r\n\r\n", i, i%1000)
	}
)

func putLine(line string) func(b []byte, i int) []byte {
	return func(b []byte, _ int) []byte { return append(b, line...) }
}

// extensionWaits are waits for extension commands.
var extensionWaits = []waitCase{
	overJobs("flush-ready", "flush-tube of 1,000,000 ready jobs", readyJobs, "flush-tube one", "FLUSHED"),
	overJobs("flush-delayed", "flush-tube of 1,000,000 delayed jobs", delayedJobs, "flush-tube one", "FLUSHED"),
	overBuried("flush-buried", "flush-tube of 1,000,000 buried jobs", "flush-tube one", "FLUSHED"),
	overReserved("flush-reserved", "flush-tube of 1,000,000 reserved jobs", "flush-tube one", "FLUSHED", manyJobs),
	overJobs("flush-unique", "flush-tube of 1,000,000 jobs with a unique key each", uniqueJobs, "flush-tube one", "FLUSHED"),
	overJobs("flush-limited", "flush-tube of 1,000,000 jobs with a limited key each", limitedJobs, "flush-tube one", "FLUSHED"),
	overJobs("flush-grouped", "flush-tube of 1,000,000 jobs with unique and a thousand limited keys", groupedJobs, "flush-tube one", "FLUSHED"),
	logged(overJobs("flush-binlog", "flush-tube of 1,000,000 ready jobs, with a binlog", readyJobs, "flush-tube one", "FLUSHED")),
	logged(overJobs("flush-grouped-binlog", "flush-tube of 1,000,000 jobs with unique and limited keys, with a binlog", groupedJobs, "flush-tube one", "FLUSHED")),
	{name: "flush-tombstones", what: "flush-tube of 1,000,000 tombstones", prepare: func(w *waits) func() {
		conn := w.using("one")
		pumpConn(w, conn, manyJobs, "INSERTED", func(b []byte, i int) []byte {
			return fmt.Appendf(b, "put 0 0 600 0 idp:key-%d:4000000\r\n\r\n", i)
		})
		pumpConn(w, conn, manyJobs, "DELETED", deleting(1, 1))
		return func() {
			w.c.Send("flush-tube one")
			w.c.Want("FLUSHED 0")
		}
	}},
	moving("move", "move-tube of 1,000,000 ready jobs to one tube", readyJobs, 1),
	moving("move-apart", "move-tube of 1,000,000 ready jobs to 50 tubes, some in the same shard", readyJobs, 50),
	moving("move-grouped", "move-tube of 1,000,000 jobs with unique and limited keys", groupedJobs, 1),
	logged(moving("move-binlog", "move-tube of 1,000,000 ready jobs, with a binlog", readyJobs, 1)),
	logged(moving("move-grouped-binlog", "move-tube of 1,000,000 jobs with unique and limited keys, with a binlog", groupedJobs, 1)),
	overReserved("delete-reserved", "delete-tube-jobs of 100,000 of 1,000,000 reserved jobs", "delete-tube-jobs one reserved 100000", "DELETED", 100_000),
	overReserved("touch-all", "touch-all of 1,000,000 jobs", "touch-all", "TOUCHED_ALL", manyJobs),
	listing("list-jobs", "a client asks for 10,000 of 1,000,000 ready jobs", 1),
	listing("list-jobs-many", "16 clients ask for 10,000 of 1,000,000 ready jobs, 5 times each", 16),
	connections("list-connections", "a client asks for 10,000 connections", 1),
	connections("list-connections-many", "16 clients ask for 10,000 connections, 5 times each", 16),
}

// logged is a case with a binlog.
func logged(c waitCase) waitCase {
	c.binlog = true
	return c
}

// using returns a connection that uses and watches a tube, and no other.
func (w *waits) using(tube string) net.Conn {
	w.Helper()
	conn := w.connect()
	pumpConn(w, conn, 3, "", func(b []byte, i int) []byte {
		return append(b, []string{"use " + tube + "\r\n", "watch " + tube + "\r\n", "ignore default\r\n"}[i]...)
	})
	return conn
}

// overJobs is a command for all jobs of the tube one.
func overJobs(name, what string, put func(b []byte, i int) []byte, command, reply string) waitCase {
	return waitCase{name: name, what: what, args: manyKeys, prepare: func(w *waits) func() {
		pumpConn(w, w.using("one"), manyJobs, "INSERTED", put)
		return func() {
			w.c.Send(command)
			w.c.Want(fmt.Sprint(reply, " ", manyJobs))
		}
	}, check: noJobs}
}

// overBuried is a command for all jobs of the tube one, which are buried.
func overBuried(name, what, command, reply string) waitCase {
	return waitCase{name: name, what: what, prepare: func(w *waits) func() {
		w.buried("one", 1, manyJobs)
		return func() {
			w.c.Send(command)
			w.c.Want(fmt.Sprint(reply, " ", manyJobs))
		}
	}, check: noJobs}
}

// overReserved is a command for jobs of the tube one, all of which the client has reserved.
func overReserved(name, what, command, reply string, count int) waitCase {
	return waitCase{name: name, what: what, prepare: func(w *waits) func() {
		conn := w.using("one")
		pumpConn(w, conn, manyJobs, "INSERTED", readyJobs)
		pumpConn(w, conn, 2*manyJobs, "", func(b []byte, i int) []byte {
			if i%2 == 0 { // a reply has two lines
				b = append(b, "reserve\r\n"...)
			}
			return b
		})
		wantCounts(w.c, map[string]int{"current-jobs-reserved": manyJobs})
		c := &servertest.Client{T: w.T, Conn: conn, In: bufio.NewReader(conn)}
		return func() {
			c.Send(command)
			c.Want(fmt.Sprint(reply, " ", count))
		}
	}}
}

func noJobs(w *waits) {
	wantCounts(w.c, map[string]int{"current-jobs-ready": 0, "current-jobs-reserved": 0, "current-jobs-delayed": 0, "current-jobs-buried": 0})
}

// moving is a move of all jobs of a tube to so many others. Which of these are in the same
// shard nobody knows.
func moving(name, what string, put func(b []byte, i int) []byte, targets int) waitCase {
	return waitCase{name: name, what: what, args: manyKeys, prepare: func(w *waits) func() {
		pumpConn(w, w.using("one"), manyJobs, "INSERTED", put)
		return func() {
			for i := range targets {
				w.c.Send(fmt.Sprintf("move-tube one ready to-%d %d", i, manyJobs/targets))
			}
			for range targets {
				w.c.Want(fmt.Sprint("MOVED ", manyJobs/targets))
			}
		}
	}, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-ready": manyJobs, "current-tubes": targets + 2})
	}}
}

const listed = 10_000 // items of a list

// listing is clients who list jobs.
func listing(name, what string, clients int) waitCase {
	return waitCase{name: name, what: what, prepare: func(w *waits) func() {
		pumpConn(w, w.using("one"), manyJobs, "INSERTED", readyJobs)
		return w.askForLists(clients, "list-jobs one ready "+strconv.Itoa(listed), 4*listed+2)
	}}
}

// connections is clients who list connections.
func connections(name, what string, clients int) waitCase {
	const keys = 16 // of an entry
	return waitCase{name: name, what: what, prepare: func(w *waits) func() {
		for range listed {
			w.connect()
		}
		servertest.Await(w.T, "all are open", func() bool {
			n, err := strconv.Atoi(servertest.Stats(w.c)["current-connections"])
			return err == nil && n >= listed
		})
		return w.askForLists(clients, "list-connections "+strconv.Itoa(listed), keys*listed+2)
	}}
}

// askForLists has so many clients ask for a list of so many lines: one once, several
// of them five times each.
func (w *waits) askForLists(clients int, command string, lines int) func() {
	w.Helper()
	var all []*servertest.Client
	for range clients {
		all = append(all, w.dial("use default", "USING default"))
	}
	times := 1
	if clients > 1 {
		times = 5
	}
	return func() {
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				for range times {
					if _, err := fmt.Fprint(c.Conn, command, "\r\n"); err != nil {
						w.Error(err)
					}
					w.wantLines(c, lines)
				}
			})
		}
		wg.Wait()
	}
}
