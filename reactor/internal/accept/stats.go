package accept

import "sync/atomic"

// Stats is what has become of connections, at about one moment.
type Stats struct {
	Accepted       uint64 // connections that were given to a loop
	AcceptFailures uint64 // attempts to accept that failed, mostly for want of descriptors
	AcceptPauses   uint64 // times that accepting paused for that
	AcceptPaused   int64  // listeners on which accepting is paused now
	Refused        uint64 // connections that were accepted and closed at once because something failed
	RefusedOver    uint64 // the same, because there were more than the limit allows
	Strangers      uint64 // the same, because they came to a listener for proxies from elsewhere
	MaxConnections int    // that limit
	Places         int64  // how many of that are taken now

	Listeners []ListenerStats // in the order in which they were served, those for TLS behind the others
}

// counts are written by any goroutine.
type counts struct {
	accepted, failures, pauses atomic.Uint64
	refused, over, strangers   atomic.Uint64
	paused                     atomic.Int64
}

// Stats returns the acceptor's counters.
func (a *Acceptor) Stats() Stats {
	c := &a.counts
	st := Stats{
		Accepted:       c.accepted.Load(),
		AcceptFailures: c.failures.Load(),
		AcceptPauses:   c.pauses.Load(),
		AcceptPaused:   c.paused.Load(),
		Refused:        c.refused.Load(),
		RefusedOver:    c.over.Load(),
		Strangers:      c.strangers.Load(),
		MaxConnections: a.cfg.MaxConnections,
		Places:         a.taken.Load(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	st.Listeners = a.listeners.stats()
	return st
}

// Opened counts a connection that a loop has taken in.
func (a *Acceptor) Opened(from ListenerID) {
	a.counts.accepted.Add(1)
	n := &a.listeners.counts[from]
	n.accepted.Add(1)
	n.open.Add(1)
}

// Closed counts the end of such a connection, whose place is free then.
func (a *Acceptor) Closed(from ListenerID) {
	a.listeners.counts[from].open.Add(-1)
	if from != Own {
		a.taken.Add(-1)
	}
}
