package replica

import "testing"

// A standby is tidied to the end, also when the leader has nothing more to tell.
func TestAStandbyIsTidiedToTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	const jobs = 20
	var ids []uint64
	for range jobs {
		c.must(func(q *model) error {
			id, err := q.put([]byte("x"))
			if err == nil {
				ids = append(ids, id)
			}
			return err
		})
	}
	for _, id := range ids {
		c.must(func(q *model) error { return q.delete(id) })
	}
	c.settled()
	for _, p := range c.others(c.leader()) {
		c.eventually("a standby is tidy", func() bool {
			p.queue.mu.Lock()
			defer p.queue.mu.Unlock()
			return p.queue.untidy == 0
		})
	}
}
