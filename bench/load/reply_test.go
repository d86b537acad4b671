package load

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// show writes a reply as text.
func show(r *reply) string { return fmt.Sprintf("%d %d %q", r.kind, r.id, r.body) }

var replies = []struct {
	in   string
	want reply
}{
	{"INSERTED 1\r\n", reply{kind: replyInserted, id: 1}},
	{"INSERTED 1234567890123456789\r\n", reply{kind: replyInserted, id: 1234567890123456789}},
	{"RESERVED 5 3\r\nabc\r\n", reply{kind: replyReserved, id: 5, body: []byte("abc")}},
	{"RESERVED 5 0\r\n\r\n", reply{kind: replyReserved, id: 5, body: []byte{}}},
	{"RESERVED 5 4\r\n\r\n\r\n\r\n", reply{kind: replyReserved, id: 5, body: []byte("\r\n\r\n")}},
	{"FOUND 7 1\r\nx\r\n", reply{kind: replyFound, id: 7, body: []byte("x")}},
	{"OK 4\r\n---\n\r\n", reply{kind: replyOK, body: []byte("---\n")}},
	{"DELETED\r\n", reply{kind: replyDeleted}},
	{"RELEASED\r\n", reply{kind: replyReleased}},
	{"BURIED\r\n", reply{kind: replyBuried}},
	{"BURIED 9\r\n", reply{kind: replyBuried, id: 9}},
	{"KICKED\r\n", reply{kind: replyKicked, id: 1}},
	{"KICKED 12\r\n", reply{kind: replyKicked, id: 12}},
	{"TOUCHED\r\n", reply{kind: replyTouched}},
	{"USING default\r\n", reply{kind: replyUsing}},
	{"USING " + strings.Repeat("x", 200) + "\r\n", reply{kind: replyUsing}},
	{"WATCHING 2\r\n", reply{kind: replyWatching, id: 2}},
	{"PAUSED\r\n", reply{kind: replyPaused}},
	{"NOT_FOUND\r\n", reply{kind: replyNotFound}},
	{"TIMED_OUT\r\n", reply{kind: replyTimedOut}},
	{"DEADLINE_SOON\r\n", reply{kind: replyDeadlineSoon}},
	{"OUT_OF_MEMORY\r\n", reply{kind: replyOther}},
	{"DRAINING\r\n", reply{kind: replyOther}},
	{"AUTHENTICATED\r\n", reply{kind: replyAuthenticated}},
	{"UNAUTHORIZED\r\n", reply{kind: replyOther}},
}

func TestRepliesAreUnderstood(t *testing.T) {
	for _, c := range replies {
		var r reply
		n, _ := parseReply([]byte(c.in+"DELETED\r\n"), &r)
		if n != len(c.in) || show(&r) != show(&c.want) {
			t.Errorf("%q: got %d bytes, %s, want %s", c.in, n, show(&r), show(&c.want))
		}
	}
}

func TestPartialRepliesAreLeftForLater(t *testing.T) {
	for _, c := range replies {
		for i := range len(c.in) {
			var r reply
			n, want := parseReply([]byte(c.in[:i]), &r)
			if n != 0 || want <= i || want > len(c.in) {
				t.Errorf("%q: took %d bytes, wants %d", c.in[:i], n, want)
			}
		}
	}
}

func TestWhatIsNotOfTheProtocolIsGarbage(t *testing.T) {
	for _, in := range []string{
		"\n", "\r\n", "HELLO\r\n", "DELETED\n", "DELETED 1\r\n", "INSERTED\r\n", "INSERTED x\r\n", "INSERTED -1\r\n",
		"INSERTED 12345678901234567890\r\n", "RESERVED 1\r\n", "RESERVED 1 x\r\n", "RESERVED 1 2\r\nabcd", "OK\r\n",
		"KICKED x\r\n", "USING\r\n", "deleted\r\n", strings.Repeat("A", longestLine),
	} {
		var r reply
		if n, _ := parseReply([]byte(in), &r); n == 0 || r.kind != replyGarbage {
			t.Errorf("%q: got %d bytes, %s", in, n, show(&r))
		}
	}
}

func FuzzParseReply(f *testing.F) {
	for _, c := range replies {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var r reply
		n, want := parseReply(in, &r)
		if n < 0 || n > len(in) || n == 0 && want <= len(in) {
			t.Fatalf("%d of %d bytes taken, %d wanted", n, len(in), want)
		}
		if n > 0 && r.body != nil && !bytes.Contains(in[:n], r.body) {
			t.Fatal("the body is not from the input")
		}
	})
}
