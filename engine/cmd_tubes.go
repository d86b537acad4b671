package engine

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/sliceheap"
	"trellis/engine/stats"
)

// statsTubeX describes a tube with what beanstalkd does not count.
func (s *Session) statsTubeX(now Time, name []byte, out *Output) {
	l := s.loop
	n, err := l.tx.Tube(now, name, out)
	if err != nil {
		out.Answer(err, "")
		return
	}
	l.reply(out, appendTube(append(l.scratch[:0], listHead...), &n, "", ""))
}

// appendTube appends a tube's numbers with first before the first key, and rest before the
// others.
func appendTube(b []byte, n *stats.Tube, first, rest string) []byte {
	y := yaml(b)
	y.quoted(first+"name", n.Name)
	number := func(k string, v uint64) {
		y = append(y, rest...)
		y.number(k, v)
	}
	micros := func(k string, v uint64) {
		y = append(y, rest...)
		y.micros(k, v)
	}
	number("current-jobs-ready", uint64(n.Ready))
	number("current-jobs-reserved", uint64(n.Reserved))
	number("current-jobs-delayed", uint64(n.Delayed))
	number("current-jobs-buried", uint64(n.Buried))
	number("current-jobs-held", uint64(n.Held))
	number("current-jobs-orphaned", uint64(n.Orphaned))
	number("current-watching", uint64(n.Watching))
	number("current-waiting", uint64(n.Waiting))
	number("oldest-ready-age", uint64(Time(n.OldestReady).Whole()))
	y = append(y, rest...)
	y.bare("limited-by", n.LimitedBy.String())
	number("limited-for", uint64(Time(n.LimitedFor).Whole()))
	number("total-jobs", n.Puts)
	number("total-reserves", n.Reserves)
	number("total-deletes", n.Deletes-n.Flushed)
	number("total-releases", n.Releases)
	number("total-timeouts", n.Timeouts)
	number("total-buries", n.Buries)
	number("total-dead-letters", n.DeadLetters)
	number("total-expired", n.Expired)
	micros("wait-time", n.WaitMicros)
	micros("busy-time", n.BusyMicros)
	return y
}

// listingTubes is a stats-tubes. It finds the names of the page among those of all tubes,
// describes these tubes, each as it is at one moment, because the length goes first, and then
// sends the list in parts.
type listingTubes struct {
	all   tubeItems // what was not looked at
	after string    // names up to this one are not of the page
	most  int       // names that the page has
	page  []string  // until all was looked at a heap, the greatest first; then what was not described, in order
	found bool      // all was looked at
	text  []byte
	pos   journal.Pos
}

const (
	nameSlice   = 256 // names that are looked at in one go
	nameCost    = 64  // for that
	tubeCost    = 8   // to describe a tube
	sortedNames = 4   // that are put into order for a unit of cost
)

// listTubeStats describes the tubes behind one of them, by name.
func (s *Session) listTubeStats(now Time, cmd *codec.Command, out *Output) Outcome {
	li := &listingTubes{after: string(cmd.Tube), most: int(cmd.Bound), found: cmd.Bound == 0}
	if !li.found {
		name, count, _ := s.loop.engine.TubeNames()
		li.all = tubeItems{name: name, count: count, permits: s.permits()}
	}
	return li.turn(s, now, out)
}

func (li *listingTubes) turn(s *Session, now Time, out *Output) Outcome {
	l := s.loop
	for !li.found {
		if !li.look() {
			slices.Sort(li.page)
			l.budget -= len(li.page) / sortedNames
			li.found = true
		}
		if !l.Spend(nameCost) {
			return s.yield(li)
		}
	}
	for len(li.page) > 0 {
		li.describe(s, now)
		if !l.Spend(tubeCost) {
			return s.yield(li)
		}
	}
	return (&listing{items: &textItems{li.text}, size: len(li.text), pos: li.pos}).turn(s, now, out)
}

func laterName(a, b *string) bool { return *a > *b }

// look looks at some names. It returns false when there are no more.
func (li *listingTubes) look() (more bool) {
	for range nameSlice {
		name, ok := li.all.nextName()
		switch {
		case !ok:
			return false
		case name <= li.after || li.all.permits != nil && !li.all.permits(name):
		case len(li.page) < li.most:
			li.page = append(li.page, name)
			sliceheap.Up(li.page, laterName)
		case name < li.page[0]:
			li.page[0] = name
			sliceheap.Down(li.page, laterName)
		}
	}
	return true
}

// describe describes the next tube of the page, unless it has gone.
func (li *listingTubes) describe(s *Session, now Time) {
	name := li.page[0]
	li.page = li.page[1:]
	var on Output // that the list depends on
	if n, err := s.loop.tx.Tube(now, []byte(name), &on); err == nil {
		li.pos = max(li.pos, on.Pos)
		li.text = appendTube(li.text, &n, "- ", "  ")
	}
}
