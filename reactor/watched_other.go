//go:build !linux

package reactor

// watched are the handshakes for which a loop's poller waits: see watched_linux.go. Here there
// are none. A handshake begins as soon as there is a token, and its goroutine waits.
type watched struct{}

type watch struct{}

func (h *handshake) beginWatch() bool { return false }
func (h *handshake) endWatch()        {}

func (*watched) addLocked(*handshake)    {}
func (*watched) removeLocked(*handshake) {}

// reported is not called.
func (*handshakes) reported(int32, bool) {}
