package reactor

import (
	"slices"

	"trellis/engine"
	"trellis/reactor/internal/relay"
)

// unflushed is how many bytes the system has not got of what the loop's clients are owed, and is more than 0
// while a reply waits for a commit. Trunks whose sessions go on over others are told to retire when nothing
// more is to be said on them, and then only they are waited for: what their clients
// have not taken, and what the server's own have not if their sessions go on too, is not lost.
func (l *loop) unflushed() (bytes int64) {
	busy := !l.commits.waiting.Empty() || l.streams.HasWritable()
	if busy {
		bytes++
	}
	if h, ok := l.journal.(engine.Holds); !ok || !h.RecordsHolds() {
		bytes += l.streams.Counts.PendingOutput.Load()
	}
	for _, t := range l.trunks.list {
		e, ok := t.end.(*leaderEnd)
		switch {
		case !ok:
		case !e.ResumesSessions():
			bytes += e.pendingOutput()
		case busy || e.Waiting():
			bytes++
		default:
			e.Retire()
		}
		bytes += int64(t.pending())
	}
	return bytes
}

// pendingOutput is what the trunk's clients are owed.
func (e *leaderEnd) pendingOutput() (bytes int64) {
	for _, h := range e.Channels() {
		if h != nil {
			bytes += int64(channelOf(h).Owed())
		}
	}
	return bytes
}

// endRetired ends the trunks that were told to retire: their gateways come back over others.
func (l *loop) endRetired() {
	now := l.server.now()
	for _, t := range slices.Clone(l.trunks.list) {
		if e, ok := t.end.(*leaderEnd); ok && e.IsRetired() {
			t.fail(now, relay.ErrRetired)
		}
	}
}
