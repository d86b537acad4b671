package replica

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestOneNodeServesAndFindsItsJobsAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	l := c.leader()
	var ids []uint64
	for i := range 100 {
		id, err := l.queue.put(fmt.Appendf(nil, "body %d", i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids[:50] {
		if err := l.queue.delete(id); err != nil {
			t.Fatal(err)
		}
	}
	before := c.settled()
	c.restart(l)
	c.leader()
	if after := c.settled(); after != before || after.Jobs != 50 {
		t.Errorf("%v after a restart, %v before", after, before)
	}
	id, err := l.queue.put(nil)
	if err != nil || id != ids[99]+1 {
		t.Errorf("job %d, %v, follows job %d", id, err, ids[99])
	}
}

func TestANodeTellsWhatItHasFoundOfItsLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	p := c.nodes[0]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	before := c.settled()
	p.kill()
	name := filepath.Join(clusterDir, entriesDir, "entries.0000000001")
	f, err := p.fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	end := int64(len(bytes.TrimRight(b, "\x00"))+7) &^ 7
	if _, err := f.WriteAt([]byte("torn"), end+64); err != nil {
		t.Fatal(err)
	}
	if err := c.start(p); err != nil {
		t.Fatal(err)
	}
	if after := c.settled(); after != before {
		t.Errorf("%v after a restart, %v before", after, before)
	}
	for _, want := range []string{"the entry log was read", "level=WARN msg=\"the end of the entry log was cut off", "file=" + name + " offset="} {
		if !strings.Contains(c.net.logged(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

func TestThreeNodesGoOnWithoutTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	for round := range 5 {
		l := c.leader()
		for i := range 20 {
			c.must(func(q *model) error {
				_, err := q.put(fmt.Appendf(nil, "body %d of round %d", i, round))
				return err
			})
		}
		c.restart(l, func() {
			c.leader(c.others(l)...)
			c.must(func(q *model) error { return q.delete(uint64(1 + round)) })
		})
		c.settled()
	}
}

func TestALeaderThatIsCutOffComesBackAsAStandby(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	l := c.leader()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	c.net.isolate(l, true)
	if _, err := l.queue.put([]byte("never")); err == nil {
		t.Error("a leader without followers has acknowledged a put")
	}
	c.leader(c.others(l)...)
	c.must(func(q *model) error { _, err := q.put([]byte("another")); return err })
	c.net.isolate(l, false)
	if d := c.settled(); d.Jobs < 2 {
		t.Errorf("%d jobs", d.Jobs)
	}
}
