package operate

import (
	"math"
	"testing"
	"time"
)

func TestTimesAndNumbersForPeople(t *testing.T) {
	const minute, hour, day, year = time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-1: "0 s", 0: "0 s", 999: "0 µs", 1500: "1 µs", time.Millisecond: "1 ms", 350 * time.Millisecond: "350 ms", time.Second - 1: "999 ms",
		time.Second: "1 s", minute - 1: "59 s", minute: "1 m", minute + 9*time.Second: "1 m 9 s", hour - 1: "59 m 59 s", hour: "1 h",
		hour + minute: "1 h 1 m", day - 1: "23 h 59 m", day: "1 d", 30*hour + minute: "1 d 6 h", year - 1: "364 d 23 h", year: "1 y", year + 70*day: "1 y 70 d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 s", 59: "59 s", 4294967295: "136 y 70 d", 1 << 40: "34865 y 104 d"} {
		if got := Seconds(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[any]string{
		0: "0", 999: "999", -1000: "-1,000", -999: "-999", uint32(1000): "1,000", int64(1234567): "1,234,567", uint64(1<<64 - 1): "18,446,744,073,709,551,615",
	} {
		if got := Count(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for want, got := range map[string]string{
		"1 job": Counted(1, "job"), "0 jobs": Counted(0, "job"), "2,000 jobs": Counted(uint64(2000), "job"), "1 entry": Counted(int64(1), "entry"), "3 entries": Counted(3, "entry"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 7: "7", 12.34: "12.3", 99.94: "99.9", 99.95: "100", 1234.5: "1,235", 99_999: "99,999", 99_999.5: "100k", 100_000: "100k", 999_499: "999k",
		999_500: "1M", 1_234_567: "1.23M", 12_345_678: "12.3M", 9_999_999_999: "10G", 1 << 63: "9.22E", 1e30: "1000000000000E",
	} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := Short(math.NaN()); got != "-" {
		t.Errorf("NaN: %s", got)
	}
}

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 65535: "64 KiB", 100 << 10: "100 KiB", 1<<20 - 1: "1 MiB", 2_000_000: "1.9 MiB", 3 << 30: "3 GiB", 1<<64 - 1: "16 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := Size(int64(-5)); got != "-5 B" {
		t.Error(got)
	}
}
