package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/console/series"
	"trellis/cmd/internal/operate"
)

const (
	// followedTubes is how many tubes have a history.
	followedTubes = 32
	// followTime is how long a tube is measured that nobody looks at.
	followTime = 10 * time.Minute
	// measureTime is how long measuring may take.
	measureTime = 900 * time.Millisecond
)

// history is what was measured lately of the server and of the tubes that somebody has
// looked at.
type history struct {
	mu     sync.Mutex
	server trend             // guarded by mu
	tubes  map[string]*trend // guarded by mu
	edits  uint64            // changes that were made here; guarded by mu
}

// trend is the history of one thing. It is guarded by the mutex of its history.
type trend struct {
	ring     series.Ring
	meter    operate.Meter // zero if the last look at it has failed
	lastLook time.Time     // when somebody has looked last
	ages     agesOf        // of a tube's ready jobs, as listed last
	lists    bool          // they are being listed
}

// add adds what was counted at a time.
func (t *trend) add(now time.Time, n operate.Counts) {
	rates := t.meter.Rates(now, n)
	t.ring.Add(now.Unix(), series.Point{
		series.In: float32(rates.In), series.Out: float32(rates.Out), series.Timeouts: float32(rates.Timeouts),
		series.Ready: float32(n.Ready), series.Reserved: float32(n.Reserved), series.Delayed: float32(n.Delayed),
		series.Buried: float32(n.Buried), series.Waiting: float32(n.Waiting),
		series.Wait: float32(rates.Wait), series.Busy: float32(rates.Busy),
	})
}

// points are those of the last five minutes by the second, or of the last six hours by the minute.
func (t *trend) points(now time.Time, long bool) []series.Point {
	if long {
		return t.ring.LastMinutes(now.Unix())
	}
	return t.ring.LastSeconds(now.Unix())
}

// ofServer returns the points of the server.
func (h *history) ofServer(now time.Time, long bool) []series.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server.points(now, long)
}

// ofTube returns the points of a tube, which is measured from now on.
func (h *history) ofTube(name string, now time.Time, long bool) []series.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tubes[name]
	if t == nil {
		if len(h.tubes) >= followedTubes {
			h.removeOldest()
		}
		t = new(trend)
		h.tubes[name] = t
	}
	t.lastLook = now
	return t.points(now, long)
}

// beginAges returns the last ages of a tube's jobs, if there are any. If done is not nil, they are too old: the caller
// lists them and passes them to done, or passes the old ones if that fails. Nobody else is asked to list them until
// then. For a tube that is not followed done is nil.
func (h *history) beginAges(tube string, now time.Time) (a agesOf, done func(agesOf)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tubes[tube]
	if t == nil {
		return agesOf{}, nil
	}
	if t.lists || now.Before(t.ages.next) {
		return t.ages, nil
	}
	t.lists = true
	edits := h.edits
	return t.ages, func(a agesOf) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.edits != edits { // it may not show what was changed meanwhile
			a.next = a.soonest
		}
		t.ages, t.lists = a, false
	}
}

// changed has the ages of jobs listed anew, so that whoever changes something sees what
// has come of it.
func (h *history) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.edits++
	for _, t := range h.tubes {
		t.ages.next = t.ages.soonest
	}
}

// removeOldest removes the tube that nobody has looked at for longest. The caller holds mu.
func (h *history) removeOldest() {
	oldest := ""
	for name, t := range h.tubes {
		if oldest == "" || t.lastLook.Before(h.tubes[oldest].lastLook) {
			oldest = name
		}
	}
	delete(h.tubes, oldest)
}

// followed are the tubes that are to be measured.
func (h *history) followed(now time.Time) (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, t := range h.tubes {
		if now.Sub(t.lastLook) > followTime {
			delete(h.tubes, name)
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// measure adds a point to every history. What cannot be measured is a gap.
func (c *Console) measure(ctx context.Context, now time.Time) {
	h := &c.history
	names := h.followed(now)
	var counts operate.Counts
	var known bool
	if c.cfg.Local != nil {
		counts, known = c.cfg.Local.Counts()
	}
	var tubes []client.Fields
	if c.cfg.Local == nil || known && len(names) > 0 {
		err := c.pool.with(ctx, func(conn *client.Conn) (err error) {
			if c.cfg.Local == nil {
				stats, err := conn.Stats(ctx)
				if err != nil {
					return err
				}
				counts, known = operate.CountsOf(stats), true
			}
			tubes, err = operate.StatsTubes(ctx, conn, names)
			return err
		})
		if err != nil {
			tubes = nil
			known = known && c.cfg.Local != nil
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known {
		h.server.add(now, counts)
	} else {
		h.server.meter = operate.Meter{}
	}
	for i, name := range names {
		t := h.tubes[name]
		switch {
		case t == nil:
		case i < len(tubes) && tubes[i] != nil:
			t.add(now, operate.CountsOf(tubes[i]))
		default:
			t.meter = operate.Meter{}
		}
	}
}

// isGone reports whether an error says that there is no such thing.
func isGone(err error) bool { return errors.Is(err, client.ErrNotFound) }
