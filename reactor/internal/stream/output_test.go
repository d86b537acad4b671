package stream

import (
	"bytes"
	"testing"
)

func TestAnOutputQueueHoldsBackWhatIsNotCommitted(t *testing.T) {
	t.Parallel()
	var q output
	var n Counts
	check := func(sendable string, length int) {
		t.Helper()
		got := ""
		if q.sendable() {
			got = string(bytes.Join(q.pieces(nil), nil))
		}
		if got != sendable || q.len() != length || n.PendingOutput.Load() != int64(length) || q.empty() != (length == 0) {
			t.Fatalf("%q may be sent of %d bytes, %d are counted; want %q of %d",
				got, q.len(), n.PendingOutput.Load(), sendable, length)
		}
	}
	check("", 0)
	q.add([]byte("firm1 firm2 "), nil, &n)
	q.sent(6, &n)
	check("firm2 ", 6)
	q.add([]byte("held"), nil, &n)
	q.awaitCommit(12, 10)
	check("firm2 ", 10)
	q.add([]byte(" behind"), nil, &n)
	q.awaitCommit(16, 20) // what waits already goes on waiting
	check("firm2 ", 17)
	q.sent(2, &n)
	check("rm2 ", 15)
	if q.dependsOn != 20 {
		t.Fatalf("it waits for %d", q.dependsOn)
	}
	q.dependsOn = 0
	check("rm2 held behind", 15)
	q.sent(15, &n)
	check("", 0)

	q.add([]byte("all is held"), nil, &n)
	q.awaitCommit(0, 30)
	check("", 11)
	q.discardUncommitted(&n)
	check("", 0)

	q.adopt([]byte("firm"), &n)
	q.add([]byte("held"), nil, &n)
	q.awaitCommit(4, 40)
	q.sent(1, &n)
	q.discardUncommitted(&n)
	check("irm", 3)
	q.discard(&n)
	check("", 0)
	if q.dependsOn != 0 || n.PeakOutput.Load() != 17 {
		t.Errorf("uncommitted %t, peak %d", q.dependsOn != 0, n.PeakOutput.Load())
	}
}
