package replica

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// While the raft goroutine waits for a read, nobody hears that leadership is lost but by
// those who look after it.
func TestALeaderWhoseRaftGoroutineHangsLeavesItsClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	l := c.leader()
	gate, entered := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	l.frozen.Store(true)
	l.stuck.Store(true)
	l.running().inbox.call(func() {
		close(entered)
		<-gate
	})
	<-entered
	c.eventually("the queue serves no more", func() bool { return !l.queue.serves() })
	release()
	l.frozen.Store(false)
	l.stuck.Store(false)
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	if d := c.settled(); d.Jobs != 2 {
		t.Errorf("%d jobs", d.Jobs)
	}
}

// Nothing can end a loop that hangs but the end of the process, and its clients wait.
func TestANodeWhoseQueueDoesNotEndItsServiceEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	for _, p := range c.nodes {
		p.retireTime = time.Millisecond
		p.onRetire = func() {
			p.stuck.Store(true)
			<-gate
		}
	}
	c.startAll()
	l := c.leader()
	l.running().Resign("a test wants it")
	c.eventually("the node ends", func() bool {
		_, down := l.end()
		return down
	})
	if err, _ := l.end(); !errors.Is(err, ErrStuck) {
		t.Errorf("%v", err)
	}
	c.leader(c.others(l)...)
}
