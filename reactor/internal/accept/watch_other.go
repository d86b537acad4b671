//go:build !linux

package accept

// silentClients are the handshakes for which a loop's poller waits: see watch_linux.go. Here there are none. A
// handshake begins as soon as there is a token, and its goroutine waits.
type silentClients struct{}

type watch struct{}

func (h *handshake) beginWatch() bool { return false }
func (h *handshake) endWatch()        {}

func (*silentClients) addLocked(*handshake)    {}
func (*silentClients) removeLocked(*handshake) {}

// reported is not called.
func (*handshakes) reported(int32, bool) {}
