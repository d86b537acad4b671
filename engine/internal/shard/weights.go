package shard

import (
	"cmp"
	"math/bits"

	"trellis/engine/internal/sliceheap"
)

// Weights are those that a session has given to the tubes that it watches, and how it has
// chosen by them so far. They belong to the session's loop. Sessions without weights have none.
type Weights struct {
	// of has the weight of each tube of Client.watched, in that order. None is 0.
	of []uint16
	// at is where the session is in its sequence: of k choices, each tube gets its share of k,
	// give or take very few, which dice would miss by the square root of k.
	at   uint64
	fair bool // only the tubes with the fewest reserved jobs for their weights are chosen
}

// WeightsOf are these weights, for a session of that id.
func WeightsOf(of []uint16, session uint64) *Weights { return &Weights{of: of, at: mix(session)} }

// All are the weights of the watched tubes, in their order.
func (w *Weights) All() []uint16 { return w.of }

// Fair reports whether only the tubes with the fewest reserved jobs for their weights are chosen.
func (w *Weights) Fair() bool { return w.fair }

// BeFair says whether that is so from now on.
func (w *Weights) BeFair(fair bool) { w.fair = fair }

// Set gives the watched tube i, which may be a new one, a weight.
func (w *Weights) Set(i int, weight uint16) {
	if i == len(w.of) {
		w.of = append(w.of, weight)
	}
	w.of[i] = weight
}

// Remove takes the watched tube i off. The last one takes its place.
func (w *Weights) Remove(i int) {
	last := len(w.of) - 1
	w.of[i] = w.of[last]
	w.of = w.of[:last]
}

// A load is the reserved jobs of a tube for its weight.
type load struct{ reserved, weight uint64 }

// most is more than any load.
var most = load{reserved: 1}

func (l load) compare(m load) int { return cmp.Compare(l.reserved*m.weight, m.reserved*l.weight) }

// load is that of the watched tube i. It is the same for all unless the choice is to be fair.
func (w *Weights) load(i int, t *tube) load {
	l := load{weight: uint64(w.of[i])}
	if w.fair {
		l.reserved = uint64(t.reserved)
	}
	return l
}

// draw is the next number of the sequence, scaled to numbers below sum. The sequence goes on
// with chosen.
func (w *Weights) draw(sum uint64) uint64 {
	n, _ := bits.Mul64(w.at, sum)
	return n
}

func (w *Weights) chosen() { w.at += golden }

// pick chooses one of the watched tubes, whose shards are locked, and returns its candidate.
// Without any candidate the result is nil.
func (w *Weights) pick(watched []subscription) (*tube, ref) {
	sum, least := uint64(0), most
	for i := range watched {
		if t := watched[i].tube; t.candidate() != 0 {
			l := w.load(i, t)
			switch c := l.compare(least); {
			case c < 0:
				sum, least = l.weight, l
			case c == 0:
				sum += l.weight
			}
		}
	}
	if sum == 0 {
		return nil, 0
	}
	n := w.draw(sum)
	w.chosen()
	for i := 0; ; i++ {
		t := watched[i].tube
		r := t.candidate()
		if r == 0 {
			continue
		}
		l := w.load(i, t)
		if l.compare(least) > 0 {
			continue
		}
		if n < l.weight {
			return t, r
		}
		n -= l.weight
	}
}

// weightedTubes chooses tubes one after the other as that many calls of pick would.
type weightedTubes struct {
	*Weights
	watched []subscription

	// The tubes that have the least load stand in a tree by their place in watched, the others
	// with a candidate in a heap. sums[i] is the sum of the weights of the i&-i tubes before
	// place i, as far as they are in the tree (P. Fenwick, 1994).
	least  load
	sums   []uint64
	sum    uint64
	others []placedLoad
	place  int // of the tube that next has returned
}

type placedLoad struct {
	load
	place int
}

func lighter(a, b *placedLoad) bool { return a.compare(b.load) < 0 }

// choice is for the watched tubes, whose shards are locked until no more is chosen.
func (w *Weights) choice(watched []subscription) *weightedTubes {
	c := &weightedTubes{Weights: w, watched: watched, sums: make([]uint64, len(watched)+1)}
	for i := range watched {
		if t := watched[i].tube; t.candidate() != 0 {
			c.putOff(i, w.load(i, t))
		}
	}
	return c
}

// putOff adds a tube to the heap.
func (c *weightedTubes) putOff(place int, l load) {
	c.others = append(c.others, placedLoad{l, place})
	sliceheap.Up(c.others, lighter)
}

// add adds a weight, which may be a negative one modulo 2^64, at a place in the tree.
func (c *weightedTubes) add(place int, weight uint64) {
	c.sum += weight
	for i := place + 1; i < len(c.sums); i += i & -i {
		c.sums[i] += weight
	}
}

func (c *weightedTubes) next() *tube {
	if c.sum == 0 {
		c.refill()
	}
	if c.sum == 0 {
		return nil
	}
	n := c.draw(c.sum)
	at := 0
	for step := 1 << (bits.Len(uint(len(c.watched))) - 1); step > 0; step /= 2 {
		if i := at + step; i < len(c.sums) && c.sums[i] <= n {
			n -= c.sums[i]
			at = i
		}
	}
	c.place = at
	return c.watched[at].tube
}

// refill moves the tubes with the least load from the heap to the tree, which is empty.
func (c *weightedTubes) refill() {
	for first := true; len(c.others) > 0; first = false {
		o := c.others[0]
		if first {
			c.least = o.load
		} else if o.compare(c.least) > 0 {
			return
		}
		c.add(o.place, o.weight)
		last := len(c.others) - 1
		c.others[0] = c.others[last]
		c.others = c.others[:last]
		sliceheap.Down(c.others, lighter)
	}
}

func (c *weightedTubes) taken() {
	c.chosen()
	t := c.watched[c.place].tube
	l := c.load(c.place, t)
	more := t.candidate() != 0
	if more && l.compare(c.least) == 0 {
		return
	}
	c.add(c.place, -l.weight)
	if more {
		c.putOff(c.place, l)
	}
}
