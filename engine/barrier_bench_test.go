package engine

import (
	"testing"

	"trellis/binlog/journal"
)

// A ghost is a journal that keeps nothing, and counts what it is asked for.
type ghost struct {
	Journal
	pos      journal.Pos
	barriers int
}

func (g *ghost) next() journal.Pos { g.pos++; return g.pos }

func (g *ghost) Put(*journal.Record) (journal.Ticket, error) {
	return journal.Ticket{Pos: g.next(), Segment: 1}, nil
}
func (g *ghost) Update(*journal.Record) (journal.Pos, error)        { return g.next(), nil }
func (g *ghost) Delete(uint64, journal.Former) (journal.Pos, error) { return g.next(), nil }
func (g *ghost) Committed() journal.Pos                             { return g.pos }
func (g *ghost) Barrier() journal.Pos                               { g.barriers++; return g.next() }

// BenchmarkBarrier puts, reserves and deletes a job, on a server alone and on one that may
// be replaced, and tells how many barriers that takes: one for the reserve where each
// reply is sent by itself, none where the delete is sent with it.
func BenchmarkBarrier(b *testing.B) {
	for _, x := range []struct {
		name      string
		of        func(*ghost) Journal
		pipelined bool
	}{
		{"alone", func(g *ghost) Journal { return struct{ Journal }{g} }, false},
		{"with barriers", func(g *ghost) Journal { return g }, false},
		{"with barriers, pipelined", func(g *ghost) Journal { return g }, true},
	} {
		b.Run(x.name, func(b *testing.B) {
			g := new(ghost)
			p := newPlantOf(b, 1, Config{Journal: x.of(g)})
			defer p.engine.Discard()
			c := p.client(0)
			sent := func() {
				c.session.Replied(0, &c.out)
				c.out.Pos = 0
			}
			b.ReportAllocs()
			for range b.N {
				c.put(0, 0)
				sent()
				id := c.reserve()
				if !x.pipelined {
					sent()
				}
				c.delete(id)
				sent()
			}
			b.ReportMetric(float64(g.barriers)/float64(b.N), "barriers/op")
		})
	}
}
