package arena

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A poolModel knows what a pool should hold. Its blocks are so large that a chunk
// has only eight of them.
type poolModel struct {
	pool   Pool
	blocks map[Ref]uint64 // what was written into each
	last   uint64
}

const (
	bigBlock  = 32 << 10
	bigChunk  = 8 * bigBlock
	chunkSize = 8
)

func newPoolModel() *poolModel {
	return &poolModel{pool: NewPool(bigBlock), blocks: map[Ref]uint64{}}
}

func (m *poolModel) refs() []Ref {
	list := make([]Ref, 0, len(m.blocks))
	for r := range m.blocks {
		list = append(list, r)
	}
	slices.Sort(list)
	return list
}

func (m *poolModel) alloc(t *rapid.T) {
	r, err := m.pool.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	if _, taken := m.blocks[r]; taken || r == 0 {
		t.Fatalf("block %d was handed out twice", r)
	}
	m.last++
	m.blocks[r] = m.last
	b := m.pool.bytes(r)
	binary.LittleEndian.PutUint64(b, m.last)
	binary.LittleEndian.PutUint64(b[bigBlock-8:], m.last)
}

func (m *poolModel) free(r Ref) {
	m.pool.Free(r)
	delete(m.blocks, r)
}

func (m *poolModel) check(t *rapid.T) {
	p := &m.pool
	if p.Live() != len(m.blocks) {
		t.Fatalf("%d blocks are live, want %d", p.Live(), len(m.blocks))
	}
	for r, want := range m.blocks {
		b := p.bytes(r)
		first, last := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[bigBlock-8:])
		if first != want || last != want {
			t.Fatalf("block %d holds %d and %d, want %d", r, first, last, want)
		}
	}
	chunks, vacant, empty := 0, 0, 0
	for i := range p.chunks {
		c := &p.chunks[i]
		switch {
		case c.mem == nil:
			vacant++
		case c.live == 0:
			empty++
		}
		if c.mem != nil {
			chunks++
			if i < p.low && c.live < chunkSize {
				t.Fatalf("chunk %d has room, and the first with room should be %d", i, p.low)
			}
		}
	}
	if vacant != p.vacant || empty != p.empty || p.Mapped() != int64(chunks)*bigChunk {
		t.Fatalf("%d vacant, %d empty, %d bytes; want %d, %d, %d", p.vacant, p.empty, p.Mapped(), vacant, empty, chunks*bigChunk)
	}
}

// tidy moves what is misplaced, a few blocks at a time, and does something else in
// between.
func (m *poolModel) tidy(step int, between func()) {
	m.pool.Plan()
	for at := ^Ref(0); at != 0; between() {
		at = m.pool.Walk(at, step, func(r Ref) {
			if !m.pool.Misplaced(r) {
				return
			}
			if to := m.pool.Move(r); to != r {
				m.blocks[to] = m.blocks[r]
				delete(m.blocks, r)
			}
		})
	}
}

// release gives all memory back, also after a failure.
func (m *poolModel) release() {
	for r := range m.blocks {
		m.free(r)
	}
	m.pool.Plan()
	m.pool.Plan()
}

// Whatever is allocated, freed and moved, each block has its own bytes, and when
// it is all quiet the pool reaches not much further than it must.
func TestPoolIsLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newPoolModel()
		t.Cleanup(m.release)
		any := func(t *rapid.T) Ref {
			list := m.refs()
			if len(list) == 0 {
				t.Skip("no blocks")
			}
			return list[rapid.IntRange(0, len(list)-1).Draw(t, "block")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"alloc": func(t *rapid.T) {
				for range rapid.IntRange(1, 5*chunkSize).Draw(t, "blocks") {
					m.alloc(t)
				}
			},
			"free one": func(t *rapid.T) { m.free(any(t)) },
			"free most": func(t *rapid.T) {
				for i, r := range m.refs() {
					if i%rapid.IntRange(2, 20).Draw(t, "one in") != 0 {
						m.free(r)
					}
				}
			},
			"walk": func(t *rapid.T) {
				var got []Ref
				step := rapid.IntRange(1, 20).Draw(t, "step")
				for at := ^Ref(0); at != 0; {
					n := len(got)
					at = m.pool.Walk(at, step, func(r Ref) { got = append(got, r) })
					if len(got)-n > step {
						t.Fatalf("%d blocks in a step of %d", len(got)-n, step)
					}
				}
				slices.Reverse(got)
				if !slices.Equal(got, m.refs()) {
					t.Fatalf("walked over %v, want %v", got, m.refs())
				}
			},
			"tidy while blocks come and go": func(t *rapid.T) {
				m.tidy(rapid.IntRange(1, 10).Draw(t, "step"), func() {
					switch rapid.IntRange(0, 2).Draw(t, "between") {
					case 1:
						m.alloc(t)
					case 2:
						if len(m.blocks) > 0 {
							m.free(any(t))
						}
					}
				})
			},
			"tidy in quiet": func(t *rapid.T) {
				m.pool.Plan() // what was needed before is forgotten
				m.tidy(math.MaxInt, func() {})
				// What was emptied is given back: at the second time, since a move
				// needs a block more for a moment.
				m.pool.Plan()
				m.pool.Plan()
				need := (len(m.blocks) + chunkSize - 1) / chunkSize
				if most := int64(need+need/8) * bigChunk; m.pool.Mapped() > most {
					t.Fatalf("%d bytes are mapped for %d blocks, want at most %d", m.pool.Mapped(), len(m.blocks), most)
				}
			},
		})
	})
}
