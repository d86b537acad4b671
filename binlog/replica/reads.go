package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"trellis/binlog/journal"
)

// A read round asks a majority whether the node still leads: raft's ReadIndex with
// ReadOnlySafe. Its context is the term and the position of the round.

func roundContext(term uint64, pos journal.Pos) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, term)
	binary.LittleEndian.PutUint64(b[8:], uint64(pos))
	return b
}

// confirm takes raft's answer to a round. It counts only while the node leads in the
// round's term: raft forwards the request of a deposed node to the leader
// of the day, whose answer says nothing of the node that asked.
func (c *consensus) confirm(rs raft.ReadState) {
	l := c.leadership
	if l == nil || len(rs.RequestCtx) != 16 || binary.LittleEndian.Uint64(rs.RequestCtx) != l.term {
		return
	}
	if st := c.rn.BasicStatus(); st.RaftState != raft.StateLeader || st.GetTerm() != l.term {
		return
	}
	l.confirm(journal.Pos(binary.LittleEndian.Uint64(rs.RequestCtx[8:])))
}

// confirm ends the rounds up to a position. They count once all batches before them are
// committed.
func (l *Leadership) confirm(pos journal.Pos) {
	l.mu.Lock()
	if l.over.Load() {
		l.mu.Unlock()
		return
	}
	for _, u := range l.units[:l.inFlight] {
		if u.round() && u.pos <= pos {
			u.done = true
		}
	}
	l.finish()
}
