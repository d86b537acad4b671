package replica

import (
	"testing"

	"trellis/binlog/journal"
)

// BenchmarkPut is a put's way into the open batch, and the batch's into an entry.
func BenchmarkPut(b *testing.B) {
	n := &Node{inbox: newInbox()}
	n.opts.Clock = &testClock{}
	n.opts.setDefaults()
	l := newLeadership(1, 0, n)
	r := journal.Record{ID: 1, State: journal.Ready, TTR: 60, Tube: "default", Body: make([]byte, 100)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := l.Put(&r); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			if data, _ := l.next(); data == nil {
				b.Fatal("no batch")
			}
			if err := l.complete(l.sequence); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkBarrier is what a command that changes nothing pays for its reply.
func BenchmarkBarrier(b *testing.B) {
	n := &Node{inbox: newInbox()}
	n.opts.Clock = &testClock{}
	n.opts.setDefaults()
	l := newLeadership(1, 0, n)
	b.ReportAllocs()
	for b.Loop() {
		l.Barrier()
	}
}
