package engine

import "trellis/codec"

// A list of tubes can be much longer than what may lie ready for a client that does
// not take it. So it is sent in parts, and its length, which goes first, is known
// without writing it.
const (
	listPart  = 32 << 10 // bytes of a part, but for the last name
	listHead  = "---\n"
	itemExtra = len("- \n") // of a name in a list
)

// A listing is a list that is being sent.
type listing struct {
	names nameSource
	begun bool
}

// nameSource goes through the names of a list.
type nameSource interface {
	// size is the length in bytes of the items of the list.
	size() int
	// next returns the next name, false when there is none. An empty name is not
	// listed: it lets others have their turn while names are looked at.
	next() (name string, ok bool)
}

// listTubes lists the tubes that there are when it begins.
func (s *Session) listTubes(now Time, out *Output) Outcome {
	if s.flags&restricted != 0 {
		return s.listGranted(now, out)
	}
	li := &listing{names: s.loop.engine.registry.snapshot()}
	return li.turn(s, now, out)
}

func (s *Session) listTubesWatched(now Time, out *Output) Outcome {
	li := &listing{names: &watchedNames{left: s.watched}}
	return li.turn(s, now, out)
}

// turn appends a part of the list.
func (li *listing) turn(s *Session, _ Time, out *Output) Outcome {
	if !li.begun {
		li.begun = true
		out.Buf = codec.AppendOKLine(out.Buf, len(listHead)+li.names.size())
		out.Buf = append(out.Buf, listHead...)
	}
	full := len(out.Buf) + listPart
	for n := 0; ; n++ {
		name, ok := li.names.next()
		if !ok {
			out.Buf = append(out.Buf, "\r\n"...)
			return Done
		}
		if name != "" {
			out.Buf = append(out.Buf, "- "...)
			out.Buf = append(out.Buf, name...)
			out.Buf = append(out.Buf, '\n')
		}
		if !s.loop.Spend(1) && n > 0 || len(out.Buf) >= full {
			return s.yield(li)
		}
	}
}

// watchedNames are the names in a session's watch list, which does not change while
// it is listed.
type watchedNames struct{ left []watch }

func (w *watchedNames) size() (n int) {
	for i := range w.left {
		n += len(w.left[i].tube.name) + itemExtra
	}
	return n
}

func (w *watchedNames) next() (string, bool) {
	if len(w.left) == 0 {
		return "", false
	}
	t := w.left[0].tube
	w.left = w.left[1:]
	return t.name, true
}
