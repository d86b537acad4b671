package weights

import (
	"math/bits"

	"trellis/engine/internal/sliceheap"
)

// A Choice chooses tubes one after the other as that many calls of Pick would.
type Choice struct {
	*Weights
	tubes Tubes

	// The tubes that have the least load stand in a tree by their place, the others
	// with a job to be taken in a heap. sums[i] is the sum of the weights of the i&-i tubes before
	// place i, as far as they are in the tree (P. Fenwick, 1994).
	least  load
	sums   []uint64
	sum    uint64
	others []placedLoad
	place  int // of the tube that Next has returned
}

type placedLoad struct {
	load
	place int
}

func lighter(a, b *placedLoad) bool { return a.compare(b.load) < 0 }

// Choice is for tubes whose shards are locked until no more is chosen.
func (w *Weights) Choice(tubes Tubes) *Choice {
	c := &Choice{Weights: w, tubes: tubes, sums: make([]uint64, tubes.Len()+1)}
	for i := range tubes.Len() {
		if n, ok := tubes.Reserved(i); ok {
			c.putOff(i, w.load(i, n))
		}
	}
	return c
}

// putOff adds a tube to the heap.
func (c *Choice) putOff(place int, l load) {
	c.others = append(c.others, placedLoad{l, place})
	sliceheap.Up(c.others, lighter)
}

// add adds a weight, which may be a negative one modulo 2^64, at a place in the tree.
func (c *Choice) add(place int, weight uint64) {
	c.sum += weight
	for i := place + 1; i < len(c.sums); i += i & -i {
		c.sums[i] += weight
	}
}

// Next is the place of the tube from which the next job is to be taken, -1 if none has one.
func (c *Choice) Next() (place int) {
	if c.sum == 0 {
		c.refill()
	}
	if c.sum == 0 {
		return -1
	}
	n := c.draw(c.sum)
	at := 0
	for step := 1 << (bits.Len(uint(c.tubes.Len())) - 1); step > 0; step /= 2 {
		if i := at + step; i < len(c.sums) && c.sums[i] <= n {
			n -= c.sums[i]
			at = i
		}
	}
	c.place = at
	return at
}

// refill moves the tubes with the least load from the heap to the tree, which is empty.
func (c *Choice) refill() {
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

// Taken puts things right after a job of the tube that Next has returned was taken.
func (c *Choice) Taken() {
	c.chosen()
	n, more := c.tubes.Reserved(c.place)
	l := c.load(c.place, n)
	if more && l.compare(c.least) == 0 {
		return
	}
	c.add(c.place, -l.weight)
	if more {
		c.putOff(c.place, l)
	}
}
