package replica

import (
	"encoding/json"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/member"
)

// Meta is what a snapshot says beside its jobs. All of it is as of the entry Index.
type Meta struct {
	Index, Term uint64
	ConfState   *raftpb.ConfState `json:"-"`
	Members     []member.Member   // those of ConfState

	Reign    uint64 // of the last entry that was not ignored
	Sequence uint64 // of that entry
	Stamp    int64  // cluster time, nanoseconds since 1970; 0 if there was no entry
	Highest  uint64 // id that was used
	Decided  uint64 // see entry.Header

	Jobs  uint64
	Bytes int64 // of the records
}

// encode is the snapshot as raft sends it. Raft's own part has index, term and members'
// ids.
func (m *Meta) encode() (*raftpb.Snapshot, error) {
	b, err := json.Marshal(m)
	return &raftpb.Snapshot{Data: b, Metadata: m.raft()}, err
}

func decodeMeta(s *raftpb.Snapshot) (m Meta, err error) {
	if err := json.Unmarshal(s.GetData(), &m); err != nil {
		return Meta{}, fmt.Errorf("what a snapshot says of itself: %w", err)
	}
	if m.Index != s.GetMetadata().GetIndex() || m.Term != s.GetMetadata().GetTerm() || m.Index == 0 {
		return Meta{}, fmt.Errorf("a snapshot of entry %d of term %d for one of entry %d", m.Index, m.Term, s.GetMetadata().GetIndex())
	}
	m.ConfState = raftpb.EnsureConfState(s.GetMetadata().GetConfState())
	return m, nil
}

func (m *Meta) raft() *raftpb.SnapshotMetadata {
	return &raftpb.SnapshotMetadata{Index: &m.Index, Term: &m.Term, ConfState: m.ConfState}
}

// Snapshots are those in a node's directory. At most one is current. package snapshot
// has one. Methods may be called from any goroutine, Create and SetCurrent one at a
// time.
type Snapshots interface {
	// Current is the snapshot that the pointer names.
	Current() (Meta, error)
	// Load feeds a standby with a snapshot, which is current.
	Load(m Meta, s Standby) error
	// Create begins a snapshot.
	Create() (SnapshotWriter, error)
	// SetCurrent has the pointer name a snapshot that was finished or received, durably.
	// The one before is removed, if nobody reads it.
	SetCurrent(m Meta) error
	// Send writes the snapshot, which was current, to w.
	Send(m Meta, w io.Writer) error
	// Receive makes a snapshot durable that Send has written.
	Receive(m Meta, r io.Reader) error
}

// SnapshotWriter writes one snapshot. Its methods are for one goroutine.
type SnapshotWriter interface {
	Full(r *journal.Record) error
	Update(r *journal.Record) error
	Delete(id uint64) error
	// Finish makes the snapshot durable, with Jobs and Bytes of its own.
	Finish(m Meta) (Meta, error)
	// Abort removes what was written.
	Abort()
}
