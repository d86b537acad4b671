package reactor

import (
	"encoding/binary"
	"net/netip"
)

// source is where a client comes from, as far as shares of places go: an IPv4 address, or the
// first 64 bits of an IPv6 address, which one machine can have to itself. It is 0 where there is
// no address, as for all clients of Unix sockets.
type source uint64

func sourceOf(a netip.Addr) source {
	switch a = a.Unmap(); {
	case a.Is4():
		b := a.As4()
		return source(binary.BigEndian.Uint32(b[:])) // nobody has an IPv6 address that begins like that
	case a.Is6():
		b := a.As16()
		return source(binary.BigEndian.Uint64(b[:]))
	}
	return 0
}

// sources counts those who take places in a crowd of clients that nobody knows yet. When places
// are short, one source may have a quarter of them: who floods the server from one address then
// pushes out no one but itself. Its users say who may call it.
type sources struct {
	share  int // how many places one source may have while others want them
	counts map[source]int
	heavy  map[source]struct{} // those that have more; at most four while all places are taken
}

func (s *sources) init(places int) {
	s.share = places / 4
	s.counts = make(map[source]int)
	s.heavy = make(map[source]struct{})
}

func (s *sources) add(from source) {
	s.counts[from]++
	if s.counts[from] == s.share+1 {
		s.heavy[from] = struct{}{}
	}
}

func (s *sources) remove(from source) {
	n := s.counts[from] - 1
	if n == s.share {
		delete(s.heavy, from)
	}
	if n == 0 {
		delete(s.counts, from)
		return
	}
	s.counts[from] = n
}

// heaviest is the source that has most places, if that is more than its share.
func (s *sources) heaviest() (from source, ok bool) {
	most := 0
	for h := range s.heavy {
		if n := s.counts[h]; n > most {
			from, most = h, n
		}
	}
	return from, most > 0
}
