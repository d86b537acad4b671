package bench

import "fmt"

// A unit is how a value is written.
type unit struct {
	name   string  // with a space before it, where one belongs there
	scale  float64 // values are divided by it
	digits int
}

var (
	perSecond   = unit{"/s", 1, 0}
	nanoseconds = unit{name: "ns"} // nanoseconds, written with three digits and the unit that fits
	inSeconds   = unit{" s", 1, 2}
	bytesEach   = unit{" B", 1, 0}
	kilobytes   = unit{" KB", 1024, 2}
	megabytes   = unit{" MB", 1 << 20, 0}
	timesItself = unit{"", 1, 3}
	cores       = unit{" cores", 1, 4}
)

func (u unit) format(v float64) string {
	if u == nanoseconds {
		return short(int64(v))
	}
	v /= u.scale
	if u.digits == 0 {
		return thousands(v) + u.name
	}
	return fmt.Sprintf("%.*f", u.digits, v) + u.name
}

// thousands writes a whole number in groups of three digits.
func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
