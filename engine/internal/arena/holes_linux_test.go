package arena

import (
	"bytes"
	"os"
	"testing"
)

// mappings is how many the process has. It may have no more than vm.max_map_count.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("\n"))
}

func TestFreeingEveryOtherLargeBodyMakesNoHoles(t *testing.T) {
	const n = 2000
	before := mappings(t)
	var s Bodies
	var refs []Ref
	for i := range uint32(n) {
		r, err := s.Alloc(100_000 + i)
		if err != nil {
			t.Fatal(err)
		}
		s.Bytes(r, 100_000)[0] = 1
		refs = append(refs, r)
	}
	for i := uint32(0); i < n; i += 2 {
		s.Free(refs[i], 100_000+i)
	}
	if after := mappings(t); after > before+n/10 {
		t.Errorf("%d mappings, %d before", after, before)
	}
	for i := uint32(0); i < n; i += 2 {
		r, err := s.Alloc(100_000 + i)
		if err != nil {
			t.Fatal(err)
		}
		refs[i] = r
	}
	for i, r := range refs {
		s.Free(r, 100_000+uint32(i))
	}
	if s.Mapped() != 0 {
		t.Errorf("%d bytes are still mapped", s.Mapped())
	}
}
