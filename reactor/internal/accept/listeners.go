package accept

import (
	"net"
	"slices"
	"sync/atomic"
)

// ListenerID is the number of the listener that a connection came from. Listeners for TLS have the numbers from
// firstTLS on. When the numbers run out, several listeners share the last one.
type ListenerID uint8

const (
	firstTLS ListenerID = 128

	// Own is the number of connections that the process has made to itself: see Acceptor.Connect.
	Own = firstTLS - 1

	// NoListener is the number for what does not come by this package.
	NoListener = Own - 1

	listenerIDs = 256
)

// TLS reports whether the listener's clients speak TLS.
func (id ListenerID) TLS() bool { return id >= firstTLS }

// ListenerStats is what has come from one listener.
type ListenerStats struct {
	Addr        string // HOST:PORT, or unix:PATH
	TLS         bool
	Connections int64  // open now; those in a TLS handshake are not open yet
	Accepted    uint64 // connections that were given to a loop
}

// listenerCounts are written by any loop.
type listenerCounts struct {
	open     atomic.Int64
	accepted atomic.Uint64
}

// listenerTable is the listeners that are, or were, served.
type listenerTable struct {
	counts     [listenerIDs]listenerCounts
	plain, tls []string // addresses; guarded by Acceptor.mu
}

// add gives a listener a number, that of the one before on the same address. Acceptor.mu is held.
func (t *listenerTable) add(l net.Addr, tls bool) ListenerID {
	addr := l.String()
	if l.Network() == "unix" {
		addr = "unix:" + addr
	}
	addrs, first, end := &t.plain, 0, int(NoListener)
	if tls {
		addrs, first, end = &t.tls, int(firstTLS), listenerIDs
	}
	i := slices.Index(*addrs, addr)
	if i < 0 {
		i = len(*addrs)
		*addrs = append(*addrs, addr)
	}
	return ListenerID(min(first+i, end-1))
}

// stats are those of all listeners. Acceptor.mu is held.
func (t *listenerTable) stats() []ListenerStats {
	var all []ListenerStats
	add := func(addrs []string, first, end int) {
		for i, addr := range addrs[:min(len(addrs), end-first)] {
			n := &t.counts[first+i]
			all = append(all, ListenerStats{
				Addr: addr, TLS: ListenerID(first).TLS(), Connections: n.open.Load(), Accepted: n.accepted.Load(),
			})
		}
	}
	add(t.plain, 0, int(NoListener))
	add(t.tls, int(firstTLS), listenerIDs)
	return all
}
