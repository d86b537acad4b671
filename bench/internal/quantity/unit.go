package quantity

import "fmt"

// A Unit is how a value is written.
type Unit struct {
	// Name follows the number, and begins with a space where one belongs between them.
	Name string

	scale  float64 // values are divided by it
	digits int     // behind the decimal point
}

// The units of all figures. Values are in the base unit: seconds for Seconds, bytes for all sizes.
var (
	PerSecond   = Unit{"/s", 1, 0}
	Nanoseconds = Unit{Name: "ns"} // written as Duration does
	Seconds     = Unit{" s", 1, 2}
	Bytes       = Unit{" B", 1, 0}
	Kilobytes   = Unit{" KB", 1024, 2}
	Megabytes   = Unit{" MB", 1 << 20, 0}
	Multiple    = Unit{"", 1, 3}
	Number      = Unit{"", 1, 1}
	Cores       = Unit{" cores", 1, 4}
)

// Format writes a value with its unit.
func (u Unit) Format(v float64) string {
	if u == Nanoseconds {
		return Duration(int64(v))
	}
	v /= u.scale
	if u.digits == 0 {
		return Whole(v) + u.Name
	}
	return fmt.Sprintf("%.*f", u.digits, v) + u.Name
}

// Whole writes a number without its fraction, in groups of three digits.
func Whole(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	first := 0
	if v < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Duration writes nanoseconds with three digits, in microseconds, milliseconds or seconds, and
// from 1000 s in whole seconds.
func Duration(ns int64) string {
	v, unit := float64(ns)/1e3, "us"
	for _, next := range []string{"ms", "s"} {
		if v < 999.5 { // what is rounded to 1000 would be written with an exponent
			break
		}
		v, unit = v/1e3, next
	}
	if v >= 999.5 {
		return Whole(v) + " " + unit
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}

// Ratio writes a ratio, with two digits behind the point below ten and one from there on.
func Ratio(r float64) string {
	if r >= 10 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.2f", r)
}

// Median returns the middle of sorted values, the mean of the two in the middle when their number is even, and 0 when
// there are none.
func Median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
