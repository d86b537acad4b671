package reactor

import (
	"sync/atomic"
	"time"

	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/relay"
)

// LoopStats is what one event loop has done and holds.
type LoopStats struct {
	Connections   int64 // open now, those included that are being ended
	Ending        int64 // being ended now: the client has quit or sent its last, and is still being answered
	Stalled       int64 // not executed further now until the client takes output
	PendingInput  int64 // bytes that were read and wait to be executed
	PendingOutput int64 // bytes of replies that clients have not taken yet

	Opened     uint64 // connections that were given to the loop
	BytesIn    uint64
	BytesOut   uint64
	TrunkIn    uint64 // bytes read from trunks
	TrunkOut   uint64 // bytes written to trunks
	Stalls     uint64 // times that a connection became stalled
	OverLimit  uint64 // clients closed because they sent more than may be kept for them
	OverOutput uint64 // clients closed because they were owed more replies than may be kept for them
	OverTotal  uint64 // clients closed because they were owed most, and all together more than may be kept
	Idle       uint64 // clients closed because they were idle for too long
	Aged       uint64 // clients closed because their connection was old
	Unverified uint64 // clients closed because their certificate was not accepted any more
	Cut        uint64 // clients closed because they took no output while their connection was being ended
	Lacking    uint64 // clients closed because no descriptor was left to go on answering after they sent their last
	Refused    uint64 // clients closed because they did not authenticate
	Unserved   uint64 // clients of a gateway closed because there was no leader for too long
	TrunkLost  uint64 // clients of a gateway closed because the trunk has ended on which they were forwarded
	NoContact  uint64 // the same, because there was no contact with a leader for too long, or their jobs were freed
	Unrepeated uint64 // the same, because what they are owed an answer to, or have a part of one to, cannot be sent again
	Lags       uint64 // the same, because this member did not apply for too long what was executed for them
	Unknown    uint64 // clients of gateways closed because what became of commands under another leader is unknown or told
	Misfits    uint64 // the same, because the log tells of a command where none ends: there should be none
	Resumed    uint64 // sessions, of gateways' clients or of this server's own, that went on in this engine after another
	Repeated   uint64 // commands of these that were answered by what the log told of them
	Attaches   uint64 // times that a leader took the clients of a gateway
	Panics     uint64 // clients closed because executing a command of theirs panicked

	Apart   time.Duration // that passed for a gateway until these times, without a leader
	Contact time.Duration // since a gateway sent the last ping that was answered; negative if it has sent none, or is none
}

// Stats is a server's state at about one moment.
type Stats struct {
	AcceptStats
	Loops    []LoopStats
	Channels int64 // clients of gateways
	Relayed  int64 // bytes that count as kept for clients whose commands go over trunks: see package relay
}

// Stats returns the server's counters. Any goroutine may call it; it disturbs
// nothing.
func (s *Server) Stats() Stats {
	st := Stats{AcceptStats: s.acceptor.Stats(), Loops: make([]LoopStats, len(s.loops))}
	st.Channels, st.Relayed = s.channels.Load(), s.gatewayMemory.Load()
	for i, l := range s.loops {
		c, n := &l.counts, &l.streams.Counts
		st.Loops[i] = LoopStats{
			Connections:   c.connections.Load(),
			Ending:        c.ending.Load(),
			Stalled:       n.Stalled.Load(),
			PendingInput:  n.PendingInput.Load(),
			PendingOutput: n.PendingOutput.Load(),
			Opened:        c.opened.Load(),
			BytesIn:       n.BytesIn.Load(),
			BytesOut:      n.BytesOut.Load(),
			TrunkIn:       l.links.In.Load(),
			TrunkOut:      l.links.Out.Load(),
			Stalls:        n.Stalls.Load(),
			OverLimit:     n.TooMuchInput.Load(),
			OverOutput:    n.TooMuchOutput.Load(),
			OverTotal:     c.overTotal.Load(),
			Idle:          c.idle.Load(),
			Aged:          c.aged.Load(),
			Unverified:    c.unverified.Load(),
			Cut:           c.cut.Load(),
			Lacking:       c.lacking.Load(),
			Refused:       c.unauthorized.Load(),
			Unserved:      c.unserved.Load(),
			TrunkLost:     c.trunkLost.Load(),
			NoContact:     c.noContact.Load(),
			Unrepeated:    c.unrepeated.Load(),
			Lags:          c.lags.Load(),
			Unknown:       c.unknown.Load(),
			Misfits:       c.misfits.Load(),
			Resumed:       c.resumed.Load(),
			Repeated:      c.repeated.Load(),
			Attaches:      c.attaches.Load(),
			Apart:         time.Duration(c.apart.Load()),
			Contact:       -1,
			Panics:        c.panics.Load(),
		}
		if at := time.Duration(c.contact.Load()); at != 0 {
			st.Loops[i].Contact = s.hooks.boot() - at
		}
	}
	return st
}

// counts are a loop's own: it alone writes them, anybody may read them.
type counts struct {
	connections, ending            atomic.Int64
	opened                         atomic.Uint64
	overTotal, cut, panics         atomic.Uint64
	idle, lacking                  atomic.Uint64
	unauthorized, aged, unverified atomic.Uint64
	unserved, trunkLost            atomic.Uint64
	unknown, misfits, resumed      atomic.Uint64
	noContact, unrepeated, lags    atomic.Uint64
	repeated, attaches             atomic.Uint64
	apart                          atomic.Int64
	contact                        atomic.Int64 // by Config.BootTime; 0 for none
}

// Latency is how long commands took.
type Latency = latency.Latency

// Latency sums up how long commands took. Any goroutine may call it. A loop waits
// for it as long as it takes to copy that loop's numbers.
func (s *Server) Latency() *Latency {
	sum := new(Latency)
	for _, l := range s.loops {
		l.latency.AddTo(sum)
	}
	return sum
}

// lost counts the clients that were ended for a cause; it is nil for those that have left.
func (n *counts) lost(why relay.Cause) *atomic.Uint64 {
	switch why {
	case relay.TrunkEnded:
		return &n.trunkLost
	case relay.Unrepeatable:
		return &n.unrepeated
	case relay.Contactless:
		return &n.noContact
	case relay.Lagging:
		return &n.lags
	}
	return nil
}
