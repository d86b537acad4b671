package control

import (
	"encoding/json"
	"errors"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
)

// The operations of a Request.
const (
	OpStatus   = "status"
	OpTransfer = "transfer"
	OpAdd      = "add"
	OpRemove   = "remove"
	OpBackup   = "backup"
)

// Request is what a member is asked.
type Request struct {
	Op     string `json:"op"`
	Digest bool   `json:"digest,omitempty"` // of status: a walk over all jobs
	To     string `json:"to,omitempty"`     // of transfer: a name
	Node   string `json:"node,omitempty"`   // of add: name=host:port; of remove: a name
	Index  uint64 `json:"index,omitempty"`  // of backup: the entry up to which it must go at least
}

// ErrUnknown tells of a request that the member cannot read, or of an operation that it
// does not have.
var ErrUnknown = errors.New("a request that this node does not know")

// Parse reads a request. Its error is ErrUnknown.
func Parse(b []byte) (r Request, err error) {
	if json.Unmarshal(b, &r) != nil || r.Op == "" {
		return Request{}, ErrUnknown
	}
	return r, nil
}

// Status is how a member sees its cluster.
type Status struct {
	Node    member.Node      `json:"node"`
	Cluster member.ClusterID `json:"cluster"`
	Clients string           `json:"clients"` // where the node serves clients now, as the leader or through it; or ""
	replica.Status
	Connections int64 `json:"connections,omitempty"` // of clients to the node

	// Contact is how many seconds ago the node sent the last ping that the leader has answered. It is nil if the node
	// forwards no clients.
	Contact *float64 `json:"contact,omitempty"`
	Unready string   `json:"unready,omitempty"` // why the node would not answer a client's command now; "" if it would

	// Digest is of the jobs as of Applied. It is nil if nobody asked for it, or it could not be taken.
	Digest *replica.Digest `json:"digest,omitempty"`

	// Contradictions is how many records of reservations did not fit those before them, since the
	// member was started. There should be none.
	Contradictions uint64 `json:"contradictions,omitempty"`
}
