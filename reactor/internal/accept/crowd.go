package accept

import (
	"container/list"
	"encoding/binary"
	"net/netip"
)

// Source is where a client comes from, as far as shares of places go: an IPv4 address, or the first 64 bits of an IPv6
// address, which one machine can have to itself. It is 0 where there is no address, as for all clients of Unix sockets.
type Source uint64

func sourceOf(a netip.Addr) Source {
	switch a = a.Unmap(); {
	case a.Is4():
		b := a.As4()
		return Source(binary.BigEndian.Uint32(b[:])) // nobody has an IPv6 address that begins like that
	case a.Is6():
		b := a.As16()
		return Source(binary.BigEndian.Uint64(b[:]))
	}
	return 0
}

// Crowd is clients that take places of which there are few, before anybody knows who they are. They stand in lines, in
// each as they have come. When places are short, the newest is preferred: a good client says at once who it is, and is
// done before the silent ones around it can make it old. And one source may have a quarter of the places: who floods
// the server from one address then pushes out nobody else. Its user says who may call it.
type Crowd[T any] struct {
	places int
	taken  int
	lines  []list.List // of *Place[T]

	share  int // how many places one source may have while others want them
	counts map[Source]int
	heavy  map[Source]struct{} // those that have more; at most four while all places are taken
}

// Place is what a client takes.
type Place[T any] struct {
	client T
	from   Source
	line   int
	at     *list.Element // nil when the client has left
}

// taken reports whether the client has not left. A nil Place is not taken.
func (p *Place[T]) taken() bool { return p != nil && p.at != nil }

// NewCrowd returns a crowd that has so many places, and lines.
func NewCrowd[T any](places, lines int) *Crowd[T] {
	return &Crowd[T]{
		places: places, lines: make([]list.List, lines),
		share: places / 4, counts: make(map[Source]int), heavy: make(map[Source]struct{}),
	}
}

// Enter gives a client a place at the end of a line, also if all places are taken.
func (c *Crowd[T]) Enter(line int, client T, from Source) *Place[T] {
	p := &Place[T]{client: client, from: from, line: line}
	p.at = c.lines[line].PushBack(p)
	c.taken++
	c.add(from)
	return p
}

// Leave frees a place that is taken.
func (c *Crowd[T]) Leave(p *Place[T]) {
	c.lines[p.line].Remove(p.at)
	p.at = nil
	c.taken--
	c.remove(p.from)
}

// move counts a place that is taken for another source.
func (c *Crowd[T]) move(p *Place[T], to Source) {
	c.remove(p.from)
	p.from = to
	c.add(to)
}

// Full reports whether all places are taken.
func (c *Crowd[T]) Full() bool { return c.taken >= c.places }

// Size is how many places are taken.
func (c *Crowd[T]) Size() int { return c.taken }

// count is how many clients a line has.
func (c *Crowd[T]) count(line int) int { return c.lines[line].Len() }

// first is the client that has come first in a line; the zero T if there is none.
func (c *Crowd[T]) first(line int) (first T) {
	if e := c.lines[line].Front(); e != nil {
		first = e.Value.(*Place[T]).client
	}
	return first
}

// Oldest is the client of a line that is to leave for another one: the first of the source that has most places, if
// that has more than its share, or else of all. Only clients count for which eligible is true; nil counts all. It
// returns the zero T if there is none.
func (c *Crowd[T]) Oldest(line int, eligible func(T) bool) (oldest T) {
	from, crowded := c.heaviest()
	for e := c.lines[line].Front(); e != nil; e = e.Next() {
		p := e.Value.(*Place[T])
		if (!crowded || p.from == from) && (eligible == nil || eligible(p.client)) {
			return p.client
		}
	}
	return oldest
}

func (c *Crowd[T]) add(from Source) {
	c.counts[from]++
	if c.counts[from] == c.share+1 {
		c.heavy[from] = struct{}{}
	}
}

func (c *Crowd[T]) remove(from Source) {
	n := c.counts[from] - 1
	if n == c.share {
		delete(c.heavy, from)
	}
	if n == 0 {
		delete(c.counts, from)
		return
	}
	c.counts[from] = n
}

// heaviest is the source that has most places, if that is more than its share.
func (c *Crowd[T]) heaviest() (from Source, ok bool) {
	most := 0
	for h := range c.heavy {
		if n := c.counts[h]; n > most {
			from, most = h, n
		}
	}
	return from, most > 0
}
