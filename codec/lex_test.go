package codec

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestNumbersOfEveryLengthBeforeEveryByte(t *testing.T) {
	t.Parallel()
	const digits = "12345678901234567890123"
	for length := range len(digits) + 1 {
		for _, zeros := range []int{0, 1, 7, 8, 9, 30} {
			number := strings.Repeat("0", zeros) + digits[:length]
			value, err := strconv.ParseUint(number, 10, 64)
			good := err == nil
			for next := range 256 {
				if '0' <= next && next <= '9' {
					continue
				}
				for _, tail := range []string{"", "9999999999999999", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
					s := "x  " + number + string([]byte{byte(next)}) + tail
					from := 1
					if next == ' ' && number == "" {
						continue // the next number counts
					}
					v, i := number64([]byte(s), from)
					if good && (v != value || i != len("x  ")+len(number)) || !good && i != noMatch {
						t.Fatalf("%q: %d ends at %d", s, v, i)
					}
					v32, i := number32([]byte(s), from)
					if good && value <= math.MaxUint32 {
						if uint64(v32) != value || i != len("x  ")+len(number) {
							t.Fatalf("%q: %d ends at %d", s, v32, i)
						}
					} else if i != noMatch {
						t.Fatalf("%q: %d ends at %d", s, v32, i)
					}
				}
			}
			v, i := number64([]byte(number), 0)
			if good && (v != value || i != len(number)) || !good && i != noMatch {
				t.Fatalf("%q: %d ends at %d", number, v, i)
			}
		}
	}
}

func TestNumbersAtTheLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number string
		ok32   bool
		ok64   bool
	}{
		{"4294967295", true, true},
		{"4294967296", false, true},
		{"18446744073709551615", false, true},
		{"18446744073709551616", false, false},
		{"18446744073709551620", false, false},
		{"27670116110564327424", false, false},
		{"99999999999999999999", false, false},
		{"184467440737095516150", false, false},
		{"", false, false},
		{"-1", false, false},
		{"+1", false, false},
		{"\t1", false, false},
	} {
		if _, i := number32([]byte(c.number), 0); i >= 0 != c.ok32 {
			t.Errorf("%q as 32 bits ends at %d", c.number, i)
		}
		if _, i := number64([]byte(c.number), 0); i >= 0 != c.ok64 {
			t.Errorf("%q as 64 bits ends at %d", c.number, i)
		}
	}
}
