package bench

import "errors"

// ErrBroken is wrapped by the error of a Result or a comparison in which a server broke its promises, so that a caller
// can tell it from a load that could not be put on.
var ErrBroken = errors.New("the server broke the protocol")

// A Violation is a way in which a server can break its promises.
type Violation string

// The violations that a run reports.
const (
	// ViolationLost is a job that was put and acknowledged, and never came back.
	ViolationLost Violation = "lost"
	// ViolationDuplicate is a job that was handed out while somebody held it, or after it was deleted, or twice
	// under different ids; or an id that was given to two jobs.
	ViolationDuplicate Violation = "duplicate"
	// ViolationCorrupt is a body that is not the one that was put under that id.
	ViolationCorrupt Violation = "corrupt"
	// ViolationReply is a reply that the protocol does not allow there, or an error reply.
	ViolationReply Violation = "reply"
	// ViolationMissing is a reply that did not come.
	ViolationMissing Violation = "missing reply"
	// ViolationClosed is a connection that the server closed, or that could not be made.
	ViolationClosed Violation = "closed"
	// ViolationOrder is a job that came before a more urgent or older one.
	ViolationOrder Violation = "order"
	// ViolationEarly is a delay or a timeout that ended before its time.
	ViolationEarly Violation = "early"
)

// A Report says how often a kind of violation occurred, with a few examples in words.
type Report struct {
	Kind     Violation `json:"kind"`
	Count    int64     `json:"count"`
	Examples []string  `json:"examples"`
}
