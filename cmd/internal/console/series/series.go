package series

import "math"

// Number says what a number of a point is.
type Number uint8

// The numbers of a point. Rates are per second.
const (
	In       Number = iota // rate of jobs that were put
	Out                    // rate of jobs that were deleted
	Timeouts               // rate of reservations that ended for want of time
	Ready                  // jobs
	Reserved               // jobs
	Delayed                // jobs
	Buried                 // jobs
	Waiting                // clients that wait for a job
	Wait                   // seconds for which jobs were ready before they were reserved, on average
	Busy                   // jobs that were reserved at once, on average
	Numbers
)

// Point is what was measured at one time; NaN is what is not known.
type Point [Numbers]float32

// Unknown is a point of which nothing is known.
func Unknown() (p Point) {
	for i := range p {
		p[i] = float32(math.NaN())
	}
	return p
}

const (
	// Seconds is how many seconds a ring has, Minutes how many minutes.
	Seconds = 300
	Minutes = 360
)

// Ring is what was measured of one thing. The zero Ring is empty.
type Ring struct {
	seconds [Seconds]Point
	minutes [Minutes]Point
	// The last second and minute that are there, in Unix time. Zero: none.
	lastSecond, lastMinute int64

	sum   [Numbers]float64 // of the minute that has begun
	known [Numbers]int
}

// setBack is by how many seconds a clock may go back before the ring begins anew. Below that,
// points are left out until the clock has caught up.
const setBack = 60

// Add adds what was measured in a second of Unix time. Seconds that were left out are gaps.
// One that is not later than the last one is ignored; after one that is much earlier, as the
// clock was set back, the ring has only that: the times of the others are wrong.
func (r *Ring) Add(second int64, p Point) {
	if second < r.lastSecond-setBack {
		*r = Ring{}
	}
	if r.lastSecond == 0 {
		r.lastSecond, r.lastMinute = second-1, second/60-1
		for i := range r.seconds {
			r.seconds[i] = Unknown()
		}
		for i := range r.minutes {
			r.minutes[i] = Unknown()
		}
	}
	if second <= r.lastSecond {
		return
	}
	for s := max(r.lastSecond+1, second-Seconds); s < second; s++ {
		r.seconds[s%Seconds] = Unknown()
	}
	r.seconds[second%Seconds] = p
	r.lastSecond = second
	minute := second / 60
	if minute > r.lastMinute {
		for m := max(r.lastMinute+1, minute-Minutes+1); m <= minute; m++ {
			r.minutes[m%Minutes] = Unknown()
		}
		r.lastMinute = minute
		r.sum, r.known = [Numbers]float64{}, [Numbers]int{}
	}
	for i, v := range p {
		if v == v {
			r.sum[i] += float64(v)
			r.known[i]++
			r.minutes[minute%Minutes][i] = float32(r.sum[i] / float64(r.known[i]))
		}
	}
}

// LastSeconds returns the points of the last Seconds seconds up to now in Unix time, the
// oldest first.
func (r *Ring) LastSeconds(now int64) []Point {
	return last(r.seconds[:], r.lastSecond, now)
}

// LastMinutes returns those of the last Minutes minutes; now is in seconds too.
func (r *Ring) LastMinutes(now int64) []Point {
	return last(r.minutes[:], r.lastMinute, now/60)
}

func last(ring []Point, newest, now int64) []Point {
	n := int64(len(ring))
	points := make([]Point, n)
	for i := range points {
		at := now - n + 1 + int64(i)
		if newest == 0 || at < 0 || at > newest || at <= newest-n {
			points[i] = Unknown()
		} else {
			points[i] = ring[at%n]
		}
	}
	return points
}
