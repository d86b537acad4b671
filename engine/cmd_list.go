package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// A list can be much longer than what may lie ready for a client that does not take it. So
// it is sent in parts. Its length goes first: unless it is known, all items are appended to
// scratch memory once to count their bytes.
const (
	listPart  = 32 << 10 // bytes of a part, but for the last item
	listHead  = "---\n"
	itemExtra = len("- \n") // of a name in a list
)

// A listing is a list that is being sent.
type listing struct {
	items   items
	counted items       // the same as items, as far as they are not counted; nil when all are
	size    int         // bytes of all items, as far as counted
	pos     journal.Pos // that the list depends on
	begun   bool        // the reply
}

// items goes through what is listed.
type items interface {
	// next appends the next item, or nothing for one that is not to be shown. It returns
	// false when there is none.
	next(b []byte) (_ []byte, ok bool)
}

// turn counts, or appends a part of the list.
func (li *listing) turn(s *Session, _ Time, out *Output) Outcome {
	l := s.loop
	for n := 0; li.counted != nil; n++ {
		if n > 0 && !l.Spend(1) {
			return s.yield(li)
		}
		item, ok := li.counted.next(l.scratch[:0])
		l.scratch = item[:0]
		if li.size += len(item); !ok {
			li.counted = nil
		}
	}
	if !li.begun {
		li.begun = true
		out.DependOn(li.pos)
		out.Buf = codec.AppendOKLine(out.Buf, len(listHead)+li.size)
		out.Buf = append(out.Buf, listHead...)
	}
	full := len(out.Buf) + listPart
	for n := 0; ; n++ {
		var ok bool
		if out.Buf, ok = li.items.next(out.Buf); !ok {
			out.Buf = append(out.Buf, "\r\n"...)
			return Done
		}
		if !l.Spend(1) && n > 0 || len(out.Buf) >= full {
			return s.yield(li)
		}
	}
}

// listTubes lists the tubes that there are when it begins, as far as they are the client's.
func (s *Session) listTubes(now Time, out *Output) Outcome {
	name, count, bytes := s.loop.engine.TubeNames()
	items := tubeItems{name: name, count: count, permits: s.permits()}
	counted := items
	li := &listing{items: &items, size: bytes + count*itemExtra}
	if items.permits != nil {
		li.counted, li.size = &counted, 0
	}
	return li.turn(s, now, out)
}

// tubeItems are the names of tubes in a list.
type tubeItems struct {
	name      func(i int) string
	at, count int                    // the next one, and how many there are
	permits   func(name string) bool // those that are shown; nil if all are
}

// nextName returns the next name, and false when there is none.
func (ti *tubeItems) nextName() (name string, ok bool) {
	if ti.at == ti.count {
		return "", false
	}
	ti.at++
	return ti.name(ti.at - 1), true
}

func (ti *tubeItems) next(b []byte) (_ []byte, ok bool) {
	name, ok := ti.nextName()
	if ok && (ti.permits == nil || ti.permits(name)) {
		b = appendName(b, name)
	}
	return b, ok
}

func (s *Session) listTubesWatched(now Time, out *Output) Outcome {
	li := &listing{items: &watchedNames{client: &s.client}, counted: &watchedNames{client: &s.client}}
	return li.turn(s, now, out)
}

// watchedNames are the names in a session's watch list, which does not change while
// it is listed.
type watchedNames struct {
	client *shard.Client
	at     int // the next one
}

func (w *watchedNames) next(b []byte) (_ []byte, ok bool) {
	if w.at == w.client.Watching() {
		return b, false
	}
	b = appendName(b, w.client.TubeWatched(w.at))
	w.at++
	return b, true
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, "- "...), name...), '\n')
}
