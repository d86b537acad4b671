package quantity

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A Unit is what a plain number counts.
type Unit struct {
	words string
	one   time.Duration // 0: no time
}

// The units.
var (
	Number = Unit{words: "without a unit"} // of things
	Bytes  = Unit{words: "in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) " +
		"or kB, MB, GB or TB (powers of 1000)"}
	Seconds      = Unit{"in whole seconds, or with s, m or h", time.Second}
	Milliseconds = Unit{"in whole milliseconds, or with ms, s, m or h", time.Millisecond}
)

// String tells what may be given, as in "give a number %v".
func (u Unit) String() string { return u.words }

// Parse reads a number of units. A plain number has digits only. Its errors tell what may be given.
func (u Unit) Parse(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	ok := err == nil
	switch {
	case !errors.Is(err, strconv.ErrSyntax):
	case u == Bytes:
		n, ok = parseSize(s)
	case u.one > 0:
		n, ok = u.parseTime(s)
	}
	if !ok {
		return 0, fmt.Errorf("%q: give a number %v", s, u)
	}
	return n, nil
}

// parseTime reads a time as Go writes it, which has to be a whole number of units.
func (u Unit) parseTime(s string) (uint64, bool) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d%u.one != 0 {
		return 0, false
	}
	return uint64(d / u.one), true
}

// parseSize reads a decimal number with a unit behind it.
func parseSize(s string) (uint64, bool) {
	number := strings.TrimRight(s, "kKmMgGtTiIbB")
	scale, ok := scaleOf(strings.ToLower(s[len(number):]))
	whole, fraction, isFraction := strings.Cut(number, ".")
	n, err := strconv.ParseUint(whole, 10, 64)
	if !ok || err != nil {
		return 0, false
	}
	over, n := bits.Mul64(n, scale)
	if isFraction {
		if _, err := strconv.ParseUint(fraction, 10, 64); err != nil || scale == 1 {
			return 0, false
		}
		part, _ := strconv.ParseFloat("0."+fraction, 64)
		var carry uint64
		n, carry = bits.Add64(n, uint64(part*float64(scale)), 0)
		over += carry
	}
	return n, over == 0
}

// scaleOf is how many bytes a unit in lower case has: k, ki and kib 1024, kb 1000, and so on.
func scaleOf(unit string) (scale uint64, ok bool) {
	if unit == "b" {
		return 1, true
	}
	if unit == "" {
		return 0, false
	}
	power := strings.IndexByte("kmgt", unit[0]) + 1
	base := uint64(1024)
	switch unit[1:] {
	case "b":
		base = 1000
	case "", "i", "ib":
	default:
		return 0, false
	}
	scale = 1
	for range power {
		scale *= base
	}
	return scale, power > 0
}

// Format writes a number of units as Parse reads it, with the unit that makes it shortest.
func (u Unit) Format(n uint64) string {
	if u.one > 0 && n <= math.MaxInt64/uint64(u.one) {
		text := (time.Duration(n) * u.one).String()
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(text, zero) {
				text = text[:len(text)-2]
			}
		}
		return text
	}
	shortest := strconv.FormatUint(n, 10)
	if u != Bytes || n == 0 {
		return shortest
	}
	for _, unit := range []string{"k", "M", "G", "T", "kB", "MB", "GB", "TB"} {
		scale, _ := scaleOf(strings.ToLower(unit))
		if text := strconv.FormatUint(n/scale, 10) + unit; n%scale == 0 && len(text) < len(shortest) {
			shortest = text
		}
	}
	return shortest
}

// SecondsFlag is the value of a flag that takes seconds which fit into 32 bits.
func SecondsFlag(to *uint32) pflag.Value { return (*secondsFlag)(to) }

type secondsFlag uint32

// Set implements pflag.Value.
func (f *secondsFlag) Set(s string) error {
	n, err := Seconds.Parse(s)
	if err != nil {
		return err
	}
	if n > math.MaxUint32 {
		return fmt.Errorf("%q: give at most %d seconds", s, uint32(math.MaxUint32))
	}
	*f = secondsFlag(n)
	return nil
}

// String implements pflag.Value. In help it is the default.
func (f *secondsFlag) String() string { return Seconds.Format(uint64(*f)) }

// Type implements pflag.Value.
func (f *secondsFlag) Type() string { return "duration" }
