package buffer

import "testing"

// Small input behind a waiting reserve does not take a big buffer.
func TestSmallPendingInputTakesASmallBuffer(t *testing.T) {
	t.Parallel()
	large := Append(nil, make([]byte, 100_000))
	Release(large)
	for range 100 {
		b := Append(nil, []byte("delete 1\r\n"))
		if cap(b.B) > small {
			t.Fatalf("10 bytes lie in a buffer of %d", cap(b.B))
		}
	}
	b := Append(nil, make([]byte, 2000))
	b = Append(b, make([]byte, 100))
	if len(b.B) != 2100 {
		t.Fatalf("%d bytes", len(b.B))
	}
	Release(b)
}
