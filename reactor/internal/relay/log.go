package relay

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"trellis/binlog/journal"
)

// NoIndex is an index of the log that is never applied.
const NoIndex = math.MaxUint64

// ErrNumberGone is why a gateway gives up whose number is gone on record, with all sessions that begin with it.
var ErrNumberGone = errors.New("the number of this loop is gone, and its sessions with it")

// log is what this member's log has told of commands of the gateway's clients: should the leader change, the gateway
// tells the next one what of that has no answer yet.
type log struct {
	effects []journal.Effect // as far as they may matter, in their order
	applied uint64           // the index up to which all effects have come, and those of fenced clients are theirs
}

// Applied takes what the log has told, up to an index at least, behind what it has told before. If something before
// that is lost, what clients were not answered by then does not go on under another leader. The list is the caller's
// again when Applied returns.
func (g *Gateway) Applied(index uint64, list []journal.Effect, isLost bool) {
	if isLost {
		g.log.effects = nil
		for _, f := range g.clients {
			if f.replay == nil || !f.replay.complete {
				f.unresumable = f.given()
				f.forgetEffects()
			}
		}
	}
	g.log.effects = append(g.log.effects, list...)
	g.log.effects = slices.DeleteFunc(g.log.effects, func(e journal.Effect) bool {
		f := g.resumes[e.Session]
		return f == nil || e.Offset <= f.answered
	})
	if !g.link.fenced.empty() && index >= g.leader.fence {
		g.shareLog()
		g.log.applied = index
	}
}

func (f *Client) forgetEffects() {
	if f.replay != nil {
		f.replay.effects = nil
		f.endReplay()
	}
}

// shareLog gives clients for whom nothing is executed now what the log has told of their commands.
func (g *Gateway) shareLog() {
	g.log.effects = slices.DeleteFunc(g.log.effects, func(e journal.Effect) bool {
		f := g.resumes[e.Session]
		waits := f != nil && (f.channel == 0 || f.state == replaying)
		if waits {
			if f.replay == nil {
				f.replay = new(replay)
			}
			f.replay.effects = append(f.replay.effects, e)
		}
		return waits
	})
	for _, f := range g.clients {
		if f.replay != nil {
			slices.SortStableFunc(f.replay.effects, func(a, b journal.Effect) int { return cmp.Compare(a.Offset, b.Offset) })
		}
	}
}
