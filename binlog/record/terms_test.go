package record

import (
	"encoding/hex"
	"testing"

	"trellis/binlog/journal"
)

// What programs that know no terms have written is read and written as ever, and what has terms
// they take for damage, because it has a state that they do not know.
func TestTheFormatOfTermsIsAsWritten(t *testing.T) {
	const body = "64646464"
	const keys = "64656661756c74010f09000000020000006b736f6d652d6c6f6e6765722d6b6579"
	r := testRecord(3, 4)
	r.Keys = journal.Keys{Unique: "k", Seconds: 9, Limited: "some-longer-key", Limit: 2}
	for _, c := range []struct {
		terms   *journal.Terms
		bytes   string
		version uint8
	}{
		{nil, "7b3967c70e000010030000000000000003002a36fe9c9717000000000000000003000000000000003c00000004000000000000000000000000000000000000000000000011072040" + keys + body + "000000", 1},
		{
			&journal.Terms{Fair: "f", Group: "g", After: "h", Settled: true, Expires: 60},
			"a65a439d0f000010030000000000000003002a36fe9c9717000000000000000003000000000000003c0000000400000000000000000000000000000000000000000000005107fa56" + keys + "010101013c000000666768" + body, 3,
		},
	} {
		r.Keys.Terms = c.terms
		b := make([]byte, r.Size())
		EncodeFull(b, 7, r)
		if got := hex.EncodeToString(b); got != c.bytes {
			t.Errorf("written as\n%s, want\n%s", got, c.bytes)
		}
		var got journal.Record
		if DecodeFull(b, &got, &Names{}); sound(b) != "" || !sameRecord(&got, r) {
			t.Errorf("read as %+v: %s", got, sound(b))
		}
		if got := Version(b); got != c.version {
			t.Errorf("version %d, want %d", got, c.version)
		}
		if before := journal.State(b[68] &^ (attemptsFlag | keysFlag | originFlag)); (before <= journal.Deleted) != (c.terms == nil) {
			t.Errorf("to programs that know no terms the state is %v", before)
		}
		u := make([]byte, SizeOfUpdate(r))
		EncodeUpdate(u, 7, r)
		u[52] |= termsFlag
		if seal(u, 7); sound(u) == "" {
			t.Error("an update has terms")
		}
	}
}
