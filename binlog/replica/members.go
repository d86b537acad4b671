package replica

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// isMember tells whether an id is one of a configuration's, also of one that is being
// left.
func isMember(cs *raftpb.ConfState, id uint64) bool {
	return slices.Contains(cs.GetVoters(), id) || slices.Contains(cs.GetLearners(), id) ||
		slices.Contains(cs.GetVotersOutgoing(), id) || slices.Contains(cs.GetLearnersNext(), id)
}

// changeMembers returns the members after a change, which brings the one that it adds.
func changeMembers(ms []member.Member, cs *raftpb.ConfState, cc *raftpb.ConfChangeV2) ([]member.Member, error) {
	if len(cc.GetContext()) > 0 {
		var m member.Member
		if err := json.Unmarshal(cc.GetContext(), &m); err != nil {
			return nil, fmt.Errorf("a change of the members: %w", err)
		}
		ms = slices.DeleteFunc(ms, func(o member.Member) bool { return o.ID == m.ID })
		ms = append(ms, m)
	}
	return slices.DeleteFunc(ms, func(m member.Member) bool { return !isMember(cs, uint64(m.ID)) }), nil
}

func isVoter(cs *raftpb.ConfState, id uint64) bool { return slices.Contains(cs.GetVoters(), id) }
