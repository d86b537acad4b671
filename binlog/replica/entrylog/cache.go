package entrylog

import "go.etcd.io/raft/v3/raftpb"

// cache holds the last entries of a log, as many as fit. They are contiguous.
type cache struct {
	limit   int64 // of bytes, but for one entry
	bytes   int64
	entries []*raftpb.Entry // the last is the log's last
}

// entryOverhead is about what an entry takes beside its data.
const entryOverhead = 160

func cost(e *raftpb.Entry) int64 { return int64(len(e.GetData())) + entryOverhead }

// first is the index of the first entry, or the greatest number if there is none.
func (c *cache) first() uint64 {
	if len(c.entries) == 0 {
		return ^uint64(0)
	}
	return c.entries[0].GetIndex()
}

// get is an entry that is there.
func (c *cache) get(index uint64) *raftpb.Entry { return c.entries[index-c.first()] }

// add adds an entry behind the last one, or in place of one that is there and all
// behind it.
func (c *cache) add(e *raftpb.Entry) {
	c.cut(e.GetIndex())
	c.entries = append(c.entries, e)
	c.bytes += cost(e)
	for c.bytes > c.limit && len(c.entries) > 1 {
		c.evict()
	}
}

// evict removes the first entry. Its place is left behind when append moves the others.
func (c *cache) evict() {
	c.bytes -= cost(c.entries[0])
	c.entries[0] = nil
	c.entries = c.entries[1:]
}

// cut removes the entries from index on.
func (c *cache) cut(index uint64) {
	for n := len(c.entries); n > 0 && c.entries[n-1].GetIndex() >= index; n-- {
		c.bytes -= cost(c.entries[n-1])
		c.entries[n-1] = nil
		c.entries = c.entries[:n-1]
	}
}

// removeBefore removes the entries before index.
func (c *cache) removeBefore(index uint64) {
	for len(c.entries) > 0 && c.entries[0].GetIndex() < index {
		c.evict()
	}
}
