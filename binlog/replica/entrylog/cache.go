package entrylog

import "go.etcd.io/raft/v3/raftpb"

// cache holds the last entries of a log, as many as fit. They are contiguous.
type cache struct {
	limit int64 // of bytes, but for one entry
	bytes int64
	ring  []*raftpb.Entry // the last is the log's last; those before head are nil
	head  int
}

// entryOverhead is about what an entry takes beside its data.
const entryOverhead = 160

func cost(e *raftpb.Entry) int64 { return int64(len(e.GetData())) + entryOverhead }

// first is the index of the first entry, or the greatest number if there is none.
func (c *cache) first() uint64 {
	if c.head == len(c.ring) {
		return ^uint64(0)
	}
	return c.ring[c.head].GetIndex()
}

// get is an entry that is there.
func (c *cache) get(index uint64) *raftpb.Entry { return c.ring[c.head+int(index-c.first())] }

// add adds an entry behind the last one, or in place of one that is there and all
// behind it.
func (c *cache) add(e *raftpb.Entry) {
	c.cut(e.GetIndex())
	c.ring = append(c.ring, e)
	c.bytes += cost(e)
	for c.bytes > c.limit && len(c.ring)-c.head > 1 {
		c.evict()
	}
	if c.head > 64 && c.head > len(c.ring)/2 {
		n := copy(c.ring, c.ring[c.head:])
		clear(c.ring[n:])
		c.ring, c.head = c.ring[:n], 0
	}
}

func (c *cache) evict() {
	c.bytes -= cost(c.ring[c.head])
	c.ring[c.head] = nil
	c.head++
}

// cut removes the entries from index on.
func (c *cache) cut(index uint64) {
	for n := len(c.ring); n > c.head && c.ring[n-1].GetIndex() >= index; n-- {
		c.bytes -= cost(c.ring[n-1])
		c.ring[n-1] = nil
		c.ring = c.ring[:n-1]
	}
}

// removeBefore removes the entries before index.
func (c *cache) removeBefore(index uint64) {
	for c.head < len(c.ring) && c.ring[c.head].GetIndex() < index {
		c.evict()
	}
}
