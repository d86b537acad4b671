package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"trellis/binlog/replica/member"
)

// introduction is a control request by which a member tells one that does not know it
// who the members are. See [replica.Node.Meet].
type introduction struct {
	Op      string           `json:"op"`
	Cluster member.ClusterID `json:"cluster"`
	Index   uint64           `json:"index"` // of the entry as of which these are the members
	Members []member.Member  `json:"members"`
}

const (
	introduce = "introduce"

	introduceTimeout = 2 * time.Second
)

var errForeign = errors.New("an introduction to another cluster")

// introduceTo introduces this node to a member that has refused it.
func (m *Member) introduceTo(id member.ID) {
	node := m.node.Load()
	if node == nil {
		return
	}
	st := node.Status()
	i := introduction{Op: introduce, Cluster: m.store.Identity().Cluster.ID, Index: st.Applied}
	addr := ""
	for _, o := range st.Members {
		i.Members = append(i.Members, o.Member)
		if o.ID == id {
			addr = o.Addr
		}
	}
	req, err := json.Marshal(i)
	if err != nil || addr == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), introduceTimeout)
	defer cancel()
	// Whoever still refuses this node is met again.
	_, _ = m.call(ctx, addr, req)
}

// meet takes an introduction. It tells whether the request is one.
func (m *Member) meet(req []byte) (ok bool, err error) {
	var i introduction
	if err := json.Unmarshal(req, &i); err != nil || i.Op != introduce {
		return false, nil
	}
	node := m.node.Load()
	switch {
	case node == nil:
		return true, errNotYet
	case i.Cluster != m.store.Identity().Cluster.ID:
		return true, errForeign
	}
	node.Meet(i.Index, i.Members)
	return true, nil
}
