package replica

import (
	"bytes"
	"path/filepath"
	"testing"

	"trellis/binlog/replica/snapshot"
)

func TestABackupIsAllThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	for range 30 {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
	}
	want := c.settled()
	for _, p := range c.nodes {
		var stream bytes.Buffer
		meta, err := p.running().Backup(within(t), c.leader().lastIndex(), &stream)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(clusterDir, "backup")
		_, path, err := snapshot.Receive(p.fs, dir, meta.Index, meta.Term, &stream)
		if err != nil {
			t.Fatal(err)
		}
		copied := newModel()
		s, err := copied.Standby(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Load(p.fs, path, s, nil); err != nil {
			t.Fatal(err)
		}
		if got := copied.Digest(meta.Stamp); got != want {
			t.Errorf("%s: the backup has %v, the queue %v", p.name, got, want)
		}
	}
}
