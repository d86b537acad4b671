package bench

import (
	"strconv"
	"testing"
)

func decimal(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		text        string
		fixed, most int
		median      int
	}{
		{"100", 100, 100, 100},
		{"10-20", -1, 20, 15},
		{"exp:1000", -1, 20000, 693},
		{"1*90,1001*10", -1, 1001, 1},
	} {
		z, err := ParseSizes(c.text, decimal)
		if err != nil {
			t.Fatal(err)
		}
		if z.String() != c.text || z.Fixed() != c.fixed || z.Most() != c.most || z.At(1<<63) != c.median {
			t.Errorf("%q: got %q, %d always, %d at most, median %d", c.text, z, z.Fixed(), z.Most(), z.At(1<<63))
		}
	}
	for _, text := range []string{"", "x", "-1", "5-", "20-10", "exp:", "exp:x", "1*0", "1*x", "1*NaN", "1*Inf", "1*1e308,2*1e308", "99999999999", "1*1,x"} {
		if _, err := ParseSizes(text, decimal); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestOnlySizesThatWereNotSetAreZero(t *testing.T) {
	if z := (Sizes{}); !z.IsZero() {
		t.Error("the zero value is not zero")
	}
	if z := FixedSize(0); z.IsZero() || z.String() != "0" || z.Fixed() != 0 {
		t.Errorf("bodies of 0 bytes: got %+v", z)
	}
}
