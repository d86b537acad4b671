package operate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count writes a whole number, of any type, with commas.
func Count(n any) string {
	digits := fmt.Sprint(n)
	first := 0
	if digits[0] == '-' {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Counted is a whole number of things: 1 job, 2,000 jobs, 3 entries.
func Counted(n any, thing string) string {
	count := Count(n)
	if stem, ok := strings.CutSuffix(thing, "y"); ok && count != "1" {
		thing = stem + "ie"
	}
	if count != "1" {
		thing += "s"
	}
	return count + " " + thing
}

// Short writes a number in at most six characters, such as 950, 12.3 or 4.56M. NaN, which is not known, is a dash.
func Short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v < 99.95:
		return decimal(v, 1)
	case v < 99_999.5:
		return Count(int64(v + 0.5))
	}
	unit := ""
	for _, next := range []string{"k", "M", "G", "T", "P", "E"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, next
	}
	return significant(v) + unit
}

// Size writes a number of bytes.
func Size[N int64 | uint64](bytes N) string {
	v, unit := float64(bytes), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if v < 1023.5 {
			break
		}
		v, unit = v/1024, next
	}
	if unit == "" {
		return fmt.Sprintf("%d B", bytes)
	}
	if v >= 99.95 {
		return decimal(v, 0) + " " + unit
	}
	return decimal(v, 1) + " " + unit
}

// Duration writes a time in its two greatest units, or in one if it is short or the other is
// zero: 350 ms, 5 s, 2 m 30 s, 1 h.
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		if d <= 0 {
			return "0 s"
		}
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return Seconds(uint64(d / time.Second))
}

// Span is Duration for seconds with decimals.
func Span(seconds float64) string { return Duration(time.Duration(seconds * float64(time.Second))) }

// Seconds is Duration for whole seconds, of which a server may tell more than a time.Duration holds.
func Seconds(n uint64) string {
	units := []struct {
		seconds uint64
		name    string
	}{{365 * 86400, "y"}, {86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}}
	for i, u := range units[:len(units)-1] {
		if n < u.seconds {
			continue
		}
		text := fmt.Sprintf("%d %s", n/u.seconds, u.name)
		if less := n % u.seconds / units[i+1].seconds; less > 0 {
			text += fmt.Sprintf(" %d %s", less, units[i+1].name)
		}
		return text
	}
	return fmt.Sprintf("%d s", n)
}

func significant(v float64) string {
	switch {
	case v < 9.995:
		return decimal(v, 2)
	case v < 99.95:
		return decimal(v, 1)
	}
	return decimal(v, 0)
}

// decimal writes a number with so many digits behind the point, if they are not zero.
func decimal(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}
