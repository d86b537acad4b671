package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"trellis/binlog/journal"
)

// A read round asks a majority whether the node still leads: raft's ReadIndex with
// ReadOnlySafe. Its context is the reign and the position of the round.

func roundContext(reign uint64, pos journal.Pos) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, reign)
	binary.LittleEndian.PutUint64(b[8:], uint64(pos))
	return b
}

// confirm takes raft's answer to a round. It counts only while the node leads in the
// term of the round's reign: raft forwards the request of a deposed node to the leader
// of the day, whose answer says nothing of the node that asked.
func (c *consensus) confirm(rs raft.ReadState) {
	o := c.office
	if o == nil || len(rs.RequestCtx) != 16 || binary.LittleEndian.Uint64(rs.RequestCtx) != o.reign {
		return
	}
	if st := c.rn.BasicStatus(); st.RaftState != raft.StateLeader || st.GetTerm() != o.reign {
		return
	}
	o.confirm(journal.Pos(binary.LittleEndian.Uint64(rs.RequestCtx[8:])))
}

// confirm ends the rounds up to a position. They count once all batches before them are
// committed.
func (o *Office) confirm(pos journal.Pos) {
	o.mu.Lock()
	if o.over.Load() {
		o.mu.Unlock()
		return
	}
	for _, u := range o.units[:o.sent] {
		if u.round() && u.pos <= pos {
			u.done = true
		}
	}
	o.finish()
}
