package weights

import (
	"cmp"
	"math/bits"

	"trellis/engine/internal/spread"
)

// Weights are those that a session has given to the tubes that it watches, and how it has
// chosen by them so far. Sessions without weights have none.
type Weights struct {
	// of has the weight of each tube that the session watches, in the order of its list. None is 0.
	of []uint16
	// at is where the session is in its sequence: of k choices, each tube gets its share of k,
	// give or take very few, which dice would miss by the square root of k.
	at   uint64
	fair bool // only the tubes with the fewest reserved jobs for their weights are chosen
}

// Tubes are those that a session watches, by their places in its list.
type Tubes interface {
	// Len is how many there are.
	Len() int
	// Reserved is how many jobs of a tube are reserved, and ok reports whether it has one to be taken.
	Reserved(place int) (n int, ok bool)
}

// Of are these weights, for a session of that id.
func Of(list []uint16, session uint64) *Weights { return &Weights{of: list, at: spread.Mix(session)} }

// All are the weights of the watched tubes, in their order.
func (w *Weights) All() []uint16 { return w.of }

// Fair reports whether only the tubes with the fewest reserved jobs for their weights are chosen.
func (w *Weights) Fair() bool { return w.fair }

// BeFair says whether that is so from now on.
func (w *Weights) BeFair(fair bool) { w.fair = fair }

// Set gives the watched tube at a place, which may be a new one, a weight.
func (w *Weights) Set(place int, weight uint16) {
	if place == len(w.of) {
		w.of = append(w.of, weight)
	}
	w.of[place] = weight
}

// Remove takes the watched tube at a place off. The last one takes its place.
func (w *Weights) Remove(place int) {
	last := len(w.of) - 1
	w.of[place] = w.of[last]
	w.of = w.of[:last]
}

// A load is the reserved jobs of a tube for its weight.
type load struct{ reserved, weight uint64 }

// most is more than any load.
var most = load{reserved: 1}

func (l load) compare(m load) int { return cmp.Compare(l.reserved*m.weight, m.reserved*l.weight) }

// load is that of a tube with so many reserved jobs. It is the same for all unless the choice is to be fair.
func (w *Weights) load(place, reserved int) load {
	l := load{weight: uint64(w.of[place])}
	if w.fair {
		l.reserved = uint64(reserved)
	}
	return l
}

// draw is the next number of the sequence, scaled to numbers below sum. The sequence goes on
// with chosen.
func (w *Weights) draw(sum uint64) uint64 {
	n, _ := bits.Mul64(w.at, sum)
	return n
}

func (w *Weights) chosen() { w.at += spread.Golden }

// Pick chooses one of the tubes that have a job to be taken. Without any, the result is -1.
func (w *Weights) Pick(tubes Tubes) (place int) {
	sum, least := uint64(0), most
	for i := range tubes.Len() {
		if n, ok := tubes.Reserved(i); ok {
			l := w.load(i, n)
			switch c := l.compare(least); {
			case c < 0:
				sum, least = l.weight, l
			case c == 0:
				sum += l.weight
			}
		}
	}
	if sum == 0 {
		return -1
	}
	n := w.draw(sum)
	w.chosen()
	for i := 0; ; i++ {
		reserved, ok := tubes.Reserved(i)
		if !ok {
			continue
		}
		l := w.load(i, reserved)
		if l.compare(least) > 0 {
			continue
		}
		if n < l.weight {
			return i
		}
		n -= l.weight
	}
}
