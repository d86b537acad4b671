package quantity

import (
	"strings"
	"testing"
)

func TestSizesHaveUnits(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "007": 7, "1048576": 1 << 20, "18446744073709551615": 1<<64 - 1, "9B": 9, "9b": 9,
		"64k": 64 << 10, "64K": 64 << 10, "64Ki": 64 << 10, "64kiB": 64 << 10, "64KIB": 64 << 10, "64kB": 64_000, "64KB": 64_000,
		"2M": 2 << 20, "2MiB": 2 << 20, "2mb": 2_000_000, "2G": 2 << 30, "2Gi": 2 << 30, "2GB": 2_000_000_000,
		"3T": 3 << 40, "3TiB": 3 << 40, "3TB": 3_000_000_000_000, "0G": 0,
		"1.5G": 3 << 29, "1.5GB": 1_500_000_000, "0.1k": 102, "2.0M": 2 << 20, "16777215.999T": 16777215<<40 + 1098412116148,
	} {
		if got, err := Bytes.Parse(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "k", "B", "iB", "-1", "-1k", "+1k", "1 k", " 1k", "1kk", "1kbi", "1kBB", "1ib", "1ki b", "1P", "1x", "1.5", "1.5B", ".5k", "1.k",
		"1.5.5k", "1.-5k", "1e3", "1e3k", "0x10", "0x10k", "1_000k", "10s", "18446744073709551616", "16777216T", "99999999999999999999k",
		"18446744073709551615.5k", "1.99999999999999999999999k",
	} {
		got, err := Bytes.Parse(text)
		if err == nil {
			t.Errorf("%q: got %d", text, got)
			continue
		}
		if !strings.Contains(err.Error(), "k, M, G or T") || !strings.Contains(err.Error(), "kB, MB, GB or TB") {
			t.Errorf("%q: %v does not list the units", text, err)
		}
	}
}

func TestTimesHaveUnits(t *testing.T) {
	for _, c := range []struct {
		unit Unit
		text string
		want uint64
	}{
		{Seconds, "0", 0},
		{Seconds, "18446744073709551615", 1<<64 - 1},
		{Seconds, "30s", 30},
		{Seconds, "5m", 300},
		{Seconds, "24h", 86400},
		{Seconds, "1h30m", 5400},
		{Seconds, "1.5m", 90},
		{Seconds, "1000ms", 1},
		{Seconds, "0s", 0},
		{Milliseconds, "50", 50},
		{Milliseconds, "50ms", 50},
		{Milliseconds, "0.5s", 500},
		{Milliseconds, "1h", 3_600_000},
	} {
		if got, err := c.unit.Parse(c.text); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "s", "-1", "-1s", "1 s", "1.5", "1.5s", "500ms", "1m1ns", "1d", "1S", "10k", "9999999h", "18446744073709551616"} {
		if got, err := Seconds.Parse(text); err == nil || !strings.Contains(err.Error(), "s, m or h") {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"1.5", "1.5ms", "100us", "-5ms"} {
		if got, err := Milliseconds.Parse(text); err == nil || !strings.Contains(err.Error(), "ms, s, m or h") {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
}

func TestAFlagTakesSecondsOf32Bits(t *testing.T) {
	seconds := uint32(60)
	f := SecondsFlag(&seconds)
	if f.String() != "1m" {
		t.Errorf("the default is shown as %s", f)
	}
	if err := f.Set("2h"); err != nil || seconds != 7200 {
		t.Errorf("%v, %d s", err, seconds)
	}
	if err := f.Set("4294967295"); err != nil || seconds != 1<<32-1 {
		t.Errorf("%v, %d s", err, seconds)
	}
	for _, text := range []string{"4294967296", "2000000h", "1d"} {
		if err := f.Set(text); err == nil || seconds != 1<<32-1 {
			t.Errorf("%s: %v, %d s", text, err, seconds)
		}
	}
}

func TestWhatIsWrittenIsReadAsTheSame(t *testing.T) {
	for _, c := range []struct {
		unit Unit
		n    uint64
		want string
	}{
		{Number, 1 << 20, "1048576"},
		{Bytes, 0, "0"},
		{Bytes, 65535, "65535"},
		{Bytes, 1 << 20, "1M"},
		{Bytes, 3 << 29, "1536M"},
		{Bytes, 2_000_000_000, "2GB"},
		{Bytes, 5 << 40, "5T"},
		{Bytes, 1<<64 - 1, "18446744073709551615"},
		{Seconds, 0, "0s"},
		{Seconds, 60, "1m"},
		{Seconds, 90, "1m30s"},
		{Seconds, 5400, "1h30m"},
		{Seconds, 604_800, "168h"},
		{Seconds, 3601, "1h0m1s"},
		{Seconds, 10, "10s"},
		{Seconds, 600, "10m"},
		{Seconds, 1<<64 - 1, "18446744073709551615"},
		{Milliseconds, 50, "50ms"},
		{Milliseconds, 1500, "1.5s"},
	} {
		got := c.unit.Format(c.n)
		if n, err := c.unit.Parse(got); got != c.want || n != c.n || err != nil {
			t.Errorf("%d: %s, want %s; read as %d, %v", c.n, got, c.want, n, err)
		}
	}
}
