package codec

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const maxFuzzInput = 2000

func FuzzDecoderAgreesWithReference(f *testing.F) {
	for _, c := range edgeCases(f) {
		if len(c.input) > maxFuzzInput {
			continue
		}
		f.Add([]byte(c.input+followUp), uint32(65535), uint64(len(c.input)))
		f.Add([]byte(c.input+followUp), uint32(1), uint64(len(c.input)))
	}
	f.Fuzz(func(t *testing.T, input []byte, maxJobSize uint32, seed uint64) {
		if len(input) > maxFuzzInput {
			t.Skip("longer inputs show nothing new and take long")
		}
		check(t, string(input), maxJobSize, someCuts(rand.New(rand.NewPCG(seed, 0)), len(input)))
	})
}

func TestDecoderAgreesWithReferenceOnRandomInput(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	runs := 400
	if proof {
		runs = 1000
	}
	for range runs {
		input := randomInput(r)
		check(t, input, uint32(r.IntN(8)), someCuts(r, len(input)))
	}
}

func someCuts(r *rand.Rand, n int) []int {
	cuts := make([]int, r.IntN(8))
	for i := range cuts {
		cuts[i] = r.IntN(n + 1)
	}
	return cuts
}

// randomInput returns a few lines that are mostly near the edge between good and
// bad.
func randomInput(r *rand.Rand) string {
	one := func(list []string) string { return list[r.IntN(len(list))] }
	var words []string
	for _, row := range table {
		words = append(words, row.prefix, row.prefix, strings.TrimSpace(row.prefix))
	}
	numbers := []string{
		"0", "1", "2", "3", "7", "8", "007", "12345678", "123456789", "1234567890123456",
		"2147483647", "2147483648", "4294967295", "4294967296", "4294967297", "99999999999",
		"18446744073709551615", "18446744073709551616", "18446744073709551617", "184467440737095516150",
		strings.Repeat("0", 190) + "5", strings.Repeat("9", 21),
	}
	names := []string{
		"default", "a", "-a", "a-", "+/;.$_()-", "a@b", "", "12",
		strings.Repeat("n", 199), strings.Repeat("n", 200), strings.Repeat("n", 201), strings.Repeat("n", 210),
	}
	tags := []string{
		"idp:k", "con:c:2", "idp:", "idp:a@b", "idp:\x00", "x:", "idp:k:9 con:c", "idp:k idp:k", "Idp:k", "idp :k", "idp2:k",
		"fair:f", "grp:g", "aft:g", "aft:h:settled", "aft:h:", "exp:9", "exp:4294967296", "grp:g aft:h fair:f exp:0", "grp:g aft:g",
		"idp:" + strings.Repeat("k", 65), "idp:" + strings.Repeat("k", 220), "idp:k" + strings.Repeat(" con:", 60) + "\r",
	}
	junk := []string{
		" ", "  ", "\t", "\r", "\n", "\x00", "-", "+", "x", ",", "\xff", "\v", "\f", "/", ":",
		strings.Repeat("x", 200), strings.Repeat(" ", 210), strings.Repeat("\r", 300),
		" HTTP/1.1", " HTTP/1.0\r\n", " HTTP/1.2", "HTTP/1.1", strings.Repeat(" HTTP/1.", 30) + "1\r\n",
	}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		if r.IntN(4) == 0 {
			b.WriteString(one([]string{"put 0 0 1 4 ", "put 1 2 3 1  ", "put " + strings.Repeat("0", 219) + "1 2 3 4 ", "put 1 2 3 4294967295 "}))
			b.WriteString(one(tags))
		} else {
			b.WriteString(one(words))
		}
		for range r.IntN(5) {
			switch r.IntN(9) {
			case 8:
				b.WriteString(one(tags))
			case 0, 1, 2:
				b.WriteString(one(numbers[:6]))
			case 3:
				b.WriteString(one(numbers))
			case 4:
				b.WriteString(one(names))
			case 5:
				b.WriteString(one(junk))
			}
			if r.IntN(6) > 0 {
				b.WriteString(" ")
			}
		}
		if r.IntN(4) > 0 { // most arguments end without a space
			line := strings.TrimRight(b.String(), " ")
			b.Reset()
			b.WriteString(line)
		}
		if r.IntN(12) > 0 {
			b.WriteString("\r\n")
		}
		if r.IntN(3) == 0 { // a body, which may or may not be one
			b.WriteString("abcdefghijklmnop"[:r.IntN(8)])
			b.WriteString(one([]string{"\r\n", "\r\n", "\r\n", "\n\r", "\r", "\n"}))
		}
	}
	return b.String()
}
