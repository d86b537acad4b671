package reactor

import (
	"context"
	"time"

	"trellis/engine"
)

// idlers closes the connections of one loop that have been idle for too long.
//
// Being active only stores the time. Connections lie in a ring of slots by the
// time at which they are to be looked at, which is when they would have been idle
// for too long if they did nothing more; those that have done something are then
// put where that makes them belong. So one timer serves all of them, a busy
// connection costs one look in each timeout, and an idle one is closed at most an
// eighth of the timeout late. It belongs to the loop's goroutine.
type idlers struct {
	timeout engine.Time // 0: nobody is closed
	width   engine.Time // of a slot
	slots   [2 * idleSlots]idler
	seen    int64 // the last slot, counted from time 0, that was looked at
	count   int
	timer   *time.Timer
	armed   bool
}

// idleSlots is how many slots a timeout has.
const idleSlots = 8

// idler is a connection's place in the ring. In a slot, which is the head of a
// list, it stands for no connection.
type idler struct {
	conn       *conn
	next, prev *idler
	active     engine.Time // when the client last sent or took something
}

func (d *idlers) init(l *loop, timeout time.Duration) {
	d.timeout = engine.Time(timeout)
	d.width = max(d.timeout/idleSlots, 1)
	for i := range d.slots {
		s := &d.slots[i]
		s.next, s.prev = s, s
	}
	d.timer = time.AfterFunc(time.Hour, func() { l.post((*idleTask)(l)) })
	d.timer.Stop()
}

// add has a connection looked at from now on.
func (d *idlers) add(c *conn, now engine.Time) {
	if d.timeout == 0 {
		return
	}
	c.idle = &idler{conn: c, active: now}
	d.insert(c.idle, now+d.timeout)
	if !d.armed {
		d.seen = int64(now / d.width)
		d.arm(now)
	}
}

// insert has e looked at soon after at, which is not more than a timeout away.
func (d *idlers) insert(e *idler, at engine.Time) {
	head := &d.slots[(at/d.width+1)%engine.Time(len(d.slots))]
	e.next, e.prev = head, head.prev
	head.prev.next, head.prev = e, e
	d.count++
}

func (d *idlers) remove(e *idler) {
	if e.next == nil {
		return
	}
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = nil, nil
	d.count--
}

// arm sets the timer for the first slot that somebody is in.
func (d *idlers) arm(now engine.Time) {
	d.armed = d.count > 0
	if !d.armed {
		return
	}
	n := d.seen + 1
	for ; ; n++ {
		if s := &d.slots[n%int64(len(d.slots))]; s.next != s {
			break
		}
	}
	d.timer.Reset(max(0, time.Duration(engine.Time(n)*d.width-now)))
}

// touched notes that the client does something.
func (c *conn) touched(now engine.Time) {
	if c.idle != nil {
		c.idle.active = now
	}
}

// idleTask looks at the connections whose time has come.
type idleTask loop

func (t *idleTask) Run(context.Context) error {
	l := (*loop)(t)
	d := &l.idle
	now := l.server.cfg.Now()
	last := int64(now / d.width)
	// Slots for the same place in the ring are looked at together when this
	// comes very late.
	for n := max(d.seen, last-int64(len(d.slots))) + 1; n <= last; n++ {
		head := &d.slots[n%int64(len(d.slots))]
		// Those who stay may be put into the same slot again.
		for left := head.len(); left > 0 && head.next != head; left-- {
			c := head.next.conn
			d.remove(c.idle)
			c.checkIdle(now)
		}
	}
	d.seen = last
	d.arm(now)
	l.deliver(now)
	return nil
}

func (head *idler) len() (n int) {
	for e := head.next; e != head; e = e.next {
		n++
	}
	return n
}

// checkIdle closes a connection on which nothing has happened for too long,
// unless it waits for something that is not the client's to do, or holds a job.
func (c *conn) checkIdle(now engine.Time) {
	l := c.loop
	defer l.recovered()
	d := &l.idle
	switch {
	case c.ended || c.over || c.x != nil && c.x.timed:
		return // it is being ended, which has a time limit of its own
	case c.waiting, c.x != nil && c.x.held, c.session.Reserves(now):
		d.insert(c.idle, now+d.timeout)
		return
	case c.idle.active+d.timeout > now:
		d.insert(c.idle, c.idle.active+d.timeout)
		return
	}
	l.counts.idle.Add(1)
	if n, ok := l.server.idles.allow(); ok {
		l.server.log.Info("an idle connection is closed", "timeout", time.Duration(d.timeout), "unreported", n)
	}
	c.broken = true
	c.end(now)
}
