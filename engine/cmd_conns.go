package engine

import (
	"strconv"

	"trellis/binlog/journal"
	"trellis/codec"
)

// entryForm is how a connection is described.
type entryForm struct {
	first, rest string // what stands before the first key, and before the others
	most        int    // names of tubes, and ids of jobs, that are listed
}

var (
	dictionaryForm = entryForm{most: 100}
	listForm       = entryForm{first: "- ", rest: "  ", most: 10}
)

// statsOwnConn describes the client's own connection.
func (s *Session) statsOwnConn(now Time, out *Output) {
	l := s.loop
	l.budget -= entryCost
	s.bytesOut += uint64(out.Size()) // replies to commands that came in the same read
	y, pos := s.appendEntry(append(l.scratch[:0], listHead...), &dictionaryForm, now)
	s.bytesOut -= uint64(out.Size())
	out.DependOn(pos)
	l.reply(out, y)
}

// statsConn describes a connection.
func (s *Session) statsConn(id uint64, out *Output) Outcome {
	o := s.loop.engine.roll.find(id)
	if o == nil {
		out.Reply(codec.ReplyNotFound)
		return Done
	}
	c := &rollCall{sessions: []*Session{o}, form: dictionaryForm}
	return s.callRoll(c, (*describing)(c))
}

// describing is a stats-conn of a connection that may be another loop's.
type describing rollCall

func (d *describing) turn(s *Session, now Time, out *Output) Outcome {
	if len(d.text) == 0 {
		out.Reply(codec.ReplyNotFound) // it has gone, or is none of the client's business
		return Done
	}
	return listingText(d.text, d.pos).turn(s, now, out)
}

// kickConn ends a connection. When it is answered, the session is closed, and what it had
// reserved is ready again, unless that is so much that it is given back in turns.
func (s *Session) kickConn(id uint64, out *Output) Outcome {
	if id == s.id {
		out.Reply(codec.ReplyKicked)
		return Quit
	}
	o := s.loop.engine.roll.find(id)
	if o == nil {
		out.Reply(codec.ReplyNotFound)
		return Done
	}
	c := &rollCall{sessions: []*Session{o}, kicks: true}
	return s.callRoll(c, (*kicking)(c))
}

// kicking is a kick-connection of a connection that may be another loop's.
type kicking rollCall

func (k *kicking) turn(_ *Session, _ Time, out *Output) Outcome {
	if k.kicked {
		out.Reply(codec.ReplyKicked)
	} else {
		out.Reply(codec.ReplyNotFound) // it has gone
	}
	return Done
}

const (
	// rollSlice is how many connections are described before the list of them goes on with
	// the next ones.
	rollSlice = 250
	// maxConnsText is how many bytes of descriptions are listed at most. A description has
	// some hundred bytes, or 3,000 with the longest names of tubes: a list of a thousand is
	// whole, and one of ten thousand unless many of the clients have asked for long names.
	maxConnsText = 4 << 20
)

// listingConns is a list-connections: it is gathered, because its length goes first, and
// then sent in parts. Until the client has taken it, it is kept.
type listingConns struct {
	from     uint64 // the least id that is still to be looked at
	left     int    // how many may still be listed
	call     *rollCall
	gathered bool
	text     []byte
	pos      journal.Pos
}

func (s *Session) listConns(now Time, cmd *codec.Command, out *Output) Outcome {
	li := &listingConns{from: cmd.ID + 1, left: int(cmd.Bound)}
	li.gathered = li.from == 0 // there is no id behind the greatest
	return li.turn(s, now, out)
}

func (li *listingConns) turn(s *Session, now Time, out *Output) Outcome {
	if li.call != nil {
		li.take()
	}
	if !li.gathered {
		r := &s.loop.engine.roll
		sessions := r.appendFrom(nil, li.from, min(li.left, rollSlice))
		if n := len(sessions); n > 0 {
			li.from = sessions[n-1].id + 1
			li.gathered = li.from == 0
			li.call = &rollCall{sessions: sessions, form: listForm}
			return s.callRoll(li.call, li)
		}
		li.gathered = true
	}
	return listingText(li.text, li.pos).turn(s, now, out)
}

// listingText is a list whose items are known, and depend on pos.
func listingText(text []byte, pos journal.Pos) *listing {
	return &listing{items: &textItems{text}, size: len(text), pos: pos}
}

// take adds the connections that were described to the list. The first that does not fit
// ends it.
func (li *listingConns) take() {
	c := li.call
	li.call = nil
	for _, t := range c.texts {
		n := t.to - t.from
		if n == 0 {
			continue
		}
		if len(li.text)+n > maxConnsText {
			li.gathered = true
			break
		}
		li.left--
		li.text = append(li.text, c.text[t.from:t.to]...)
	}
	li.pos = max(li.pos, c.pos)
}

// textItems is a list in pieces, each of which costs as much as an item.
type textItems struct{ left []byte }

func (t *textItems) next(b []byte) (_ []byte, ok bool) {
	if len(t.left) == 0 {
		return b, false
	}
	n := min(len(t.left), 1<<10)
	b, t.left = append(b, t.left[:n]...), t.left[n:]
	return b, true
}

// appendEntry describes the session as it is at one moment. pos is what the description
// depends on. It is called on the session's loop.
func (s *Session) appendEntry(b []byte, f *entryForm, now Time) (_ []byte, pos journal.Pos) {
	var room [100]uint64
	jobs, count, waiting, pos := s.loop.tx.HeldBy(now, &s.client, room[:0], f.most)
	prefix := f.first
	key := func(k string) {
		b = append(append(append(b, prefix...), k...), ": "...)
		prefix = f.rest
	}
	number := func(k string, n uint64) {
		key(k)
		b = append(strconv.AppendUint(b, n, 10), '\n')
	}
	flag := func(k string, v bool) {
		key(k)
		b = append(strconv.AppendBool(b, v), '\n')
	}
	number("id", s.id)
	key("addr")
	b = append(appendQuoted(b, s.loop.peerAddr(s)), '\n')
	if via := s.loop.via(s); via != "" {
		key("via")
		b = append(appendQuoted(b, via), '\n')
	}
	key("tube")
	b = append(append(b, s.client.TubeUsed()...), '\n')
	key("watching")
	b = append(b, '[')
	for i := range min(s.client.Watching(), f.most) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, s.client.TubeWatched(i)...)
	}
	b = append(b, "]\n"...)
	key("reserved-jobs")
	b = append(b, '[')
	for i := range jobs {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendUint(b, jobs[i], 10)
	}
	b = append(b, "]\n"...)
	flag("producer", s.client.Flags&isProducer != 0)
	flag("worker", s.client.Flags&isWorker != 0)
	flag("waiting", waiting)
	key("name")
	b = append(appendQuoted(b, s.name()), '\n')
	number("watching-count", uint64(s.client.Watching()))
	number("reserved-count", uint64(count))
	var since Time
	if waiting {
		since = max(0, now-s.wait.since)
	}
	number("waiting-time", uint64(since.Whole()))
	number("age", uint64(max(0, now-s.opened).Whole()))
	number("commands", s.commands)
	number("bytes-in", s.bytesIn)
	number("bytes-out", s.bytesOut)
	return b, pos
}

// name is that of the client, "" for one that did not have to say who it is.
func (s *Session) name() string {
	if s.client.Flags&restricted == 0 {
		return ""
	}
	return s.wait.grant.name
}

// appendQuoted appends a double-quoted scalar of YAML. s has no control characters.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
