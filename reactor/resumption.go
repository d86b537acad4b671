package reactor

import (
	"time"

	"trellis/engine"
)

// resumeCost is to resume a session.
const resumeCost = 40

// resumption is a session that is to go on on the loop; or, without a channel, what follows on the last that its
// gateway has named.
type resumption struct {
	end     *leaderEnd
	channel *channel
	session *engine.Detached
	size    int
}

// canResume reports whether a session may be resumed now.
func (l *loop) canResume() bool { return !l.resumptions.Empty() && !l.held }

// resumeNext resumes the session that has waited longest for it. Behind the last of a gateway, sessions end that it
// has not named: their clients have gone.
func (l *loop) resumeNext(now time.Duration) {
	r := l.resumptions.Pop()
	l.engine.Spend(resumeCost)
	r.end.Resumed(r.size)
	switch {
	case r.end.Over(): // it will name its sessions on another trunk
	case r.channel == nil:
		l.server.engine.Load().CloseAbsent(r.end.Number())
	case r.channel.phase < broken:
		r.channel.goOn(now, r.session)
	}
}

// goOn resumes the channel's session, with what has come for it meanwhile.
func (h *channel) goOn(now time.Duration, was *engine.Detached) {
	l := h.loop
	defer l.recovered()
	h.relay.Resume()
	l.executing = &h.conn
	err := l.engine.GoOn(&h.session, was, 0, l.time(now))
	l.executing = nil
	if err != nil {
		h.loseTrack(err.Error(), &l.counts.unknown)
		h.conclude(now)
		return
	}
	l.counts.resumed.Add(1)
	h.enter(serving)
	h.limitLife(now)
	h.session.Received(h.InputLen())
	if h.Ended() && !h.relay.IsLeaving() {
		h.endInput(now)
	} else {
		h.advance(now)
	}
	h.conclude(now)
}
