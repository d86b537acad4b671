package replica

import (
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// report is what a member tells of itself with each answer to a heartbeat, in fields that raft
// does not look at there. An older program leaves zero in those that it does not know.
type report struct {
	fullDisk bool   // Reject: the disk is nearly full
	version  uint32 // RejectHint: the latest version of entries that the member can read
	toLoad   uint64 // Index: percent that is left of what it has to load before it can lead; 0 if it can
	storing  uint64 // LogTerm: ticks for which it has waited for its disk; 0 if it does not
	arrived  uint64 // Commit: bytes that have come from the leader by way of appends, whole messages or not
	bodies   bool   // Commit, highest bit: the member has body files, and says what is in them when it is sent a snapshot
}

// bodiesBit is where a report has bodies. To an older program it is a large number of bytes, always the same.
const bodiesBit = 1 << 63

// report is what this node tells of itself. Whom it tells decides about arrived: see send.
func (c *consensus) report() report {
	return report{
		fullDisk: c.node.space.low.Load(), version: c.node.opts.Newest, toLoad: c.toLoad(), storing: c.storing(),
		bodies: c.node.opts.Bodies > 0,
	}
}

// put writes a report into an answer to a heartbeat.
func (r *report) put(m *raftpb.Message) {
	version, arrived := uint64(r.version), r.arrived
	if r.bodies {
		arrived |= bodiesBit
	}
	m.Reject, m.RejectHint, m.Index, m.LogTerm, m.Commit = &r.fullDisk, &version, &r.toLoad, &r.storing, &arrived
}

// reportOf is the report in an answer to a heartbeat.
func reportOf(m *raftpb.Message) report {
	return report{
		fullDisk: m.GetReject(),
		version:  uint32(min(m.GetRejectHint(), math.MaxUint16)),
		toLoad:   min(m.GetIndex(), 100),
		storing:  m.GetLogTerm(),
		arrived:  m.GetCommit() &^ bodiesBit,
		bodies:   m.GetCommit()&bodiesBit != 0,
	}
}
