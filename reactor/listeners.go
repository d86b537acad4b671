package reactor

import (
	"net"
	"slices"
	"sync/atomic"
)

// listenerID is the number of the listener that a connection came from. Listeners for TLS
// have numbers from firstTLS on, and ownListener and channelListener are no listener's. When the numbers run
// out, several listeners share the last one.
type listenerID uint8

const firstTLS listenerID = 128

// listenerIDs is how many numbers there are.
const listenerIDs = 256

// tls tells whether the listener's clients speak TLS.
func (id listenerID) tls() bool { return id >= firstTLS }

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
	plain, tls []string // addresses; guarded by Server.mu
}

// add gives a listener a number, that of the one before on the same address. Server.mu is held.
func (t *listenerTable) add(l net.Addr, tls bool) listenerID {
	addr := l.String()
	if l.Network() == "unix" {
		addr = "unix:" + addr
	}
	addrs, first, end := &t.plain, 0, int(channelListener)
	if tls {
		addrs, first, end = &t.tls, int(firstTLS), listenerIDs
	}
	i := slices.Index(*addrs, addr)
	if i < 0 {
		i = len(*addrs)
		*addrs = append(*addrs, addr)
	}
	return listenerID(min(first+i, end-1))
}

// stats are those of all listeners. Server.mu is held.
func (t *listenerTable) stats() []ListenerStats {
	var all []ListenerStats
	add := func(addrs []string, first, end int) {
		for i, addr := range addrs[:min(len(addrs), end-first)] {
			n := &t.counts[first+i]
			all = append(all, ListenerStats{Addr: addr, TLS: listenerID(first).tls(), Connections: n.open.Load(), Accepted: n.accepted.Load()})
		}
	}
	add(t.plain, 0, int(channelListener))
	add(t.tls, int(firstTLS), listenerIDs)
	return all
}
