package codec

import (
	"math"
	"strings"
	"testing"
)

func TestRepliesAreSpelledAsTheProtocolSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendInserted(nil, 1), "INSERTED 1\r\n"},
		{AppendInserted(nil, math.MaxUint64), "INSERTED 18446744073709551615\r\n"},
		{AppendCount(nil, "KICKED", 0), "KICKED 0\r\n"},
		{AppendWatching(nil, 2), "WATCHING 2\r\n"},
		{AppendUsing(nil, "default"), "USING default\r\n"},
		{AppendUsing(nil, []byte("a")), "USING a\r\n"},
		{AppendReservedLine(nil, 3, 4), "RESERVED 3 4\r\n"},
		{AppendReservedLine(nil, 3, 0), "RESERVED 3 0\r\n"},
		{AppendMode(nil, Weighted, false, false), "USING weighted\r\n"},
		{AppendMode(nil, Default, true, false), "USING default info\r\n"},
		{AppendMode(nil, FIFO, false, true), "USING fifo abort\r\n"},
		{AppendMode(nil, FIFO, true, true), "USING fifo info abort\r\n"},
		{AppendReservedInfoLine(nil, 3, 4, &JobInfo{Tube: "t", Pri: 5, TTR: 6, Attempts: 7, Age: 8}), "RESERVED 3 4 tube:t pri:5 age:8 ttr:6 attempts:7\r\n"},
		{AppendReservedInfoLine(nil, 3, 4, &JobInfo{Unique: "u", Limited: "l", Group: "g", Fair: "f"}), "RESERVED 3 4 tube: pri:0 age:0 ttr:0 attempts:0 idp:u con:l grp:g fair:f\r\n"},
		{AppendFoundLine(nil, 3, 2), "FOUND 3 2\r\n"},
		{AppendOKLine(nil, 7), "OK 7\r\n"},
		{AppendOK(nil, []byte("---\n- default\n")), "OK 14\r\n---\n- default\n\r\n"},
		{AppendInserted([]byte(ReplyDeleted), 1), "DELETED\r\nINSERTED 1\r\n"},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestRepliesAllocateNothing(t *testing.T) {
	b := make([]byte, 0, 1024)
	body := []byte(strings.Repeat("x", 100))
	tube := "default"
	allocs := testing.AllocsPerRun(10, func() {
		b = AppendInserted(b[:0], math.MaxUint64)
		b = AppendCount(b, "KICKED", math.MaxUint64)
		b = AppendWatching(b, math.MaxUint64)
		b = AppendUsing(b, tube)
		b = AppendUsing(b, body[:3])
		b = AppendReservedLine(b, math.MaxUint64, len(body))
		b = AppendReservedInfoLine(b, math.MaxUint64, len(body), &JobInfo{Tube: tube, Unique: tube, Limited: tube, Group: tube, Fair: tube})
		b = AppendMode(b, WeightedFair, true, true)
		b = AppendFoundLine(b, math.MaxUint64, len(body))
		b = AppendOK(b, body)
		b = append(b, ReplyDeleted...)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
