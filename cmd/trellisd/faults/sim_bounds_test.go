package faults_test

import (
	"fmt"
	"runtime"

	"trellis/binlog/replica"
	"trellis/reactor"
)

// mostPending is how many bytes a reactor keeps for clients. One may have 192 KiB and a batch, all of them had 190 KB.
func mostPending(clients int64) int64 { return 384<<10 + clients*8<<10 }

// mostGoroutines is how many goroutines a cluster adds of which nobody wants anything: those of members, of their
// connections to each other, and a few of the history and of the runtime.
func mostGoroutines(members int) int { return 20 + members*(10+7*(members-1)) }

// reactor is the process's, nil if it has none, or if there is no process.
func (p *process) reactor() *reactor.Server {
	if p == nil {
		return nil
	} else if s := p.queue.Serving(); s != nil {
		return s.Reactor
	} else if f := p.queue.Forwarding(); f != nil {
		return f.Reactor
	}
	return nil
}

// checkMemory checks that reactors keep no more for clients than they may.
func (c *group) checkMemory() {
	for m, p := range c.running() {
		r := p.reactor()
		if r == nil {
			continue
		}
		s := r.Stats()
		l := &s.Loops[0]
		clients := l.Connections + s.Channels
		if n := l.PendingInput + l.PendingOutput; n < 0 || n > mostPending(clients) || s.Relayed < 0 {
			c.wrong("%s keeps %d bytes for %d clients, and %d for what is relayed", m.name, n, clients, s.Relayed)
		}
	}
}

// checkLeft checks what is left of all that has happened, when nothing happens any more.
func (c *group) checkLeft() {
	for m, p := range c.running() {
		var s replica.Status
		c.within(patience, fmt.Sprintf("the log of %s is short", m.name), func() bool { // a snapshot was just taken
			s = p.status()
			return s.LogBytes <= 5*max(m.bytes, s.SnapshotBytes)+8*segmentSize
		})
		var bodies int64
		if b := p.member.Bodies(); b != nil {
			bodies = b.Files.Bytes
		} else if c.plan.cold {
			continue // it may still have some files
		}
		used, most := m.disk.fs.Used(), 2*(s.LogBytes+s.SnapshotBytes)+4*segmentSize+reserve+bodies
		if used > most {
			c.wrong("%s has %d bytes on its disk, of which %d are the log, %d the snapshot, and %d bodies",
				m.name, used, s.LogBytes, s.SnapshotBytes, bodies)
		}
	}
	if n := runtime.NumGoroutine() - c.others; n > mostGoroutines(len(c.machines)) {
		c.wrong("%d goroutines are left of %d members", n, len(c.machines))
	}
}
