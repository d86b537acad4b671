package reactor

import (
	"errors"
	"fmt"
	"io"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// openCost is to open a session and to close it.
const openCost = 16

var (
	errHalfClosed = fmt.Errorf("the gateway's client sends no more: %w", io.EOF)
	errClientGone = errors.New("the gateway's client has gone")
)

// do does what the gateway asks for a client.
func (h *channel) do(now time.Duration, r *relay.Request) error {
	l := h.loop
	switch r.Ask {
	case relay.OpenSession:
		l.engine.Spend(openCost)
		h.client = clientOf(&r.Opening.Client)
		if !l.held {
			return h.begin(now, r.Opening)
		}
		opening := *r.Opening
		h.opening = &opening
		h.postpone()
		return nil
	case relay.ResumeSession:
		h.client = clientOf(&r.Opening.Client)
		if d := r.Opening.Replay; d != nil {
			l.replay(&h.conn, d)
		}
		l.resumptions.Push(resumption{end: h.leader(), channel: h, session: r.Opening.Session, size: r.Opening.Size})
		return nil
	case relay.CloseSession:
		h.closing(now, errClientGone)
		return nil
	}
	if h.phase >= broken {
		return nil // it was on its way when the session ended
	}
	switch r.Ask {
	case relay.Execute:
		h.input(now, r.Data)
	case relay.SendMore:
		if int64(h.Credit())+int64(r.Number) > trunk.MaxCredit {
			return h.relay.CreditError()
		}
		l.streams.AddCredit(&h.Stream, int(r.Number))
	case relay.EndReplay:
		if l.replays[&h.conn].IsOver() {
			delete(l.replays, &h.conn)
		}
	case relay.EndInput:
		h.halfClose(now)
	case relay.Reconsider:
		if h.phase != authenticating {
			h.conclude(now)
		}
	}
	return nil
}

// begin opens the session of a channel.
func (h *channel) begin(now time.Duration, o *relay.Opening) error {
	l := h.loop
	l.executing = &h.conn
	err := l.engine.OpenAs(&h.session, o.Client.Session, o.Grant, l.time(now))
	l.executing = nil
	if err == engine.ErrConnections {
		h.leader().Refuse(&h.relay, codec.ReplyOutOfMemory)
		h.enter(draining)
		h.conclude(now)
		return nil
	}
	if err != nil {
		return err
	}
	if r := h.session.Rate(); r != nil {
		r.Take(l.time(now), rateConnection)
	}
	h.enter(serving)
	h.limitLife(now)
	return nil
}

// beginLate opens the session of a channel that came while the server was held.
func (h *channel) beginLate(now time.Duration) error {
	o := h.opening
	h.opening = nil
	return h.begin(now, o)
}

// input takes what the client has sent.
func (h *channel) input(now time.Duration, p []byte) {
	if h.relay.Resumes() {
		h.loop.streams.Counts.BytesIn.Add(uint64(len(p)))
		h.loop.streams.Keep(&h.Stream, p)
		return
	}
	h.conn.received(now, p)
	h.giveCredit()
}

// halfClose notes that the client sends no more, or that the gateway reads no more of it because it ends.
func (h *channel) halfClose(now time.Duration) {
	switch {
	case h.phase == authenticating: // until commands are executed again
		h.loop.streams.End(&h.Stream)
	case h.relay.IsLeaving() && h.phase < draining:
		h.loop.streams.End(&h.Stream)
		h.outlive(now)
	default:
		h.closing(now, errHalfClosed)
	}
}

// Denied implements engine.Carrier.
func (l *loop) Denied(s *engine.Session, d *engine.Deed) bool {
	h := connOf(s).channel()
	if h == nil {
		return false
	}
	h.leader().Denied(&h.relay, &trunk.Denied{
		Command: d.Op.String(), Tube: d.Tube, To: d.To, Result: d.Result, ID: d.ID,
	})
	return true
}

// Via implements engine.Carrier.
func (*loop) Via(s *engine.Session) string {
	if h := connOf(s).channel(); h != nil {
		return h.leader().name
	}
	return ""
}

// clientOf is what a gateway says of a client.
func clientOf(o *trunk.Open) accept.Endpoint {
	return accept.Endpoint{
		Addr: o.Client, Unix: o.Network == trunk.NetworkUnix, Own: o.Network == trunk.NetworkOwn,
	}
}
