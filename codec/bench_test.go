package codec

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func BenchmarkDecoder(b *testing.B) {
	put := "put 1024 0 120 64\r\n" + strings.Repeat("x", 64) + "\r\n"
	for _, bench := range []struct{ name, input string }{
		{"put", put},
		{"reserve", "reserve\r\n"},
		{"reserve-with-timeout", "reserve-with-timeout 30\r\n"},
		{"delete", "delete 12345678\r\n"},
		{"release", "release 12345678 1024 0\r\n"},
		{"use", "use mail.outbound\r\n"},
		{"list-tubes-watched", "list-tubes-watched\r\n"},
		{"unknown", "GET / HTTP/1.1\r\n"},
		{"batch", strings.Repeat(put+"reserve\r\ndelete 12345678\r\n", 32)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			benchmark(b, []byte(bench.input))
		})
	}
}

// A batch that is read in pieces of a kilobyte, so that it is cut here and there.
func BenchmarkDecoderCutBatch(b *testing.B) {
	input := bytes.Repeat([]byte("put 1024 0 120 64\r\n"+strings.Repeat("x", 64)+"\r\nreserve\r\ndelete 12345678\r\n"), 320)
	for _, size := range []int{1024, 16} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var pieces [][]byte
			for p := input; len(p) > 0; {
				n := min(size, len(p))
				pieces = append(pieces, p[:n])
				p = p[n:]
			}
			benchmark(b, pieces...)
		})
	}
}

func benchmark(b *testing.B, pieces ...[]byte) {
	d := Decoder{MaxJobSize: 65535}
	var cmd Command
	commands, size := 0, 0
	for _, p := range pieces {
		size += len(p)
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		for _, p := range pieces {
			for {
				n, ok := d.Next(p, &cmd)
				p = p[n:]
				if !ok {
					break
				}
				commands++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(commands), "ns/cmd")
}
