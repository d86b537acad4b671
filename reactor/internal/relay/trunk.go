package relay

import "trellis/reactor/internal/trunk"

const (
	// MaxOutput is how many bytes may wait in a trunk until the other side takes them. What is small and bounded by
	// itself may exceed it.
	MaxOutput = 512 << 10
	// FewOutput is how many may wait when those who have more to say than there is room for go on.
	FewOutput = 64 << 10
)

// Trunk is the connection to the other side. The host makes frames of what is sent, and writes them when the round
// ends.
type Trunk interface {
	// Send never fails: what is sent on a trunk that has ended is dropped. The item and its data are the caller's again
	// when Send returns.
	Send(it *trunk.Item)
	// Room is how many of MaxOutput bytes may still be sent.
	Room() int
}

// output is a trunk and memory for what is sent on it.
type output struct {
	trunk Trunk
	item  trunk.Item // on the stack it would have to be allocated
	data  []byte
}

func (o *output) send(it trunk.Item) {
	o.item = it
	o.trunk.Send(&o.item)
	o.item.Data = nil
}
