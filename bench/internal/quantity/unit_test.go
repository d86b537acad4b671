package quantity

import "testing"

func TestDurationsAreShort(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0 us", 999: "0.999 us", 1500: "1.5 us", 123456: "123 us", 2e6: "2 ms", 65e9: "65 s",
		999_499: "999 us", 999_500: "1 ms", 999_999: "1 ms", 999_500_000: "1 s", 999_999_999: "1 s", 999.4e9: "999 s", 999.5e9: "1,000 s", 3600e9: "3,600 s",
	} {
		if got := Duration(ns); got != want {
			t.Errorf("%d: got %q, want %q", ns, got, want)
		}
	}
}

func TestWholeNumbersAreGrouped(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123: "-123", -1234: "-1,234", -123456: "-123,456"} {
		if got := Whole(n); got != want {
			t.Errorf("%v: got %q, want %q", n, got, want)
		}
	}
}

func TestValuesAreWrittenInTheirUnit(t *testing.T) {
	for _, c := range []struct {
		unit  Unit
		value float64
		want  string
	}{
		{PerSecond, 1234.6, "1,235/s"},
		{Nanoseconds, 4340, "4.34 us"},
		{Seconds, 1.394, "1.39 s"},
		{Bytes, 174.2, "174 B"},
		{Kilobytes, 870, "0.85 KB"},
		{Megabytes, 290 << 20, "290 MB"},
		{Multiple, 1.0231, "1.023"},
		{Cores, 0.5, "0.5000 cores"},
	} {
		if got := c.unit.Format(c.value); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, sorted := range map[float64][]float64{0: nil, 3: {3}, 2.5: {2, 3}, 5: {1, 5, 9}} {
		if got := Median(sorted); got != want {
			t.Errorf("%v: got %v, want %v", sorted, got, want)
		}
	}
}
